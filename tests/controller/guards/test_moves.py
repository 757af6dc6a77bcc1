"""Placements and migrations: which may be carried out, and the reason when not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.moving import MOVING, SAVES
from support.passes import pass_over
from support.reviewing import reviewed
from support.searching import examples
from support.worlds import START, FakeActuator, FakeMemory, a_job, a_node, a_snapshot

from slopewise.errors import ActuationError
from slopewise.model import (
    Arrival,
    Bounds,
    ClusterSnapshot,
    Decision,
    Decisions,
    Job,
    JobState,
    MemoryState,
    Migrate,
    Movability,
    Move,
    MoveRecord,
    MoveUnderWay,
    Outcome,
    PassReport,
    Place,
    Resize,
    Withheld,
)
from slopewise.own_policies.drawn_worlds import worlds

AUTO = Bounds("Auto", 1, 64_000, 0.0, 100.0, 0.0)
GIB = 2**30
Reviewed = tuple[tuple[Move, ...], tuple[Withheld[Move], ...]]


def world(**more: object) -> ClusterSnapshot:
    job = a_job("runs", node="n1").altered(migratable=True, memory_request_bytes=3 * GIB)
    arrivals = (
        Arrival("new", "new", "team", START, memory_request_bytes=6 * GIB),
        Arrival("light", "light", "t", START),
    )
    snapshot = a_snapshot([job.altered(**more)], [a_node("n1"), a_node("n2")])
    return replace(snapshot, waiting=arrivals)


def review(moves: Sequence[Move], snapshot: ClusterSnapshot, bounds: Bounds = AUTO) -> Reviewed:
    return reviewed(moves, snapshot, MemoryState(), bounds)


def reason(move: Move, snapshot: ClusterSnapshot, bounds: Bounds = AUTO) -> str:
    allowed, withheld = review([move], snapshot, bounds)
    assert allowed == ()
    return withheld[0].reason


TO_N2 = Migrate("runs", "n1", "n2", "why")


@pytest.mark.parametrize(
    ("move", "more", "expected"),
    [
        (Migrate("runs", "n1", "n9", "why"), {}, "unknown_node: there is no node n9"),
        (Migrate("runs", "n1", "n1", "why"), {}, "unknown_node: it is on n1 already"),
        (TO_N2, {"migratable": False}, "may_migrate: job does not say that it may be moved"),
        (TO_N2, {"state": JobState.FINISHED}, "may_migrate: job has ended"),
        (TO_N2, {"state": JobState.CHECKPOINTING}, "may_migrate: job is checkpointing"),
        (Migrate("gone", "n1", "n2", "why"), {}, "may_migrate: job has ended"),
        (Place("new", "n1", "why"), {}, "memory_capacity: needs 6 GiB, n1 has 5 GiB left"),
    ],
)
def test_a_move_that_cannot_be_is_withheld_with_its_reason(move: Move, more: dict[str, object], expected: str) -> None:
    assert reason(move, world(**more)) == expected


def test_a_move_takes_memory_from_those_after_it_and_leaves_its_own_behind() -> None:
    first = Place("new", "n2", "takes 6 of 8 GiB")
    allowed, withheld = review([first, TO_N2], world())
    assert allowed == (first,)
    assert withheld[0].reason == "memory_capacity: needs 3 GiB, n2 has 2 GiB left"
    assert review([TO_N2, Place("new", "n1", "now it fits")], world())[1] == ()
    overfull = world(memory_request_bytes=20 * GIB)
    assert review([Place("light", "n1", "it requests none")], overfull)[0] != ()


def test_a_job_whose_move_is_under_way_is_not_resized_meanwhile() -> None:
    resizes = [Resize("runs", "n1", "limits", 1000, 500, "why", is_rollback=True)]
    for to, where in (("n2", "n2"), ("", "where it fits")):
        snapshot = replace(world(), moving=(MoveUnderWay("runs", "n1", to, START, "saving"),))
        allowed, withheld = reviewed(resizes, snapshot, MemoryState(), AUTO)
        assert (allowed, [each.reason for each in withheld]) == ((), [f"moving: goes to {where}"])


def test_an_arriving_job_is_not_placed_where_it_would_not_be_taken() -> None:
    snapshot = world()
    tainted = replace(snapshot.waiting[1], refused_nodes={"n1": "taint gpu=yes:NoSchedule"})
    snapshot = replace(snapshot, waiting=(tainted,))
    assert reason(Place("light", "n1", "why"), snapshot) == (
        "refused_node: n1 would not take it: taint gpu=yes:NoSchedule"
    )
    assert review([Place("light", "n2", "why")], snapshot)[1] == ()


class MovesOnce:
    """Wants one migration and one placement."""

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        resize = Resize("runs", "n1", "limits", 1000, 500, "why")
        return Decisions("moves", (resize,), {"runs": "why"}, memory, (TO_N2, Place("light", "n1", "why")))


class RefusesMigrations(FakeActuator):
    """Places, but cannot migrate."""

    def carry_out(self, decision: Decision) -> Outcome[Decision]:
        if isinstance(decision, Migrate):
            raise ActuationError("checkpoint failed")
        return super().carry_out(decision)


def test_a_pass_carries_moves_out_remembers_them_and_resizes_nothing_that_leaves() -> None:
    report, memory = one_pass(FakeActuator())
    assert [(each.decision.job_uid, each.result) for each in report.results.of(Place, Migrate)] == [
        ("runs", "applied"),
        ("light", "applied"),
    ]
    assert [each.guard for each in report.results.withheld_of(Resize)] == ["moving"]
    assert (memory.jobs["runs"].moves_total, memory.jobs["runs"].moved_at_seconds) == (1, START)
    assert memory.jobs["runs"].moves == (MoveRecord(START, "n1", "n2"),)
    assert [(each.stage, each.message) for each in report.results.events] == [("begun", "moves from n1 to n2: why")]


def test_a_migration_that_fails_stops_no_other_move_and_counts_for_nothing() -> None:
    report, memory = one_pass(RefusesMigrations())
    assert [(each.result, each.detail) for each in report.results.of(Place, Migrate)] == [
        ("failed", "checkpoint failed"),
        ("applied", ""),
    ]
    assert (memory.jobs["runs"].moves_total, memory.jobs["runs"].moves, report.results.events) == (0, (), ())


def one_pass(actuator: FakeActuator) -> tuple[PassReport, MemoryState]:
    memory = FakeMemory()
    return pass_over(world(), MovesOnce(), actuator, memory), memory.state


@examples(50)
@given(drawn=worlds(), data=st.data())
def test_every_move_is_let_through_or_withheld_once_and_the_pods_of_a_workload_together(
    drawn: tuple[ClusterSnapshot, MemoryState], data: st.DataObject
) -> None:
    snapshot, memory = drawn
    names = [node.name for node in snapshot.nodes] or ["gone"]
    bound = tuple(job.uid for job in snapshot.jobs)[:2]
    snapshot = replace(snapshot, moving=(), jobs=tuple(_bound_together(job, bound) for job in snapshot.jobs))
    one_node = dict.fromkeys(bound, data.draw(st.sampled_from(names))) if data.draw(st.booleans()) else {}
    moves: list[Move] = [
        Migrate(job.uid, job.node, one_node.get(job.uid) or data.draw(st.sampled_from(names)), "why", "memory")
        for job in snapshot.jobs
    ]
    moves += [Place(arrival.uid, data.draw(st.sampled_from(names)), "why") for arrival in snapshot.waiting]
    limits = replace(MOVING, min_stay_seconds=0.0, max_concurrent=5)
    allowed, withheld = reviewed(moves, snapshot, memory, replace(AUTO, moving=limits))
    decided = [*(move.job_uid for move in allowed), *(each.decision.job_uid for each in withheld)]
    assert sorted(decided) == sorted(move.job_uid for move in moves)
    targets = {move.node for move in allowed if move.job_uid in bound}
    there = {job.uid for job in snapshot.jobs if job.node in targets} | {move.job_uid for move in allowed}
    assert len(targets) <= (1 if len(bound) == 2 else 2)
    assert not targets or set(bound) <= there


def _bound_together(job: Job, uids: tuple[str, ...]) -> Job:
    """One that trains, and saves when it is signalled to end; the jobs named move whole or not at all."""
    movability = Movability("suspend", members=uids) if job.uid in uids else job.movability
    return job.altered(state=JobState.TRAINING, migratable=True, movability=movability, checkpoint=SAVES)
