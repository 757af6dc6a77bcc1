"""The component `moves`: the sweeper's pod, and that the admission policies speak of the names that the code writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.rendering import MANIFESTS, Documents, only, render, render_mine

from slopewise import __version__
from slopewise.adapters.kube.cache.records import (
    AT_TARGET,
    FINALIZER,
    MANAGED_LABEL,
    MOVE,
    MOVES_ALLOWED,
    MOVES_LABEL,
    PLACE_GATE,
    PLACED,
    STOP,
    STOPPED,
)
from slopewise.adapters.kube.events import REPORTING_CONTROLLER


@pytest.fixture
def sweeper(moves: Documents) -> dict[str, Any]:
    spec: dict[str, Any] = only(moves, "CronJob")["spec"]
    return spec


@pytest.fixture
def pod(sweeper: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = sweeper["jobTemplate"]["spec"]["template"]["spec"]
    return spec


def test_it_sweeps_each_minute_one_at_a_time_and_none_stays_for_ever(sweeper: dict[str, Any]) -> None:
    job = sweeper["jobTemplate"]["spec"]

    assert (sweeper["schedule"], sweeper["concurrencyPolicy"]) == ("* * * * *", "Forbid")
    assert job["backoffLimit"] == 0
    assert job["activeDeadlineSeconds"] < 120
    # The controller of CronJobs looks every 10 s: what may start for less time than that is never started.
    assert 10 < sweeper["startingDeadlineSeconds"] < 60
    assert (sweeper["successfulJobsHistoryLimit"], sweeper["failedJobsHistoryLimit"]) == (1, 1)
    assert 60 < job["ttlSecondsAfterFinished"] <= 3600


def test_the_sweeper_passes_the_restricted_pod_security_standard(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    controller = only(render(MANIFESTS / "overlays/minimal"), "Deployment")["spec"]["template"]["spec"]

    assert pod["securityContext"] == controller["securityContext"]
    assert container["securityContext"] == controller["containers"][0]["securityContext"]
    assert {kind for volume in pod["volumes"] for kind in volume} == {"name", "emptyDir"}


def test_the_sweepers_image_is_the_controllers_also_in_somebodys_own_overlay(tmp_path: Path) -> None:
    image = {"name": "slopewise", "newName": "registry.example.org/slopewise", "newTag": "9"}
    mine = render_mine(tmp_path, "moves", images=[image])

    for documents, expected in (
        (render(MANIFESTS / "overlays/moves"), f"slopewise:{__version__}"),
        (mine, "registry.example.org/slopewise:9"),
    ):
        controller = only(documents, "Deployment")["spec"]["template"]["spec"]
        sweeper = only(documents, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        assert [pod["containers"][0]["image"] for pod in (controller, sweeper)] == [expected] * 2


def test_the_sweeper_speaks_with_the_api_server_and_dns_alone(moves: Documents, sweeper: dict[str, Any]) -> None:
    labels = sweeper["jobTemplate"]["spec"]["template"]["metadata"]["labels"].items()
    network = only(moves, "NetworkPolicy", "slopewise-sweeper")["spec"]
    controllers = only(moves, "NetworkPolicy", "slopewise-controller")["spec"]["podSelector"]["matchLabels"]

    assert network["podSelector"]["matchLabels"].items() <= labels
    assert not controllers.items() <= labels
    assert network["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in network
    assert [[port["port"] for port in rule["ports"]] for rule in network["egress"]] == [[53, 53], [443, 6443]]


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        ("slopewise-gates", (PLACE_GATE, PLACED)),
        ("slopewise-jobs", (MOVE, MANAGED_LABEL, MOVES_LABEL, f"== '{MOVES_ALLOWED}'")),
        ("slopewise-jobs", (STOPPED, f"[?'{AT_TARGET}'].orValue('') == '{STOP}'")),
        ("slopewise-notes", (MOVE,)),
        ("slopewise-evictions", (MOVES_LABEL, f"== '{MOVES_ALLOWED}'")),
        ("slopewise-resize", (MANAGED_LABEL,)),
        ("slopewise-policies", (FINALIZER,)),
        ("slopewise-events", (REPORTING_CONTROLLER,)),
    ],
)
def test_an_admission_policy_has_the_names_of_the_code(moves: Documents, policy: str, names: tuple[str, ...]) -> None:
    text = str(only(moves, "ValidatingAdmissionPolicy", policy)["spec"])

    assert [name for name in names if name not in text] == []


def test_the_component_can_be_applied_alone_to_what_is_installed() -> None:
    everything, before = (render(MANIFESTS / "overlays" / name) for name in ("moves", "minimal"))

    assert [d for d in everything if d not in before] == render(MANIFESTS / "components/moves")
