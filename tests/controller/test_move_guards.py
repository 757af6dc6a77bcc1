"""Placements and migrations: which may be carried out, and the reason when not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.worlds import START, FakeActuator, FakeClock, FakeMemory, FakeObserver, a_job, a_node, a_snapshot

from controller.bounds import Bounds
from controller.corrections import Patience
from controller.errors import ActuationError
from controller.growth import Measuring
from controller.model import (
    Arrival,
    ClusterSnapshot,
    Decisions,
    JobState,
    MemoryState,
    Migrate,
    Move,
    MoveOutcome,
    PassReport,
    Place,
    Resize,
)
from controller.move_guards import review_moves, without_moving
from controller.ports import Ports
from controller.reconcile import PassSettings, reconcile

AUTO = Bounds("Auto", 1, 64_000, 0.0, 100.0, 0.0)
GIB = 2**30


def world(**more: object) -> ClusterSnapshot:
    job = replace(a_job("runs", node="n1"), migratable=True, memory_request_bytes=3 * GIB)
    arrivals = (
        Arrival("new", "new", "team", START, memory_request_bytes=6 * GIB),
        Arrival("light", "light", "t", START),
    )
    snapshot = a_snapshot([replace(job, **more)], [a_node("n1"), a_node("n2")])  # type: ignore[arg-type]
    return replace(snapshot, waiting=arrivals)


def reason(move: Move, snapshot: ClusterSnapshot, bounds: Bounds = AUTO) -> str:
    allowed, withheld = review_moves([move], snapshot, bounds)
    assert allowed == ()
    return withheld[0].reason


TO_N2 = Migrate("runs", "n1", "n2", "why")


def test_a_migration_of_a_job_that_may_move_is_let_through() -> None:
    assert review_moves([TO_N2], world(), AUTO) == ((TO_N2,), ())


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


@pytest.mark.parametrize("mode", ["Observe", "Recommend"])
def test_only_mode_auto_moves_anything(mode: str) -> None:
    bounds = replace(AUTO, mode=mode)
    assert reason(Place("new", "n2", "why"), world(), bounds).startswith(f"move_paused: mode is {mode}")


def test_a_move_takes_memory_from_those_after_it_and_leaves_its_own_behind() -> None:
    first = Place("new", "n2", "takes 6 of 8 GiB")
    allowed, withheld = review_moves([first, TO_N2], world(), AUTO)
    assert allowed == (first,)
    assert withheld[0].reason == "memory_capacity: needs 3 GiB, n2 has 2 GiB left"
    assert review_moves([TO_N2, Place("new", "n1", "now it fits")], world(), AUTO)[1] == ()


def test_a_job_without_a_memory_request_fits_a_node_that_is_promised_twice() -> None:
    overfull = world(memory_request_bytes=20 * GIB)
    assert review_moves([Place("light", "n1", "why")], overfull, AUTO)[0] != ()


def test_a_job_that_leaves_is_not_resized_where_it_was() -> None:
    resizes = [Resize(uid, "n1", "limits", 1000, 500, "why") for uid in ("runs", "stays")]
    stay, withheld = without_moving(resizes, [TO_N2])
    assert [resize.job_uid for resize in stay] == ["stays"]
    assert withheld[0].reason == "moving: goes to n2"


class MovesOnce:
    """Wants one migration and one placement."""

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        resize = Resize("runs", "n1", "limits", 1000, 500, "why")
        return Decisions("moves", (resize,), {"runs": "why"}, memory, (TO_N2, Place("light", "n1", "why")))


class RefusesMigrations(FakeActuator):
    """Places, but cannot migrate."""

    def move(self, move: Move) -> MoveOutcome:
        if isinstance(move, Migrate):
            raise ActuationError("checkpoint failed")
        return super().move(move)


def test_a_pass_carries_moves_out_remembers_them_and_resizes_nothing_that_leaves() -> None:
    report, memory = one_pass(FakeActuator())
    assert [(each.move.job_uid, each.result) for each in report.moves] == [("runs", "applied"), ("light", "applied")]
    assert [each.guard for each in report.withheld] == ["moving"]
    assert (memory.jobs["runs"].moves_total, memory.jobs["runs"].moved_at_seconds) == (1, START)


def test_a_migration_that_fails_stops_no_other_move_and_counts_for_nothing() -> None:
    report, memory = one_pass(RefusesMigrations())
    assert [(each.result, each.detail) for each in report.moves] == [("failed", "checkpoint failed"), ("applied", "")]
    assert memory.jobs["runs"].moves_total == 0


def one_pass(actuator: FakeActuator) -> tuple[PassReport, MemoryState]:
    memory = FakeMemory()
    ports = Ports(FakeObserver([world()]), actuator, memory, FakeClock())
    return reconcile(
        ports, MovesOnce(), PassSettings("moves", Measuring(20.0), AUTO, Patience(20.0, 120.0, 600.0))
    ), memory.state
