"""A Prometheus with TLS and a password, read with an http_config that a Secret holds, and that rotates under way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.accounts import SYSTEM
from support.certificates import Authority
from support.cluster import Kubectl
from support.images import Images
from support.installation import DEPLOYMENT, Installation, installed, overlay
from support.locked_prometheus import PASSWORDS, USER, LockedPrometheus
from support.scene import Scene
from support.waiting import wait_for

from slopewise.adapters.local.prometheus_install import PrometheusBinaries
from testbed.builds import all_builds, bring
from testbed.progress import Progress
from testbed.settings import API_ADDRESS, Settings

pytestmark = pytest.mark.faults

SCRAPE_SECONDS = 5.0
COMPONENT = "slopewise/manifests/components/prometheus-credentials"


@pytest.fixture(scope="module")
def locked(
    testbed_settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LockedPrometheus, Authority]]:
    """The test-bed's own Prometheus a second time, with a lock on it: on this machine, where pods reach it."""
    folder = tmp_path_factory.mktemp("locked")
    builds = all_builds(testbed_settings.kubernetes_version)
    program = bring(
        next(each for each in builds if each.name == "prometheus"), testbed_settings.cache_folder, Progress()
    )
    scraped = json.loads((testbed_settings.run_folder / "prometheus.json").read_text())["scrape_configs"]
    authority = Authority(folder / "certificates")
    server = LockedPrometheus(
        PrometheusBinaries(program / "prometheus", None, "3"),
        folder / "prometheus",
        authority.sign("server", f"IP:{API_ADDRESS}"),
        path="/shared",
        scrape_configs=scraped,
        scrape_interval=f"{SCRAPE_SECONDS:g}s",
        host=API_ADDRESS,
    )
    with server.running():
        yield server, authority


@pytest.fixture(scope="module")
def folder(
    images: Images, locked: tuple[LockedPrometheus, Authority], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An overlay as docs/prometheus.md has it, and beside it what becomes the Secret."""
    server, authority = locked
    files = ["http_config.yaml", "password", "ca.crt"]
    secret = {"name": "slopewise-prometheus", "namespace": SYSTEM, "files": files}
    more: dict[str, Any] = {
        "components": [COMPONENT],
        "secretGenerator": [{**secret, "options": {"disableNameSuffixHash": True}}],
    }
    made = overlay(tmp_path_factory.mktemp("overlay"), images.controller, server.url, SCRAPE_SECONDS, **more)
    document = {
        "basic_auth": {"username": USER, "password_file": "password"},
        "tls_config": {"ca_file": "ca.crt"},
    }
    (made / "http_config.yaml").write_text(yaml.safe_dump(document))
    (made / "password").write_text("first-password\n")
    (made / "ca.crt").write_bytes(authority.certificate.read_bytes())
    return made


@pytest.fixture(scope="module")
def controller(kubectl: Kubectl, folder: Path) -> Iterator[Installation]:
    """Installed and ready."""
    with installed(kubectl, folder) as installation:
        yield installation


def test_a_password_that_rotates_holds_passes_until_the_secret_has_it(
    scene: Scene, folder: Path, locked: tuple[LockedPrometheus, Authority], two_nodes: tuple[str, str]
) -> None:
    server, _ = locked
    scene.start(scene.training("digits-mlp", 9000, two_nodes[0], "1"))
    scene.obey("Recommend", behaviour={"intervalSeconds": 20})
    wait_for("its loss", scene.growths, lambda found: "loss" in found.get("digits-mlp", {}).get("status", {}))
    replica = _replica(scene.kubectl)

    server.let_in("second-password")
    reported = wait_for("the pass is held", lambda: _ready(scene), lambda ready: ready["status"] == "False")
    assert reported["reason"] == "CannotObserve"
    assert (
        "/shared answered 401 (Unauthorized); correct basic_auth in /etc/slopewise-prometheus/" in reported["message"]
    )

    (folder / "password").write_text("second-password\n")
    scene.kubectl.run("apply", "--server-side", "-k", str(folder))
    wait_for("it goes on", lambda: _ready(scene), lambda ready: ready["status"] == "True")
    assert _replica(scene.kubectl) == replica, "without a restart"
    shown = reported["message"] + scene.kubectl.run("logs", DEPLOYMENT, "-n", SYSTEM, "--tail=-1")
    for kind in ("trainingpolicies", "events", "jobgrowths", "pods"):
        shown += scene.kubectl.run("get", kind, "-A", "-o", "yaml")
    assert '"event": "pass held"' in shown
    assert not [password for password in PASSWORDS if password in shown]


def _ready(scene: Scene) -> dict[str, Any]:
    status = scene.kubectl.get("trainingpolicy", scene.policy).get("status", {})
    return next((one for one in status.get("conditions", []) if one["type"] == "Ready"), {"status": "Unknown"})


def _replica(kubectl: Kubectl) -> list[tuple[str, int]]:
    pods = kubectl.get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=controller")["items"]
    statuses = [status for pod in pods for status in pod["status"]["containerStatuses"]]
    return [(status["containerID"], status["restartCount"]) for status in statuses]
