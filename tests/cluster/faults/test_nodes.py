"""A node is lost: its jobs are left alone with a reason, and nothing waits for them forever."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.cluster import is_ready
from support.fault_stage import Stage
from support.waiting import wait_for

from testbed.faults import Faults

LOST = "node-b"


@pytest.fixture
def node_back(stage: Stage, faults: Faults, alone: None) -> Iterator[None]:
    """The lost node is there again for the next test."""
    yield
    faults.resume(LOST)
    look = ("node", LOST)
    wait_for(f"{LOST} is back", lambda: stage.kubectl.get(*look), is_ready)


@pytest.mark.faults
@pytest.mark.usefixtures("node_back")
def test_jobs_of_a_lost_node_are_left_alone_and_hold_no_policy_back(stage: Stage, faults: Faults) -> None:
    stage.pods("here", node="node-a")
    # Longer than a lost node is waited for, so that the API server still has it while the policy goes.
    stage.pods("there", node=LOST, termination_seconds=300)
    stage.policy()
    controller = stage.controller()
    stage.wait_for_limits({"here": 2000, "there": 1000})
    faults.stop(LOST)
    status = stage.wait_for_growth("there", "Managed", "Ineligible")
    assert f"node {LOST} is not ready" in status["reason"] or "the pod is being deleted" in status["reason"]
    controller.wait_for_passes(1)
    assert stage.limits() == {"here": 2000, "there": 1000}
    stage.delete_policy(seconds=100)
    assert stage.limits("here") == {"here": 300}
