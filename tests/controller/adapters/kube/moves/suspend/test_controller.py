"""Jobs that are being moved, from the suspended to the pinned one: every way it can go, and every crash on it.

However it goes, the end is a Job that runs, of which never two pods lived at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.api_objects import Address, Json, Selector
from support.api_server import refusal
from support.managed_pods import PODS
from support.suspended_jobs import JOBS, NAME, UID, WISH, Frozen, Stored, Yard

from slopewise.adapters.kube.cache.parsing import parse_pod
from slopewise.adapters.kube.cache.records import MOVE
from slopewise.adapters.kube.moves.suspend.annotation import move_on
from slopewise.adapters.kube.moves.suspend.controller import PODS_ENDED_SECONDS
from slopewise.adapters.kube.moves.suspend.state_machine import ARRIVAL_SECONDS


def steps(yard: Yard) -> list[str]:
    """Of the patches of the Job, each one's step."""
    found: list[str] = []
    for patch in yard.patches():
        annotation = patch["metadata"]["annotations"][MOVE]
        move = annotation and move_on({"metadata": {**yard.job["metadata"], "annotations": {MOVE: annotation}}})
        found.append(move.step if move else "freed")
    return found


def moved(yard: Yard) -> None:
    """Moved to node-b, and pinned there."""
    yard.put_job(affinity=WISH, parallelism=3)
    yard.begin(members=[f"{UID}:{slot}" for slot in range(3)])
    yard.settle(yard.follower(), 5)
    assert (yard.running_on(), yard.suspended) == (["node-b"] * 3, False)
    assert steps(yard) == ["leaving", "pinning", "pinned"]
    assert [warning for _, warning in yard.reported] == [False, False]


def is_free(yard: Yard, affinity: Json | None = None) -> bool:
    """It runs as its owner wrote it."""
    return not yard.suspended and not yard.annotated and yard.affinity == affinity and bool(yard.running_on())


# --- the way it is meant to go ------------------------------------------------------------------------------


def test_a_pod_that_only_the_api_server_knows_of_yet_is_waited_for(yard: Yard) -> None:
    yard.put_job()
    yard.lingering = True
    yard.begin()
    yard.pods.items = lambda: ()  # type: ignore[method-assign]  # a watch that is behind

    yard.settle(yard.follower(), 5)

    assert yard.suspended


def test_a_move_that_is_over_costs_no_request_not_even_of_a_new_leader(yard: Yard) -> None:
    moved(yard)
    asked = len(yard.server.requests)

    yard.settle(yard.follower(), 100, step_seconds=2.0)

    assert len(yard.server.requests) == asked


def test_a_move_whose_image_cannot_be_pulled_is_not_under_way_for_ever(yard: Yard) -> None:
    yard.put_job()
    yard.begin()
    follower = yard.follower()
    yard.work()
    follower.tick()
    yard.work()
    raw = yard.server.get(f"{PODS}/{yard.managed().pod.name}")
    yard.server.put(PODS, {**raw, "status": {**raw["status"], "phase": "Pending"}})

    yard.settle(follower, ARRIVAL_SECONDS + 5, step_seconds=5.0)

    assert steps(yard) == ["leaving", "pinning", "pinned"]
    assert (yard.reported[-1][1], yard.mover().under_way()) == (True, ())


# --- nodes that are lost later ------------------------------------------------------------------------------


def test_a_pinned_job_whose_node_is_deleted_runs_elsewhere_within_a_minute(yard: Yard) -> None:
    moved(yard)
    yard.lingering = True  # nothing is there to end its pod

    yard.lose_node("node-b")
    follower = yard.follower()
    yard.settle(follower, PODS_ENDED_SECONDS - 5)
    waits = yard.suspended  # its pod may still write
    yard.settle(follower, 25)

    assert (waits, yard.suspended) == (True, False)
    assert yard.affinity == WISH
    assert not yard.annotated
    assert "node-a" in yard.running_on()


@pytest.mark.parametrize("nodes_are_silent", [False, True])
def test_a_node_that_is_registered_again_or_not_reported_moves_no_job(yard: Yard, nodes_are_silent: bool) -> None:
    moved(yard)
    follower = yard.follower()
    if nodes_are_silent:
        yard.nodes.silent = 61.0

    yard.lose_node("node-b")
    yard.settle(follower, 3)
    if not nodes_are_silent:
        yard.put_node("node-b")
    yard.settle(follower, 60, step_seconds=2.0)

    assert steps(yard) == ["leaving", "pinning", "pinned"]


# --- what others do meanwhile -------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["gone", "gone and still shown by the watch", "being deleted"])
def test_a_job_that_is_deleted_in_mid_move_is_reported_once_and_left_alone(yard: Yard, state: str) -> None:
    yard.put_job()
    yard.begin()
    follower = yard.follower()
    follower.tick()
    known = yard.jobs.items()
    if state == "being deleted":
        yard.change_job(lambda job: job["metadata"].update(deletionTimestamp="2026-01-01T01:00:00Z", finalizers=["x"]))
    else:
        yard.server.remove(f"{PODS}/{yard.managed().pod.name}")
        yard.server.remove(f"{JOBS}/{NAME}")
    if state == "gone and still shown by the watch":
        yard.jobs.items = lambda: known  # type: ignore[method-assign]

    yard.settle(follower, 30)

    assert len(yard.patches()) == 1
    assert yard.reported == [("it was deleted while it was being moved to node-b", True)]


def test_a_pod_of_another_namespace_that_names_the_job_as_its_owner_keeps_no_job_suspended(yard: Yard) -> None:
    yard.put_job()
    yard.begin()
    [thief] = yard.server.objects.listed(Address.of(PODS), Selector())
    thief["metadata"] |= {"namespace": "evil", "uid": "thief", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    yard.pods = Stored(yard.server, "/api/v1/pods", parse_pod)
    yard.server.put("/api/v1/namespaces/evil/pods", thief)

    yard.settle(yard.follower(), 10)

    assert yard.running_on() == ["node-b"]


class Stale(Stored[Any]):
    """A store that shows what it once saw."""

    def __init__(self, seen: Sequence[Any]) -> None:
        self._records = seen
        self.synced, self.silent = True, 0.0

    def items(self) -> Sequence[Any]:
        return self._records

    def get(self, namespace: str, name: str) -> Any:
        return next((each for each in self._records if each.name == name), None)


def test_a_store_that_missed_the_end_of_a_pod_keeps_no_job_suspended(yard: Yard) -> None:
    yard.put_job()
    yard.begin()
    yard.lingering = True
    yard.work()
    yard.pods = Stale(yard.pods.items())
    yard.lingering = False

    yard.settle(yard.follower(), 15)

    assert yard.running_on() == ["node-b"]


def test_a_node_that_only_the_store_misses_is_not_gone_and_its_pods_may_write(yard: Yard) -> None:
    yard.put_job()
    yard.lingering = True
    yard.begin()
    yard.work()
    yard.nodes = Stale([node for node in yard.nodes.items() if node.name != "node-a"])

    yard.settle(yard.follower(), PODS_ENDED_SECONDS + 30, step_seconds=2.0)

    assert yard.suspended
    assert yard.running_on() == ["node-a"]


# --- an API server that does not take it --------------------------------------------------------------------


def test_a_template_that_is_not_taken_is_given_up_and_the_job_runs_on(yard: Yard) -> None:
    yard.put_job(affinity=WISH)
    yard.begin()

    yard.settle(yard.follower(Frozen(yard.api)), 30)

    assert is_free(yard, WISH)
    assert any("its template cannot be changed" in text for text, _ in yard.reported)


def test_trouble_with_one_job_is_reported_once_and_holds_up_no_other(yard: Yard) -> None:
    yard.put_job()
    yard.begin()
    other = yard.job
    other["metadata"] |= {"name": "another", "uid": "uid-of-another"}
    other["metadata"]["annotations"] = {MOVE: other["metadata"]["annotations"][MOVE].replace(UID, "uid-of-another")}
    yard.server.put(JOBS, other)
    yard.server.fault(refusal(403, "Forbidden", "no"), method="GET", path="/jobs/another$", times=1000)

    yard.settle(yard.follower(), 10)

    assert yard.running_on() == ["node-b"]
    assert len([text for text, _ in yard.reported if "its move waits" in text]) == 1


def test_a_replica_that_does_not_lead_changes_nothing(yard: Yard) -> None:
    yard.put_job()
    yard.begin()
    yard.leads = False

    yard.settle(yard.follower(), 10)

    assert yard.suspended
    assert steps(yard) == ["leaving"]
