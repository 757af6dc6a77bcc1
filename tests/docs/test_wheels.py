"""What the wheels say of themselves: licence, addresses, classifiers; and what the packages have inside."""

from __future__ import annotations

import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from trove_classifiers import classifiers

from release.build import build_packages
from release.versions import current
from replication.recording.catalogue import STEPS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    build_packages(folder)
    return folder


@pytest.fixture(scope="module", params=["slopewise", "slopewise_exporter"])
def wheel(request: pytest.FixtureRequest, packages: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(packages / f"{request.param}-{current()}-py3-none-any.whl")


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return message_from_bytes(wheel.read(name))


def test_the_licence_is_named_and_its_text_is_in_the_wheel(wheel: zipfile.ZipFile, metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    (name,) = [name for name in wheel.namelist() if name.endswith("/LICENSE")]
    assert wheel.read(name) == (ROOT / "LICENSE").read_bytes()


def test_a_reader_of_the_package_index_finds_home_and_documentation(metadata: Message) -> None:
    urls = dict(line.split(", ", 1) for line in metadata.get_all("Project-URL", []))
    assert {"Homepage", "Documentation", "Changelog"} <= set(urls)
    assert {url.split("/")[2] for url in urls.values()} == {"slopewise.dev"}


def test_the_classifiers_are_those_of_the_index_and_name_every_python_that_is_supported(metadata: Message) -> None:
    said = metadata.get_all("Classifier", [])
    assert set(said) <= classifiers
    least = int(metadata["Requires-Python"].removeprefix(">=3."))
    assert {each.rpartition(".")[2] for each in said if each.startswith("Programming Language :: Python :: 3.")} == {
        str(minor) for minor in range(least, 15)
    }
    assert {each.split(" :: ")[0] for each in said} >= {"Development Status", "Intended Audience", "Topic", "Typing"}
    assert metadata.get("Keywords")


def test_the_wheel_brings_every_recorded_loss(packages: Path) -> None:
    names = zipfile.ZipFile(packages / f"slopewise-{current()}-py3-none-any.whl").namelist()
    brought = {Path(name).stem for name in names if name.startswith("slopewise/simulator/recorded/")}
    assert brought == set(STEPS)


@pytest.mark.parametrize("name", ["slopewise", "slopewise_exporter"])
def test_a_source_archive_has_all_that_is_in_the_wheel_and_no_tests(packages: Path, name: str) -> None:
    with tarfile.open(packages / f"{name}-{current()}.tar.gz") as archive:
        # The controller's source root is a folder of the archive; the exporter's is the archive itself.
        sources = {Path(each.split("/", 1)[-1].removeprefix("controller/")) for each in archive.getnames()}
    modules = {Path(each) for each in zipfile.ZipFile(packages / f"{name}-{current()}-py3-none-any.whl").namelist()}
    assert {each for each in modules if each.suffix == ".py"} <= sources
    assert not {each for each in sources if "tests" in each.parts}


def test_the_exporters_wheel_is_loaded_by_a_variable_alone(packages: Path) -> None:
    wheel = zipfile.ZipFile(packages / f"slopewise_exporter-{current()}-py3-none-any.whl")
    # Python executes the lines of a .pth file that begin with `import`; one that is folded would be a path.
    (line,) = wheel.read("slopewise_exporter.pth").decode().splitlines()
    assert line.startswith("import ")
    assert "SLOPEWISE_EXPORTER" in line
    assert "slopewise_exporter/instrument/bootstrap/sitecustomize.py" in wheel.namelist()
    with tarfile.open(packages / f"slopewise_exporter-{current()}.tar.gz") as archive:
        assert any(name.endswith("/slopewise_exporter.pth") for name in archive.getnames())
