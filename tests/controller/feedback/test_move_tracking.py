"""What becomes of migrations: begun, resumed, given up, or gone wrong; each reported once, and remembered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from support.moving import LONG_AGO, SAVES, a_mobile_job, bounded, to
from support.worlds import START, a_node, a_snapshot

from slopewise.feedback.move_tracking import TrackedMoves, awaited, remember, requeue_at_seconds, review, under_way
from slopewise.model import (
    MOVES_KEPT,
    Absence,
    Checkpoint,
    ClusterSnapshot,
    ContainerHealth,
    Ends,
    Job,
    JobMemory,
    JobState,
    MemoryState,
    MoveEvent,
    MoveRecord,
    MoveUnderWay,
    Outcome,
    Place,
    PolicyMemory,
)

BEGUN = MoveRecord(START, "n1", "n2", steps_before=500.0, process_started_at_seconds=LONG_AGO)
RESUMED = structs.replace(BEGUN, resumed_at_seconds=START + 4.0, resumed_on="n2", steps_lost=0.0)
LEAVING = MoveUnderWay("a", "n1", "n2", START + 0.5, "saving and ending")


def known(record: MoveRecord = BEGUN) -> MemoryState:
    return MemoryState({"a": JobMemory(decided=PolicyMemory(job_class="CC"), moves=(record,), moves_total=1)})


def seen(seconds: float, job: Job | None, *moving: MoveUnderWay) -> ClusterSnapshot:
    """What is seen so many seconds after the move was begun."""
    nodes = [a_node("n1"), a_node("n2"), a_node("n3")]
    snapshot = a_snapshot([job] if job else [], nodes, START + seconds)
    return replace(snapshot, moving=moving)


def back(node: str = "n2", **more: Any) -> Job:
    """The job with a new process."""
    new = {"process_started_at_seconds": START + 3.0, "started_at_seconds": START + 3.0, "steps_total": 500.0}
    return a_mobile_job("a", node, **{**new, **more})


def after(snapshot: ClusterSnapshot, memory: MemoryState | None = None) -> TrackedMoves:
    """A pass's review: measuring has kept the memory of the jobs that are there, and of no other."""
    before = known() if memory is None else memory
    here = {job.uid for job in snapshot.jobs}
    kept = MemoryState({uid: each for uid, each in before.jobs.items() if uid in here})
    return review(kept, before, snapshot)


def only(reviewed: TrackedMoves) -> MoveEvent:
    """The one piece of news; the memory holds the same record."""
    (event,) = reviewed.events
    assert reviewed.memory.jobs["a"].moves[-1] == event.record
    return event


# --- begun ----------------------------------------------------------------------------------------------------


def test_a_move_that_was_carried_out_is_remembered_with_what_the_job_was_before() -> None:
    snapshot = seen(0.0, a_mobile_job("a"))
    outcome = Outcome(to("n2"), "applied", "suspended")
    begun = remember(
        MemoryState({"a": JobMemory(decided=PolicyMemory(ends=Ends(START + 9.0, START, START + 20.0)), moves_total=3)}),
        [outcome],
        snapshot,
    )
    memory = begun.memory.jobs["a"]
    assert (memory.moves, memory.moves_total, memory.moved_at_seconds) == ((BEGUN,), 4, START)
    assert memory.decided.ends is None, "what was expected of its former node"
    assert begun.events == (MoveEvent("a", "begun", BEGUN, "moves from n1 to n2 (suspended): why"),)


@pytest.mark.parametrize(
    "outcome",
    [
        *(Outcome(to("n2"), result) for result in ("deferred", "infeasible", "failed")),
        Outcome(Place("new", "n2", "why"), "applied"),
    ],
)
def test_a_move_that_was_not_begun_and_a_placement_leave_no_trace(outcome: Outcome[Any]) -> None:
    memory = MemoryState({"a": JobMemory()})
    assert remember(memory, [outcome], seen(0.0, a_mobile_job("a"))) == TrackedMoves(memory)


@pytest.mark.parametrize(("count", "apart", "kept"), [(MOVES_KEPT, 1000.0, MOVES_KEPT - 1), (80, 60.0, 59)])
def test_the_last_moves_of_a_job_are_kept_and_all_of_the_last_hour(count: int, apart: float, kept: int) -> None:
    many = tuple(structs.replace(BEGUN, at_seconds=START - apart * n, failure="old") for n in range(count, 0, -1))
    memory = MemoryState({"a": JobMemory(moves=many)})
    begun = remember(memory, [Outcome(to("n2"), "applied")], seen(0.0, a_mobile_job("a")))
    assert begun.memory.jobs["a"].moves == (*many[-kept:], BEGUN)


def test_a_move_whose_controller_died_before_it_was_remembered_is_found_under_way() -> None:
    snapshot = seen(5.0, a_mobile_job("a"), LEAVING)
    found = after(snapshot, MemoryState({"a": JobMemory()})).memory.jobs["a"]
    assert found.moves == (structs.replace(BEGUN, at_seconds=LEAVING.since_seconds),)
    assert (found.moves_total, found.moved_at_seconds) == (1, LEAVING.since_seconds)


def test_a_move_under_way_is_counted_once() -> None:
    before = known()
    assert after(seen(5.0, None, LEAVING), before).memory.jobs["a"] == before.jobs["a"]
    assert after(seen(5.0, a_mobile_job("a"), LEAVING), before).memory == before


def test_a_job_that_has_gone_is_forgotten_once_no_move_of_it_counts_for_a_budget_any_more() -> None:
    assert after(seen(3599.0, None), known(RESUMED)).memory == known(RESUMED)
    assert after(seen(3600.0, None), known(RESUMED)).memory.jobs == {}
    assert after(seen(5.0, None), MemoryState({"a": JobMemory()})).memory.jobs == {}, "it never moved"


# --- resumed --------------------------------------------------------------------------------------------------


UNCOUNTED, LIFELESS = (
    known(structs.replace(BEGUN, **without))
    for without in ({"steps_before": None}, {"process_started_at_seconds": None})
)


@pytest.mark.parametrize(
    ("seconds", "job", "before", "stage", "message"),
    [
        (4.0, back(steps_total=480.0, checkpoint=Checkpoint(START - 30.0, 2.0)), known(), "resumed",
         "resumed on n2 within 4.0 s, 20 steps lost"),
        (4.0, back(steps_total=503.0), known(), "resumed", "resumed on n2 within 4.0 s, no step lost"),
        (40.0, back("n3"), known(), "resumed", "resumed on n3, not on n2 within 40.0 s, no step lost"),
        (30.0, back("n1"), known(), "resumed", "resumed on n1, not on n2 within 30.0 s, no step lost"),
        (20.0, back(state=JobState.FINISHED, steps_total=None), known(), "resumed", "resumed on n2 within 20.0 s"),
        (4.0, back(steps_total=None), UNCOUNTED, "resumed", "resumed on n2 within 4.0 s"),
        (4.0, a_mobile_job("a", "n2", process_started_at_seconds=None), LIFELESS, "resumed", "resumed on n2 within"),
        # what a trainer saves is reported by the new process
        (4.0, back(steps_total=450.0, checkpoint=replace(SAVES, on_sigterm=False)), known(), "resumed",
         "resumed on n2 within 4.0 s, 50 steps lost"),
        (5.0, a_mobile_job("a", state=JobState.FINISHED, steps_total=9_999.0), known(), "cancelled",
         "had finished on n1 before it was moved"),
        (60.0, a_mobile_job("a"), known(), "cancelled", "stays on n1: its move to n2 was given up"),
        (60.0, a_mobile_job("a", state=JobState.FAILED), known(), "failed",
         "failed when it was signalled to end on n1, and was not started again; it is not moved again"),
        (601.0, None, known(), "failed", "is not back at work 601 s after its move was begun; it is not moved again"),
    ],
)  # fmt: skip
def test_what_became_of_a_move_is_reported_once_and_remembered(
    seconds: float, job: Job | None, before: MemoryState, stage: str, message: str
) -> None:
    first = after(seen(seconds, job), before)
    event = only(first)
    assert (event.stage, event.message.startswith(message)) == (stage, True)
    assert event.warning == (stage == "failed" or "not on n2" in message or "given up" in message)
    assert after(seen(seconds + 1.0, job), first.memory).events == ()


ENDED = a_mobile_job("a", state=JobState.FAILED)


@pytest.mark.parametrize(
    ("snapshot", "before"),
    [
        (seen(2.0, None, LEAVING), known()),  # on no node meanwhile
        *((seen(4.0, each, LEAVING), known()) for each in (
            back(state=JobState.STARTING), back(steps_total=None), back(state=JobState.STARTING, steps_total=0.0),
        )),  # a new process that has not trained yet
        (seen(90.0, a_mobile_job("a", "n2")), known()),  # a pod that keeps its name: its old series is still seen
        (seen(4.0, a_mobile_job("a", "n1", process_started_at_seconds=None)), LIFELESS),
        (seen(59.0, a_mobile_job("a")), known()),
        (seen(300.0, ENDED, LEAVING), known()),  # a process that ends with failure while it is moved
        (seen(30.0, ENDED), known()),
        (replace(seen(15.0, None, LEAVING), absent=(Absence("a", "moving", "saving and ending"),)), known()),
        (seen(64.0, back(container_health=ContainerHealth(restarts_total=0))), known(RESUMED)),
    ],
)  # fmt: skip
def test_nothing_is_reported_of_what_is_to_be_expected(snapshot: ClusterSnapshot, before: MemoryState) -> None:
    assert after(snapshot, before) == TrackedMoves(before)


def test_a_trainer_that_ends_with_success_when_it_is_signalled_to_end_counts_as_done() -> None:
    done = a_mobile_job("a", state=JobState.FINISHED, steps_total=500.0)
    assert failure_of(after(seen(5.0, done, LEAVING))) == (
        "ended with success when it was signalled to end, after 500 of 10000 steps: "
        "a trainer must exit non-zero then, or it counts as done"
    )


def test_the_pause_of_a_move_is_from_its_begin_to_the_first_step_whenever_a_pass_looks() -> None:
    outcome = Outcome(to("n2"), "applied", begun_at_seconds=START + 0.5)
    begun = remember(MemoryState({"a": JobMemory()}), [outcome], seen(0.0, a_mobile_job("a"))).memory
    for looked_after_seconds in (4.0, 19.0):
        event = only(after(seen(looked_after_seconds, back(first_step_at_seconds=START + 3.1)), begun))
        assert event.message == "resumed on n2 after 2.6 s, no step lost"
        assert event.record.resumed_at_seconds == START + 3.1
        assert event.record.pause_seconds == pytest.approx(2.6)


@pytest.mark.parametrize("skewed", [START + 0.4, START - 60.0, START + 4.1])
def test_a_first_step_before_the_move_or_in_the_future_is_that_of_a_clock_that_is_wrong(skewed: float) -> None:
    begun = known(structs.replace(BEGUN, begun_at_seconds=START + 0.5))
    event = only(after(seen(4.0, back(first_step_at_seconds=skewed)), begun))
    assert (event.message, event.record.pause_seconds) == ("resumed on n2 within 3.5 s, no step lost", 3.5)


# --- given up -------------------------------------------------------------------------------------------------


def test_a_move_that_was_given_up_harms_no_job() -> None:
    record = only(after(seen(60.0, a_mobile_job("a")))).record
    assert (record.failure, record.pause_seconds) == (None, None)


def test_a_job_that_its_user_has_suspended_meanwhile_is_neither_late_nor_waited_for() -> None:
    gone = seen(15.0, None)
    suspended = replace(gone, absent=(Absence("a", "suspended", "its Job is suspended, and not by Slopewise"),))
    assert "a" in awaited(after(gone).memory, gone)

    cancelled = after(suspended)
    event = only(cancelled)
    assert (event.stage, event.warning) == ("cancelled", False)
    assert event.message == (
        "its Job is suspended, and not by Slopewise, before it was seen at work on n2; its move is over"
    )
    assert (event.record.failure, event.record.pause_seconds) == (None, None)
    assert awaited(cancelled.memory, suspended) == frozenset()
    much_later = after(replace(seen(3000.0, None), absent=suspended.absent), cancelled.memory)
    assert much_later.events == ()


def test_a_job_that_has_ended_meanwhile_is_not_waited_for_either() -> None:
    ended = replace(seen(15.0, None), absent=(Absence("a", "finished", "its Job has ended"),))
    assert only(after(ended)).stage == "cancelled"
    failed = replace(seen(15.0, None), absent=(Absence("a", "failed", "its Job has failed"),))
    assert only(after(failed)).record.failure == "its Job has failed, before it was seen at work on n2"


# --- gone wrong -----------------------------------------------------------------------------------------------


def failure_of(reviewed: TrackedMoves) -> str:
    event = only(reviewed)
    assert (event.stage, event.warning) == ("failed", True)
    assert event.message == f"{event.record.failure}; it is not moved again"
    return event.record.failure or ""


@pytest.mark.parametrize("job", [None, a_mobile_job("a"), back(state=JobState.STARTING)])
def test_a_job_that_is_not_back_after_ten_minutes_is_marked_once(job: Job | None) -> None:
    assert after(seen(600.0, job, LEAVING)).events == ()
    late = after(seen(601.0, job, LEAVING))
    assert failure_of(late) == "is not back at work 601 s after its move was begun"
    assert after(seen(602.0, job, LEAVING), late.memory).events == ()


def test_a_trainer_that_said_it_saves_and_lost_steps_is_not_moved_again() -> None:
    resumed, failed = after(seen(4.0, back(steps_total=450.0))).events
    assert resumed.message == "resumed on n2 within 4.0 s, 50 steps lost"
    assert failed.record.failure == "lost 50 steps, though it says that it saves when it is signalled to end"


@pytest.mark.parametrize(
    ("crash", "word"),
    [({"state": JobState.FAILED}, "failed"), ({"container_health": ContainerHealth(restarts_total=1)}, "restarted")],
)
def test_a_crash_soon_after_resuming_is_that_of_the_resuming(crash: dict[str, Any], word: str) -> None:
    assert failure_of(after(seen(64.0, back(**crash)), known(RESUMED))) == (
        f"crashed on resume: {word} within 60 s of resuming on n2"
    )
    assert after(seen(305.0, back(**crash)), known(RESUMED)).events == ()
    never_trained = back(**{"state": JobState.STARTING, **crash})
    assert failure_of(after(seen(64.0, never_trained))) == (
        f"crashed on resume: {word} on n2 before its first step was seen"
    )


# --- what others ask ------------------------------------------------------------------------------------------


def test_what_is_under_way_is_what_is_seen_and_what_was_begun() -> None:
    memory = MemoryState({**known().jobs, "b": JobMemory(moves=(RESUMED,)), "c": JobMemory()})
    elsewhere = MoveUnderWay("z", "n5", "", START, "starting anywhere")
    assert under_way(memory, seen(5.0, None, elsewhere)) == {"a": "n2", "z": ""}


def test_a_job_that_is_to_come_back_is_looked_for_every_scrape_for_a_minute() -> None:
    bounds = bounded().moving
    assert requeue_at_seconds(known(), seen(10.0, None), bounds) == START + 15.0
    assert requeue_at_seconds(known(), seen(60.0, None), bounds) is None
    assert requeue_at_seconds(known(RESUMED), seen(10.0, None), bounds) is None
    assert requeue_at_seconds(known(), seen(10.0, None), None) is None
