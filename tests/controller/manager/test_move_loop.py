"""The leader sees moves through, also those that another one has begun; a replica that only stands by does not."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast

import pytest
from support.api_server import refusal
from support.growths import GROWTHS
from support.managed_pods import NAMESPACE
from support.replicas import EVENTS, LEASE, LEASES, Json, Town, wait_for
from support.suspended_jobs import JOBS, NAME, UID, left_behind, pins
from support.waiting import eventually

from slopewise.adapters.kube.cache.records import MOVE
from slopewise.adapters.kube.client.fencing import FencedApi
from slopewise.adapters.kube.moves.gated_pods import GatedPodController
from slopewise.manager.finalization import Finalizations
from slopewise.manager.leader import PolicyManager
from slopewise.manager.move_loop import STALLED_SECONDS, MoveController
from slopewise.manager.shared import SharedState


@pytest.fixture
def town(empty_town: Town) -> Town:
    return empty_town


def job(town: Town) -> Json:
    return town.server.get(f"{JOBS}/{NAME}")


def is_resumed(town: Town) -> bool:
    return job(town)["spec"]["suspend"] is False


def test_a_job_that_a_former_leader_has_suspended_goes_where_it_was_to_go(town: Town) -> None:
    town.server.put(JOBS, left_behind("node-a"))

    with town.replica():
        wait_for(lambda: is_resumed(town), "it is resumed", town)
        wait_for(lambda: town.server.asked("POST", EVENTS), "it is reported", town)

    assert pins(job(town)["spec"]["template"]["spec"]["affinity"]) == ["node-a"]
    [line] = town.lines("move advanced")
    assert (line["job"], line["reason"]) == ("team-a/train", "its pods have ended; it starts on node-a")
    [event] = [request.body for request in town.server.asked("POST", EVENTS)]
    assert (event["regarding"]["kind"], event["reason"], event["type"]) == ("Job", "Moving", "Normal")


def test_a_move_that_comes_to_nothing_is_in_the_history_of_its_workload(town: Town) -> None:
    town.server.put(JOBS, left_behind("node-that-is-gone"))
    workload = {"apiVersion": "batch/v1", "kind": "Job", "name": NAME, "uid": UID}
    growth = {"metadata": {"name": NAME, "namespace": NAMESPACE, "uid": "growth-1"}, "spec": {"workload": workload}}
    pods = [{"slot": "0", "memory": "{}"}]
    town.server.put(GROWTHS, {**growth, "status": {"policy": "p", "pods": pods}})
    town.policy()

    def history() -> list[Json]:
        return list(town.server.get(f"{GROWTHS}/{NAME}").get("status", {}).get("history", ()))

    with town.replica():
        wait_for(history, "its history says so", town)

    action = history()[0]
    assert (action["change"], action["result"]) == ("node-b to node-that-is-gone", "cancelled")
    assert action["detail"].startswith("not moved to node-that-is-gone: there is no such node")
    assert pins(job(town)["spec"]["template"]["spec"].get("affinity")) == []


def test_a_standby_leaves_moves_to_the_leader_and_reports_a_suspended_job_once(
    town: Town,
) -> None:
    left = left_behind("node-a")
    annotation = json.loads(left["metadata"]["annotations"][MOVE])
    left["metadata"]["annotations"][MOVE] = json.dumps({**annotation, "jobUids": [f"{UID}:0", f"{UID}:1"]})
    town.server.put(JOBS, left)
    town.server.put(
        LEASES,
        {
            "metadata": {"name": LEASE.rpartition("/")[2]},
            "spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00Z"},
        },
    )

    with town.replica() as standby:
        wait_for(lambda: standby.metric("slopewise_suspended_jobs"), "it is seen", town)
        assert eventually(lambda: (standby.metric("slopewise_oldest_suspended_seconds") or 0) > 0.1)
        assert len(standby.replica.shared.moves_under_way()) == 2
        figures = [standby.metric(f"slopewise_{name}") for name in ("suspended_jobs", "moves_under_way")]

    assert figures == [1.0, 1.0]
    assert not is_resumed(town)


def test_a_dry_run_moves_nothing(town: Town) -> None:
    town.server.put(JOBS, left_behind("node-a"))

    with town.replica(dry_run=True) as replica:
        wait_for(replica.replica.shared.watches.jobs.items, "it knows the Job", town)

    assert not is_resumed(town)
    assert not town.server.asked("PATCH")


def test_trouble_with_a_move_is_reported_and_ends_with_its_cause(town: Town) -> None:
    town.server.put(JOBS, left_behind("node-a"))
    town.server.fault(refusal(403, "Forbidden", "jobs is forbidden"), method="PATCH", path="/jobs/train$", times=2)

    with town.replica():
        wait_for(lambda: is_resumed(town), "it is resumed", town)

    assert "jobs is forbidden" in town.lines("move interrupted")[0]["reason"]
    assert town.lines("move advanced")[-1]["reason"] == "its pods have ended; it starts on node-a"


class StuckGates:
    """A tick that hangs until it is let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.let_go = threading.Event()

    def tick(self, after_each: Callable[[], None]) -> None:
        self.reached.set()
        self.let_go.wait(30)


class SlowGates:
    """A tick that sees to three pods, each for a little less than what counts as hanging; then it hangs."""

    def __init__(self, seconds: list[float]) -> None:
        self.seconds = seconds
        self.seen_to_all = threading.Event()
        self.let_go = threading.Event()

    def tick(self, after_each: Callable[[], None]) -> None:
        for _ in range(3):
            self.seconds[0] += STALLED_SECONDS - 1.0
            after_each()
        self.seen_to_all.set()
        self.let_go.wait(30)


class DeadlyGates:
    """A tick that ends the thread in which it is called."""

    def tick(self, after_each: Callable[[], None]) -> None:
        raise SystemExit


@pytest.fixture
def shared(town: Town) -> Iterator[SharedState]:
    """Of a replica that moves nothing itself, as one that leads would have it."""
    with town.replica(dry_run=True) as replica:
        wait_for(lambda: replica.get("/readyz").status_code == 200, "it has read the cluster", town)
        yield replace(replica.replica.shared, api=FencedApi(town.server.client(), lambda: True))


def test_a_thread_of_moves_that_hangs_is_not_alive_until_it_goes_on(shared: SharedState) -> None:
    gates, seconds = StuckGates(), [1000.0]
    controller = MoveController(replace(shared, gates=cast("GatedPodController", gates)), lambda: seconds[0])
    seconds[0] += STALLED_SECONDS
    assert controller.is_alive()  # nothing has started it: a replica that stands by
    controller.start()
    assert gates.reached.wait(60)
    assert controller.is_alive()
    seconds[0] += STALLED_SECONDS
    assert not controller.is_alive()
    gates.let_go.set()
    assert eventually(controller.is_alive)
    assert controller.stop(timeout_seconds=10.0)
    seconds[0] += STALLED_SECONDS
    assert controller.is_alive()  # asked to stop, it owes no tick


def test_a_thread_of_moves_that_takes_long_for_each_of_many_pods_is_alive(shared: SharedState) -> None:
    seconds = [1000.0]
    gates = SlowGates(seconds)
    controller = MoveController(replace(shared, gates=cast("GatedPodController", gates)), lambda: seconds[0])
    controller.start()
    assert gates.seen_to_all.wait(60)
    assert controller.is_alive()
    seconds[0] += STALLED_SECONDS
    assert not controller.is_alive()
    gates.let_go.set()
    assert controller.stop(timeout_seconds=10.0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # it is the point of the test
def test_a_leader_whose_thread_of_moves_has_died_is_not_alive_and_says_why(shared: SharedState, town: Town) -> None:
    shared = replace(shared, gates=cast("GatedPodController", DeadlyGates()))
    leadership = PolicyManager(shared, Finalizations(shared))
    assert leadership.is_alive()
    leadership.tick()
    assert eventually(lambda: not leadership.is_alive())
    leadership.stop(timeout_seconds=10.0)
    [line] = town.lines("move loop stopped")
    assert (line["level"], line["reason"]) == ("critical", "SystemExit()")
