import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from support.images import SCRIPT, run, why_not_here

from slopewise import __version__

pytestmark = [pytest.mark.image, pytest.mark.timeout(1200)]

UID = "65532"


@dataclass(frozen=True)
class Image:
    """The built image in the storage of former builds, and one container of it."""

    storage: tuple[str, ...]
    image_id: str
    container: str

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as the image's user."""
        return run(*self.storage, "run", "--isolation", "chroot", self.container, "--", *command)

    def config(self) -> dict[str, Any]:
        """What the image says of itself: user, entry point, environment, labels."""
        shown = run(*self.storage, "inspect", "--type", "image", self.image_id)
        found: dict[str, Any] = json.loads(shown.stdout)["OCIv1"]["config"]
        return found


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    if reason := why_not_here():
        pytest.skip(reason)
    build = run("bash", str(SCRIPT))
    assert build.returncode == 0, f"{build.stdout[-1000:]}\n{build.stderr[-4000:]}"
    *options, image_id = build.stdout.split()
    storage = ("buildah", *options)
    started = run(*storage, "from", image_id)
    assert started.returncode == 0, started.stderr
    container = started.stdout.strip()
    yield Image(storage, image_id, container)
    run(*storage, "rm", container)


def test_the_command_runs_and_says_how_it_is_used(image: Image) -> None:
    result = image.run(*image.config()["Entrypoint"], "--help")

    assert result.returncode == 0, result.stderr
    assert "Usage: slopewise" in result.stdout


@pytest.mark.parametrize("command", ["run", "restore", "simulate"])
def test_the_commands_of_a_cluster_load_with_what_is_installed(image: Image, command: str) -> None:
    result = image.run("slopewise", command, "--help")

    assert result.returncode == 0, result.stderr
    assert f"Usage: slopewise {command}" in result.stdout


def test_the_client_of_the_api_server_is_inside(image: Image) -> None:
    result = image.run("slopewise", "run", "--prometheus-url", "http://127.0.0.1:9", "--kubeconfig", "/no/such/file")

    assert result.returncode == 2, result.stderr
    assert "/no/such/file" in result.stderr


def test_the_user_is_not_root_and_can_write_to_tmp_alone(image: Image) -> None:
    written = image.run(
        "sh", "-c", "for folder in / /etc /opt/slopewise /tmp; do touch $folder/x && echo $folder; done"
    )

    assert image.config()["User"] == f"{UID}:{UID}"
    assert image.run("id", "-u").stdout.strip() == UID
    assert written.stdout.split() == ["/tmp"]


def test_what_builds_software_stays_behind(image: Image) -> None:
    compilers = image.run("sh", "-c", "command -v cc gcc g++ clang make ld")
    modules = image.run("python3", "-c", _WHICH_MODULES, "hatchling", "pip", "setuptools", "numpy")

    assert compilers.stdout == ""
    assert modules.stdout.split() == ["numpy"], modules.stderr


def test_the_libraries_of_reports_demo_and_checks_are_not_inside(image: Image) -> None:
    assert (
        image.run("python3", "-c", _WHICH_MODULES, "jinja2", "pandas", "sklearn", "scipy", "hypothesis").stdout == "\n"
    )


def test_the_dashboards_are_inside(image: Image) -> None:
    shown = image.run("python3", "-c", _LIST_DASHBOARDS)

    assert sorted(shown.stdout.split()) == ["controller.json", "job.json", "nodes.json", "overview.json"], shown.stderr


def test_the_labels_show_what_it_is(image: Image) -> None:
    labels = image.config()["Labels"]

    assert labels["org.opencontainers.image.title"] == "slopewise"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.version"] == __version__


def test_nothing_of_this_machines_way_to_the_package_index_is_left_inside(image: Image) -> None:
    found = image.run("sh", "-c", "ls /etc/pip.conf /run/pip-ca.crt 2>/dev/null; env | grep -i pip")

    assert found.stdout == ""


_WHICH_MODULES = "import importlib.util, sys; print(*filter(importlib.util.find_spec, sys.argv[1:]))"
_LIST_DASHBOARDS = (
    "from slopewise.adapters.grafana import dashboards_folder; print(*(f.name for f in dashboards_folder().iterdir()))"
)


def test_a_policy_of_ones_own_can_be_begun_inside_and_its_check_names_its_extra(image: Image) -> None:
    written = image.run("slopewise", "policies", "new", "mine", "--folder", "/tmp")
    assert written.returncode == 0, written.stderr

    checked = image.run("slopewise", "policies", "check", "/tmp/mine.py", "--worlds", "5")
    assert checked.returncode == 2, checked.stdout + checked.stderr
    assert 'pip install "slopewise[policies]"' in checked.stderr
