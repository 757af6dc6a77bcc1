"""A kubelet that is down: what the API server has accepted is not in effect, and no report says that it is.

And a node that is lost: its jobs are left alone with a reason, and nothing waits for them for ever.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from support.cluster import is_ready
from support.fault_stage import ORIGINAL, SHAPE, STORED, Stage
from support.waiting import wait_for

from testbed.faults import Faults

NODE = "node-b"
KUBELET = f"{NODE}.kubelet"
TOLERANT = [
    {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 600}
    for taint in ("unreachable", "not-ready")
]
"""So that the pod is not evicted meanwhile: the test-bed does that ten seconds after a node is lost."""


@pytest.fixture
def node_back(stage: Stage, faults: Faults, alone: None) -> Iterator[None]:
    """It is there again for the next test."""
    yield
    faults.resume(NODE)
    look = ("node", NODE)
    wait_for(f"{NODE} is ready", lambda: stage.kubectl.get(*look), is_ready)


def a_tolerant_pod(stage: Stage, name: str) -> None:
    pod = replace(stage.idle, **{**SHAPE, "node": NODE}).pod(name)
    pod["spec"]["tolerations"] = TOLERANT
    stage.kubectl.apply(pod, namespace=stage.namespace)
    stage.kubectl.wait_running(stage.namespace, name)


def restore_all(stage: Stage, seconds: int) -> tuple[int, dict[str, Any]]:
    """Exit status and JSON of `slopewise restore --all`, as a person runs it."""
    kubeconfig = stage.write_kubeconfig("restore", stage.gateway())
    done = subprocess.run(
        [
            *(sys.executable, "-m", "slopewise", "restore", "--all", "--output", "json", "--deadline", str(seconds)),
            *("--kubeconfig", str(kubeconfig), "--lease-namespace", stage.namespace),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


@pytest.mark.faults
@pytest.mark.usefixtures("node_back")
def test_nothing_is_restored_and_nothing_shown_as_in_effect_while_a_kubelet_is_down(
    stage: Stage, faults: Faults
) -> None:
    a_tolerant_pod(stage, "a")
    policy = stage.policy()
    controller = stage.controller()
    stage.wait_for_limits({"a": 1000})
    assert stage.wait_for_growth("a", "InEffect", "Reported")["cpu"] == "1"

    faults.stop(KUBELET)
    stage.policy(mode="Recommend")
    stage.wait_for_limits({"a": 300})
    status = stage.wait_for_growth("a", "InEffect", "Accepted")
    assert (status["cpuMillicores"], status["cpuAcceptedMillicores"]) == (1000, 300)
    assert controller.metric("slopewise_restore_pending_pods", name=policy) == 1
    assert controller.metric("slopewise_unconfirmed_pods", job_node=NODE) == 1

    stage.wait_for_growth("a", "InEffect", "KubeletBehind")
    stage.wait_for_event("a", "RestoreDeferred", "the API server has accepted limit 300m")
    condition = stage.wait_for_condition("Degraded", "CannotDoAll")
    assert f"accepted CPU is not in effect on {NODE} (1 pod)" in condition["message"]
    assert "Restored" not in [reason for reason, _ in stage.events("a")]
    assert stage.originals() == {"a": STORED}

    assert controller.stop() == 0
    exit_code, result = restore_all(stage, 5)
    assert (exit_code, result["complete"], result["restored"]) == (1, False, {})
    assert f"pod {stage.namespace}/a" in {**result["accepted"], **result["pending"]}

    faults.resume(KUBELET)
    exit_code, result = restore_all(stage, 120)
    assert (exit_code, result["restored"].keys()) == (0, {f"pod {stage.namespace}/a"})
    assert stage.kubectl.cpu_quota_microseconds(stage.namespace, "a") == 30_000
    assert stage.cpu() == {"a": ORIGINAL}
    stage.delete_policy()


@pytest.mark.faults
@pytest.mark.usefixtures("node_back")
def test_a_policy_that_is_deleted_waits_a_minute_for_a_kubelet_that_is_down_and_says_what_stays(
    stage: Stage, faults: Faults
) -> None:
    a_tolerant_pod(stage, "a")
    stage.policy()
    controller = stage.controller()
    stage.wait_for_limits({"a": 1000})
    stage.wait_for_growth("a", "InEffect", "Reported")

    faults.stop(KUBELET)
    stage.delete_policy(seconds=100)
    line = controller.wait_for_line("finalization delayed")
    assert "do not have their original resources back (1)" in line["reason"]
    assert f"the API server has accepted limit 300m, request 100m; {NODE}" in line["reason"]
    assert stage.originals() == {"a": STORED}
    assert "Restored" not in [reason for reason, _ in stage.events("a")]

    faults.resume(KUBELET)
    stage.wait_for_event("a", "Restored")
    assert stage.kubectl.cpu_quota_microseconds(stage.namespace, "a") == 30_000


@pytest.mark.faults
@pytest.mark.usefixtures("node_back")
def test_jobs_of_a_lost_node_are_left_alone_and_hold_no_policy_back(stage: Stage, faults: Faults) -> None:
    stage.pods("here", node="node-a")
    # Longer than a lost node is waited for, so that the API server still has it while the policy goes.
    stage.pods("there", node=NODE, termination_seconds=300)
    stage.policy()
    controller = stage.controller()
    stage.wait_for_limits({"here": 2000, "there": 1000})
    faults.stop(NODE)
    status = stage.wait_for_growth("there", "Managed", "Ineligible")
    assert f"node {NODE} is not ready" in status["reason"] or "the pod is being deleted" in status["reason"]
    controller.wait_for_passes(1)
    assert stage.limits() == {"here": 2000, "there": 1000}
    stage.delete_policy(seconds=100)
    assert stage.limits("here") == {"here": 300}
