"""The API server is away or hangs: a leader that cannot prove its lease writes nothing, and another goes on."""

from __future__ import annotations

import time

import pytest
from support.fault_stage import QUICK_LEASE_SECONDS, STORED, Stage
from support.gateway import Gateway, drop
from support.waiting import wait_for

from testbed.faults import Faults

RENEW_DEADLINE_SECONDS = QUICK_LEASE_SECONDS * 10 / 15
UNDER_WAY_SECONDS = 0.5
"""Between the controller's look at its clock and the gateway's: both are busy, and so is the machine."""

EVEN = {"a": 1000, "b": 1000}
THIRDS = {"a": 667, "b": 667, "c": 667}


def last_renewal_seconds(gateway: Gateway) -> float:
    """When the last renewal of the lease was sent that reached the API server."""
    return max(each.at_seconds for each in gateway.writes("leases"))


def written_too_late(gateway: Gateway, deadline: float) -> list[str]:
    """What was sent past the deadline, except for tries to renew."""
    late = [each for each in gateway.requests if each.writes and each.at_seconds > deadline + UNDER_WAY_SECONDS]
    return [each.kind for each in late if "leases" not in each.kind]


def test_a_leader_that_is_cut_off_writes_nothing_past_its_deadline_and_another_one_goes_on(stage: Stage) -> None:
    stage.lease_seconds = QUICK_LEASE_SECONDS
    stage.pods("a", "b")
    stage.policy()
    gateway, other = stage.gateway(), stage.gateway()
    leader = stage.controller(gateway)
    stage.wait_for_limits(EVEN)
    follower = stage.controller(other, leading=False)
    follower.wait_until_ready()
    stage.resized.clear()
    gateway.before = drop
    cut_off_at = time.monotonic()
    deadline = last_renewal_seconds(gateway) + RENEW_DEADLINE_SECONDS
    stage.pods("c")
    assert leader.wait_until_ended() == 1
    assert time.monotonic() - cut_off_at < 60
    lost = leader.wait_for_line("lease lost")
    assert f"could not be renewed for {RENEW_DEADLINE_SECONDS:g} s" in lost["reason"]
    follower.wait_until_leading()
    stage.wait_for_limits(THIRDS)
    assert written_too_late(gateway, deadline) == []
    assert stage.resized == {"a": 1, "b": 1, "c": 1}
    assert stage.originals() == dict.fromkeys("abc", STORED)


@pytest.mark.faults
def test_without_the_api_server_a_controller_starts_waits_and_says_for_what(stage: Stage) -> None:
    gateway = stage.gateway()
    gateway.before = drop
    stage.pods("a")
    stage.policy()
    controller = stage.controller(gateway, leading=False)
    said = wait_for("it says what it waits for", controller.readiness, lambda text: "waiting for" in text)
    assert "trainingpolicies" in said
    assert controller.is_running()
    gateway.before = lambda _: None
    stage.wait_for_limits({"a": 2000})


@pytest.mark.faults
def test_an_api_server_that_hangs_for_15_seconds_costs_no_job_a_second_resize(
    stage: Stage, faults: Faults, alone: None
) -> None:
    stage.lease_seconds = QUICK_LEASE_SECONDS
    stage.pods("a", "b")
    stage.policy()
    gateway, other = stage.gateway(), stage.gateway()
    leader = stage.controller(gateway)
    stage.wait_for_limits(EVEN)
    stage.resized.clear()
    stage.kubectl.run("delete", "pod", "b", "-n", stage.namespace, "--wait=false")  # something to do, just now
    faults.stop("kube-apiserver")
    try:
        deadline = last_renewal_seconds(gateway) + RENEW_DEADLINE_SECONDS
        assert leader.wait_until_ended() == 1
        time.sleep(15 - QUICK_LEASE_SECONDS)
    finally:
        faults.resume("kube-apiserver")
    successor = stage.controller(other)
    stage.wait_for_limits({"a": 2000})
    successor.wait_for_passes(1)
    assert written_too_late(gateway, deadline) == []
    assert stage.resized["a"] == 1
    stage.delete_policy()
    assert stage.limits("a") == {"a": 300}


@pytest.mark.faults
def test_a_restart_of_the_api_server_changes_nothing(stage: Stage, faults: Faults, alone: None) -> None:
    stage.pods("a", "b")
    stage.policy()
    gateway = stage.gateway()
    controller = stage.controller(gateway)
    stage.wait_for_limits(EVEN)
    stage.resized.clear()
    faults.restart("kube-apiserver")
    looks = ("get", "--raw", "/readyz")
    wait_for("the API server is back", lambda: stage.kubectl.attempt(*looks), lambda seen: seen.returncode == 0)
    if not controller.is_running():  # it was away for longer than the lease allows
        assert controller.wait_until_ended() == 1
        controller = stage.controller(gateway)
    controller.wait_for_passes(2)
    assert stage.resized == {}
    stage.pods("c")
    stage.wait_for_limits(THIRDS)
