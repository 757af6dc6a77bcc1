"""A move that cannot be carried out takes nothing from the others: the next candidate is tried in the same pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from support.moving import MOBILE, bounded, crowded, remembered, to
from support.passes import pass_over
from support.worlds import FakeActuator, FakeMemory

from slopewise.model import (
    Arrival,
    Bounds,
    ClusterSnapshot,
    Decision,
    Decisions,
    MemoryState,
    Migrate,
    Move,
    Outcome,
    OutcomeResult,
    PassReport,
    Place,
)
from slopewise.move_attempts import MAX_FAILED_ATTEMPTS

BUDGET = "a disruption budget says no: guarded needs 1 healthy pods"
ONE = bounded(max_concurrent=1)


@dataclass
class Wishes:
    """A policy that wants these moves."""

    moves: Sequence[Move]

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        return Decisions("wishes", (), {job.uid: "why" for job in snapshot.jobs}, memory, tuple(self.moves))


@dataclass
class Blocks(FakeActuator):
    """Carries out no move of some jobs."""

    blocked: Mapping[str, OutcomeResult] = field(default_factory=dict)
    maybe_begun: bool = False

    def carry_out(self, decision: Decision) -> Outcome[Decision]:
        outcome = super().carry_out(decision)
        result = self.blocked.get(decision.job_uid)
        return outcome if result is None else Outcome(decision, result, BUDGET, maybe_begun=self.maybe_begun)


def a_pass(
    moves: Sequence[Move], actuator: FakeActuator, snapshot: ClusterSnapshot, bounds: Bounds = ONE
) -> PassReport:
    memory = FakeMemory(remembered(*(job.uid for job in snapshot.jobs)))
    return pass_over(snapshot, Wishes(moves), actuator, memory, bounds)


def results(report: PassReport) -> list[tuple[str, str]]:
    return [(each.decision.job_uid, each.result) for each in report.results.of(Place, Migrate)]


@pytest.mark.parametrize("result", ["deferred", "infeasible", "failed"])
def test_a_candidate_that_cannot_be_carried_out_takes_no_slot_and_the_next_one_is_moved(result: OutcomeResult) -> None:
    actuator = Blocks(blocked={"a": result})
    report = a_pass([to("n2", uid) for uid in "abc"], actuator, crowded(*"abc"))
    assert results(report) == [("a", result), ("b", "applied")]
    assert [(each.decision.job_uid, each.reason) for each in report.results.withheld_of(Place, Migrate)] == [
        ("c", "concurrency: 1 under way, bound 1")
    ]


def test_a_move_of_which_it_is_not_known_whether_it_was_begun_keeps_its_slot() -> None:
    actuator = Blocks(blocked={"a": "failed"}, maybe_begun=True)
    report = a_pass([to("n2", uid) for uid in "ab"], actuator, crowded(*"ab"))
    assert results(report) == [("a", "failed")]
    assert report.results.withheld_of(Place, Migrate)[0].reason == "concurrency: 1 under way, bound 1"


def test_as_many_are_tried_in_vain_in_one_pass_and_the_reason_of_the_others_says_so() -> None:
    uids = [f"job-{number}" for number in range(MAX_FAILED_ATTEMPTS + 2)]
    actuator = Blocks(blocked=dict.fromkeys(uids, "deferred"))
    report = a_pass([to("n2", uid) for uid in uids], actuator, crowded(*uids))
    assert len(report.results.of(Place, Migrate)) == MAX_FAILED_ATTEMPTS
    assert {each.reason for each in report.results.withheld_of(Place, Migrate)} == {
        f"attempts: {MAX_FAILED_ATTEMPTS} moves of this pass could not be carried out; its turn comes in the next pass"
    }


def test_the_pods_of_a_workload_that_cannot_move_are_asked_about_once() -> None:
    gang = replace(MOBILE, members=("w:0", "w:1"))
    snapshot = crowded("w:0", "w:1", "a")
    jobs = [job.altered(movability=gang) if job.uid in gang.members else job for job in snapshot.jobs]
    actuator = Blocks(blocked={"w:0": "deferred"})
    moves = [to("n2", uid) for uid in ("w:0", "w:1", "a")]
    report = a_pass(moves, actuator, replace(snapshot, jobs=tuple(jobs)))
    assert [move.job_uid for move in actuator.moved] == ["w:0", "a"]
    assert results(report) == [("w:0", "deferred"), ("w:1", "deferred"), ("a", "applied")]
    assert report.results.of(Place, Migrate)[1].detail == BUDGET


def test_what_a_move_would_have_gained_does_not_count_for_those_after_it_when_it_is_not_made() -> None:
    # n2 has one core: the second job that goes there gains nothing, unless the first one stays.
    snapshot = crowded("a", "b", "c")
    actuator = Blocks(blocked={"a": "deferred"})
    report = a_pass([to("n2", "a"), to("n2", "b")], actuator, snapshot, bounded(max_concurrent=9))
    assert results(report) == [("a", "deferred"), ("b", "applied")]


def test_memory_that_a_placement_does_not_take_is_there_for_the_next_one() -> None:
    gib = 2**30
    waiting = tuple(Arrival(uid, uid, "team", 0.0, memory_request_bytes=6 * gib) for uid in ("new", "newer"))
    snapshot = replace(crowded("a"), waiting=waiting)
    moves = [Place("new", "n2", "why"), Place("newer", "n2", "why")]
    report = a_pass(moves, Blocks(blocked={"new": "infeasible"}), snapshot)
    assert results(report) == [("new", "infeasible"), ("newer", "applied")]


def test_a_job_whose_last_move_could_not_be_begun_is_not_asked_for_again_meanwhile() -> None:
    blocked = replace(MOBILE, backoff_reason=f"until 12:05:00 UTC: {BUDGET}")
    snapshot = crowded("a", "b")
    jobs = (snapshot.jobs[0].altered(movability=blocked), snapshot.jobs[1])
    actuator = FakeActuator()
    report = a_pass([to("n2", "a"), to("n2", "b")], actuator, replace(snapshot, jobs=jobs))
    assert results(report) == [("b", "applied")]
    assert report.results.withheld_of(Place, Migrate)[0].reason == f"move_backoff: until 12:05:00 UTC: {BUDGET}"
    assert [move.job_uid for move in actuator.moved] == ["b"]
