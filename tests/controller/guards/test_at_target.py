"""A job is stopped at its target once, for good reasons, and its owner's next process is judged by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from support.passes import pass_over
from support.worlds import START, FakeActuator, FakeMemory, a_job, a_snapshot

from slopewise.guards.at_target import RETRY_SECONDS, record, remember, stops
from slopewise.guards.context import PassContext
from slopewise.guards.review import Reviewed, review
from slopewise.model import (
    Bounds,
    ClusterSnapshot,
    Decisions,
    Job,
    JobMemory,
    JobState,
    Levels,
    MemoryState,
    Migrate,
    MoveUnderWay,
    ObjectiveMemory,
    Objectives,
    Outcome,
    OutcomeResult,
    PassReport,
    Resize,
    ResizeMemory,
    Stop,
    StopRecord,
    TargetHits,
)

AUTO = Bounds("Auto", 1, 64_000, cooldown_seconds=0, max_step_ratio=1000, min_change_ratio=0)
ASKED = Objectives(target_level=0.2, stops_at_target=True)
REACHED = JobMemory(
    levels=Levels('training_loss{stage="eval"}', first=1.0, best=0.19),
    objectives=ObjectiveMemory(targets=TargetHits(0, 2)),
)
WHY = "stopped at its target: loss 0.19 ≤ 0.2"
STOP = Stop("a", "n1", WHY)


def at_target(uid: str = "a", level: float = 0.19, asked: Objectives = ASKED, **more: Any) -> Job:
    return a_job(uid, level=level, life=START - 600, **more).altered(objectives=asked)


def reviewed(*jobs: Job, known: JobMemory = REACHED, bounds: Bounds = AUTO, at: float = START, **more: Any) -> Reviewed:
    """The stops of jobs of which the same is remembered."""
    snapshot = replace(a_snapshot(jobs, at=at), **more)
    due, memory = stops(MemoryState({job.uid: known for job in jobs}), snapshot)
    return review(due, PassContext(snapshot, memory, bounds))


def test_a_job_at_its_final_target_is_stopped_with_both_figures() -> None:
    found = reviewed(at_target())
    assert (found.allowed, found.withheld) == ((STOP,), ())


def test_where_more_is_better_the_figures_are_the_other_way_round() -> None:
    found = reviewed(
        at_target(level=0.91, asked=replace(ASKED, target_level=0.9), objective="max"),
        known=REACHED.altered(levels=REACHED.levels.altered(first=0.1)),
    )
    assert found.allowed[0].reason == "stopped at its target: evaluation 0.91 ≥ 0.9"


@pytest.mark.parametrize(
    ("job", "known"),
    [
        (at_target(asked=replace(ASKED, stops_at_target=False)), REACHED),
        (at_target(asked=replace(ASKED, target_level=None)), REACHED),
        (at_target(), REACHED.altered(objectives=REACHED.objectives.altered(targets=TargetHits(2, 1)))),
        (at_target(), REACHED.altered(objectives=REACHED.objectives.altered(targets=None))),
        (at_target(level=0.21), REACHED),
        (at_target(restarted=True), REACHED),
        (at_target(age=600.0), REACHED),
        (at_target(state=JobState.FINISHED), REACHED),
    ],
)
def test_without_a_wish_a_count_or_a_level_that_reaches_it_now_no_job_is_stopped(job: Job, known: JobMemory) -> None:
    found = reviewed(job, known=known)
    assert (found.allowed, found.withheld) == ((), ())


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"bounds": replace(AUTO, mode="Observe")}, "stop_paused: "),
        ({"bounds": replace(AUTO, mode="Canary", canary_ratio=0.0)}, "stop_canary: "),
        ({"moving": (MoveUnderWay("a", "n1", "n2", START, "saving"),)}, "stop_under_way: "),
        ({"state": JobState.CHECKPOINTING}, "stop_checkpointing: "),
        (
            {"known": REACHED.altered(levels=REACHED.levels.altered(first=0.15))},
            "reached_at_first: its first evaluation 0.15 reached the target 0.2 already, and none since was better; is",
        ),
    ],
)
def test_a_guard_withholds_a_stop_with_its_reason(more: dict[str, Any], reason: str) -> None:
    state = more.get("state", JobState.TRAINING)
    found = reviewed(at_target(state=state), **{key: each for key, each in more.items() if key != "state"})
    assert (found.allowed, [each.decision for each in found.withheld]) == ((), [STOP])
    assert found.withheld[0].reason.startswith(reason)


def test_a_job_that_was_below_its_target_when_it_was_first_seen_and_improves_is_stopped() -> None:
    assert reviewed(at_target(), known=REACHED.altered(levels=REACHED.levels.altered(first=0.195))).allowed == (STOP,)
    improved = REACHED.altered(levels=REACHED.levels.altered(first=0.15, best=0.14))
    assert reviewed(at_target(), known=improved).allowed == (STOP,)
    accuracy = at_target(level=0.3, asked=replace(ASKED, target_level=0.9))
    rises = reviewed(accuracy, known=REACHED.altered(levels=REACHED.levels.altered(first=0.1)))
    assert rises.allowed == (), "an accuracy that counts as a loss rises"


def test_a_job_that_is_signalled_to_end_is_neither_resized_nor_moved_in_the_same_pass() -> None:
    resizes = [Resize(uid, "n1", "limits", 1000, 500, "why") for uid in ("a", "b")]
    sized = ResizeMemory("a", "n1", "request", 2048, 1024, "why", is_rollback=True)
    snapshot, known = a_snapshot([at_target(), a_job("b")]), MemoryState({"a": REACHED, "b": REACHED})
    found = review([*resizes, sized, Migrate("a", "n1", "n2", "why"), STOP], PassContext(snapshot, known, AUTO))
    assert [(type(each), each.job_uid) for each in found.allowed] == [(Resize, "b"), (Stop, "a")]
    assert [(type(each.decision), each.decision.job_uid, each.guard) for each in found.withheld] == [
        (Resize, "a", "stopping"),
        (ResizeMemory, "a", "stopping"),
        (Migrate, "a", "stopping"),
    ]


def test_the_pods_of_a_workload_end_together_once_all_of_them_are_at_their_target() -> None:
    pods = [at_target("w:0"), at_target("w:1", level=0.5)]
    known = {"w:0": REACHED, "w:1": REACHED.altered(objectives=REACHED.objectives.altered(targets=TargetHits()))}
    assert stops(MemoryState(known), a_snapshot(pods))[0] == []

    snapshot = a_snapshot([pods[0], at_target("w:1")])
    due, memory = stops(MemoryState({"w:0": REACHED, "w:1": REACHED}), snapshot)
    context = PassContext(snapshot, memory, AUTO)
    assert review(due, context).allowed == (*due,)
    assert [stop.job_uid for stop in due] == ["w:0"]
    memory = remember(record(memory, due, context), [Outcome(due[0], "applied")])
    assert [stop.is_done for uid in ("w:0", "w:1") if (stop := memory.jobs[uid].stop) is not None] == [True, True]


def recorded(result: OutcomeResult | None, **more: Any) -> JobMemory:
    return REACHED.altered(stop=StopRecord(START, WHY, START, START - 600, result, **more))


@pytest.mark.parametrize(
    ("result", "later", "again"),
    [
        ("applied", 1e6, False),
        ("failed", 5.0, True),
        ("deferred", 5.0, True),
        (None, 5.0, True),
        ("infeasible", RETRY_SECONDS - 1, False),
        ("infeasible", RETRY_SECONDS, True),
    ],
)
def test_a_stop_is_made_once_and_tried_again_if_failed(result: OutcomeResult | None, later: float, again: bool) -> None:
    job = at_target(at=START + later)
    assert bool(reviewed(job, known=recorded(result), at=START + later).allowed) is again


@pytest.mark.parametrize("changed", [{"process_started_at_seconds": START + 60}, {"started_at_seconds": START + 60}])
def test_a_process_that_its_owner_starts_again_is_judged_by_hits_of_its_own(changed: dict[str, float]) -> None:
    resumed = at_target(at=START + 90).altered(**changed)
    due, memory = stops(MemoryState({"a": recorded("applied")}), a_snapshot([resumed], at=START + 90))
    assert due == []
    known = memory.jobs["a"]
    assert (known.stop, known.objectives.targets) == (None, TargetHits())

    hit_again = reviewed(
        resumed, known=known.altered(objectives=known.objectives.altered(targets=TargetHits(0, 2))), at=START + 90
    )
    assert [stop.job_uid for stop in hit_again.allowed] == ["a"]


# --- in a pass --------------------------------------------------------------------------------------------------------


@dataclass
class Keeps:
    """A policy that knows nothing of targets."""

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        return Decisions("keeps", (), {job.uid: "because" for job in snapshot.jobs}, memory)


def a_pass(actuator: FakeActuator, memory: FakeMemory, job: Job) -> PassReport:
    at = START if job.evaluation is None else job.evaluation.sampled_at_seconds
    return pass_over(a_snapshot([job], at=at), Keeps(), actuator, memory)


def test_every_policy_stops_a_job_once_and_the_record_is_stored_before_it_is_carried_out() -> None:
    actuator, memory = FakeActuator(), FakeMemory(MemoryState({"a": REACHED}))
    report = a_pass(actuator, memory, at_target())
    assert ([stop.job_uid for stop in actuator.stopped], report.by_job["a"].message) == (["a"], WHY)
    before, after = (state.jobs["a"].stop for state in (memory.saved[0], memory.saved[-1]))
    assert before is not None
    assert after is not None
    assert (before.result, after.result) == (None, "applied")

    assert a_pass(actuator, memory, at_target(at=START + 20)).results.of(Stop) == ()
    assert len(actuator.stopped) == 1
