"""The component `moves`, added to what is installed: its CronJob frees what waits when no controller is there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.accounts import SYSTEM
from support.cluster import Kubectl, PodShape
from support.installation import DEPLOYMENT, Installation
from support.rendering import MANIFESTS
from support.waiting import wait_for

from controller.adapters.kube.records import PLACE_GATE
from testbed.settings import Settings

TWO_MINUTES_SECONDS = 120.0

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]


@pytest.fixture
def no_controller(kubectl: Kubectl, controller: Installation, testbed_settings: Settings) -> Iterator[None]:
    """Installed with moves, and its Deployment scaled down. The component alone names the image of the test-bed."""
    component = str(MANIFESTS / "components/moves")
    kubectl.run("apply", "--server-side", "-k", component)
    try:
        kubectl.run("scale", DEPLOYMENT, "-n", SYSTEM, "--replicas=0")
        wait_for("nobody leads", lambda: controllers(kubectl), lambda pods: not pods, 60)
        yield
    finally:
        kubectl.run("delete", "-k", component)


def controllers(kubectl: Kubectl) -> str:
    return kubectl.run("get", "pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=controller", "-o", "name")


@pytest.mark.usefixtures("no_controller")
def test_a_pod_behind_our_gate_runs_after_two_minutes_although_no_controller_is_there(
    kubectl: Kubectl, namespace: str, idle: PodShape
) -> None:
    pod = idle.pod("gated")
    pod["spec"]["schedulingGates"] = [{"name": PLACE_GATE}]
    kubectl.apply(pod, namespace=namespace)

    # Ten seconds more for the start of the sweeper's pod and of this one.
    kubectl.wait_running(namespace, "gated", seconds=TWO_MINUTES_SECONDS + 10)

    sweeper = ("-l", "app.kubernetes.io/component=sweeper", "-n", SYSTEM)
    told = wait_for("it tells", lambda: kubectl.run("logs", *sweeper, "--tail=-1"), lambda text: namespace in text, 60)
    print(told)
    assert "its gate is off" in told
    assert "schedulingGates" not in kubectl.get("pod", "gated", "-n", namespace)["spec"]
