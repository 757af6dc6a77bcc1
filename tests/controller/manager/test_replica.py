"""One replica of the controller as a process: its start, its probes, its lease and its end."""

from __future__ import annotations

import signal

import pytest
from support.api_server import Hang, Reply, refusal
from support.replicas import LEASE, LEASES, ORIGINAL, POLICIES, SHARE, Town, wait_for

from slopewise.signals import received_signals

SOMEBODY = {"metadata": {"name": "slopewise-controller"}, "spec": {"holderIdentity": "b", "leaseDurationSeconds": 3600}}


@pytest.fixture
def town(empty_town: Town) -> Town:
    return empty_town


def test_a_replica_that_waits_for_the_lease_is_ready_and_alive_and_says_who_has_it(town: Town) -> None:
    town.server.put(LEASES, SOMEBODY)
    with town.replica() as replica:
        wait_for(lambda: replica.get("/readyz").status_code == 200, "it is ready", town)
        wait_for(lambda: town.lines("standing by"), "it says so", town)

        assert replica.get("/healthz").status_code == 200
        assert replica.metric("slopewise_leader") == 0
    assert town.lines("standing by")[0]["reason"] == "b holds the lease"
    assert replica.exit_code == 0
    assert town.server.get(LEASE)["spec"]["holderIdentity"] == "b"


def test_missing_custom_resource_definitions_are_named(town: Town) -> None:
    town.server.fault(Reply(404, b"404 page not found"), path="trainingpolicies$", times=1000)
    with town.replica() as replica:
        # Others that were not listed yet may stand beside it for a moment.
        only = "waiting for trainingpolicies (The API server answered 404"
        wait_for(lambda: replica.get("/readyz").text.startswith(only), "it says so", town)
        text = replica.get("/readyz").text
        town.server.heal()
        wait_for(lambda: replica.get("/readyz").status_code == 200, "it goes on", town)
    assert text.endswith("are the CustomResourceDefinitions of manifests/crds applied?)\n")


def test_stopped_in_an_orderly_way_it_says_0_and_hands_the_lease_back(town: Town) -> None:
    town.pod()
    town.policy()
    with town.replica() as replica:
        wait_for(lambda: town.limit() == SHARE, "the pod gets its share", town)

        assert replica.stop() == 0

    assert town.server.get(LEASE)["spec"]["holderIdentity"] == ""
    assert town.limit() == SHARE  # another replica goes on
    assert town.condition("Ready")["reason"] == "ModeAuto"
    assert [line["signal"] for line in town.lines("stopping")] == ["SIGTERM"]


@pytest.mark.timeout(20)
def test_a_pass_that_hangs_does_not_hold_up_the_end(town: Town) -> None:
    town.pod()
    town.policy()
    town.prometheus.respond = lambda _: town.prometheus.released.wait(30)
    with town.replica() as replica:
        wait_for(lambda: town.prometheus.asked, "a pass is under way", town)

        assert replica.stop() == 0

    assert town.lines("passes still running")[0]["names"] == ["p"]
    assert town.limit() == ORIGINAL


def test_a_leader_that_cannot_renew_its_lease_writes_nothing_more_and_ends_with_status_1(town: Town) -> None:
    town.pod()
    town.policy(behaviour={"intervalSeconds": 3600})
    with town.replica() as replica:
        wait_for(lambda: town.limit() == SHARE, "the pod gets its share", town)
        town.server.fault(refusal(500, "InternalError", "no quorum"), method="PUT", path="leases", times=1000)
        wait_for(replica.ended, "it ends", town)
        assert replica.exit_code == 1
        at_the_end = len(town.writes())
    assert "could not be renewed" in town.lines("lease lost")[0]["reason"]
    assert [write for write in town.writes()[at_the_end:] if "leases" not in write] == []


def test_a_leader_that_loses_its_lease_in_the_middle_of_a_pass_changes_no_further_pod(town: Town) -> None:
    for name in ("a", "b", "c"):
        town.pod(name)
    town.server.fault(Hang(), method="PATCH", path="/resize$", times=1)
    town.policy()
    with town.replica() as replica:
        wait_for(lambda: town.server.asked("PATCH", "/resize$"), "the first resize hangs", town)
        town.server.put(LEASES, SOMEBODY)
        wait_for(replica.ended, "it ends", town)

    assert replica.exit_code == 1
    assert len(town.server.asked("PATCH", "/resize$")) == 1


def test_the_next_leader_knows_what_the_last_one_stored_although_its_watch_is_late(town: Town) -> None:
    town.pod()
    with town.replica() as first:
        first.wait_until_leading()
        wait_for(lambda: first.get("/readyz").status_code == 200, "it watches", town)
        town.server.fault(Hang(), path="jobgrowths$", watches=True, times=100)
        with town.replica() as late:
            wait_for(lambda: late.get("/readyz").status_code == 200, "it has read the cluster", town)
            town.policy()
            wait_for(lambda: town.limit() == SHARE, "the pod gets its share", town)
            first.stop()
            late.wait_until_leading()
            town.delete_policy()
            wait_for(lambda: not town.is_there(f"{POLICIES}/p"), "the policy goes", town)
    assert town.limit() == ORIGINAL


def test_an_error_of_ours_in_a_tick_is_reported_and_counted_and_the_next_tick_comes(town: Town) -> None:
    town.server.put(LEASES, SOMEBODY)
    with town.replica() as replica:
        wait_for(lambda: replica.get("/readyz").status_code == 200, "it is ready", town)
        town.server.fault(Reply(200, {"metadata": {}, "items": 5}), method="GET", path="jobgrowths$", times=1)
        town.server.put(LEASES, {**SOMEBODY, "spec": {}})

        wait_for(lambda: replica.metric("slopewise_manager_errors_total") == 1, "it is counted", town)
        wait_for(lambda: replica.metric("slopewise_last_pass_timestamp_seconds"), "the next tick is well", town)
    [line] = town.lines("tick failed")
    assert "not iterable" in line["reason"]
    assert "Traceback" in line["exception"]


def test_a_standby_whose_api_server_goes_away_stays_alive(town: Town) -> None:
    town.server.put(LEASES, SOMEBODY)
    with town.replica() as replica:
        wait_for(lambda: replica.get("/readyz").status_code == 200, "it is ready", town)
        town.server.stop()
        wait_for(lambda: replica.replica.elector.failure, "it notices", town)
        assert replica.get("/healthz").status_code == 200
        assert not replica.ended()
        town.server.restart()


def test_the_first_of_two_signals_is_the_one_that_counts() -> None:
    with received_signals() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert stop.wait(0.0)
    assert (stop.name, stop.exit_code) == ("SIGTERM", 143)
