"""Corrections: what a change did to a job, what waits too long, and how both are reported and remembered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from support.passes import pass_over
from support.worlds import START, FakeActuator, FakeMemory, a_job, a_node, a_snapshot

from slopewise.feedback.rollback import RollbackReview, RollbackSettings, regressed, review, watches
from slopewise.model import (
    Bounds,
    Change,
    ClusterSnapshot,
    ContainerHealth,
    CpuAllocation,
    Decisions,
    Growth,
    Job,
    JobMemory,
    JobState,
    Levels,
    MemoryState,
    MissingEvaluation,
    MoveRecord,
    OutcomeResult,
    Pace,
    PassReport,
    PendingResize,
    Resize,
)

PATIENCE = RollbackSettings(interval_seconds=60.0, deferred_deadline_seconds=120.0, backoff_seconds=600.0)
CHANGED_AT = START - 60
HEALTHY = ContainerHealth(0, None, 1000.0, 100.0)
LOWERED = Change(CHANGED_AT, "limits", 1000, 500, HEALTHY)
ORIGINAL = CpuAllocation(1000, 250)
RESTARTED = structs.replace(HEALTHY, restarts_total=1)
FAILED = a_job("j", limit=500, state=JobState.FAILED)


def changed(change: Change | None = LOWERED, **more: object) -> JobMemory:
    return JobMemory(levels=Levels(series="s"), original=ORIGINAL, change=change, **more)  # type: ignore[arg-type]


def reviewed(
    container_health: ContainerHealth | None = None,
    known: JobMemory | None = None,
    *,
    limit: int = 500,
    wishes: tuple[Resize, ...] = (),
    job: Job | None = None,
    at: float = START,
    settings: RollbackSettings = PATIENCE,
) -> RollbackReview:
    """What becomes of the wishes for job `j`, which has `limit` since a minute."""
    job = job or a_job("j", limit=limit).altered(container_health=container_health)
    memory = MemoryState({"j": known or changed()})
    decisions = Decisions("p", wishes, {"j": "because"}, memory)
    return review(decisions, a_snapshot([job], [a_node(cpu_cores=4.0)], at=at), settings)


def reason(verdict: RollbackReview) -> str:
    [resize] = verdict.decisions.resizes
    assert (resize.to_millicores, resize.is_rollback) == (1000, True)
    return resize.reason


def untouched(verdict: RollbackReview) -> bool:
    return verdict.decisions.resizes == () and verdict.decisions.memory.jobs["j"].backoff.until_seconds is None


class TestScrapesThatTimeOut:
    """The pass sees a job that answers no scrape in time, as on one machine: without the container's health."""

    SLOW = MissingEvaluation("ScrapeTimesOut", "port 1 does not answer in time")
    STEPS = structs.replace(LOWERED, from_millicores=30, to_millicores=20)

    def job(self, limit: int, missing: MissingEvaluation = SLOW) -> Job:
        return a_job("j", limit=limit, level=None).altered(missing_evaluation=missing)

    def test_a_lowered_job_gets_its_original_cpu_back_and_is_left_alone_for_a_while(self) -> None:
        wishes = (Resize("j", "n1", "limits", 20, 10, "waits"),)
        verdict = reviewed(known=changed(self.STEPS), job=self.job(20), wishes=wishes)
        because = "its scrapes time out with 20m of its original 1000m"
        assert reason(verdict) == verdict.decisions.reasons["j"] == f"rolls back: {because}"
        known = verdict.decisions.memory.jobs["j"]
        assert (known.backoff.until_seconds, known.backoff.reason) == (START + 600, because)

    def test_one_long_after_its_last_change_too(self) -> None:
        assert reason(reviewed(known=changed(self.STEPS), job=self.job(20), at=START + 3600))

    @pytest.mark.parametrize(
        ("limit", "missing"), [(1000, SLOW), (20, MissingEvaluation("ScrapeFails", "port 1 refuses"))]
    )
    def test_another_cause_or_its_original_cpu_changes_nothing(self, limit: int, missing: MissingEvaluation) -> None:
        assert untouched(reviewed(known=changed(self.STEPS), job=self.job(limit, missing)))


class TestHarm:
    @pytest.mark.parametrize(
        ("container_health", "what"),
        [
            (structs.replace(HEALTHY, oom_killed_at_seconds=START - 30, restarts_total=1), "OOM-killed"),
            (RESTARTED, "restarted"),
        ],
    )
    def test_a_job_ended_after_a_change_gets_its_cpu_back(self, container_health: ContainerHealth, what: str) -> None:
        verdict = reviewed(container_health)
        assert reason(verdict) == f"rolls back: {what} after its CPU went from 1000m to 500m"
        known = verdict.decisions.memory.jobs["j"]
        assert (known.backoff.until_seconds, known.backoff.reason) == (
            START + 600,
            f"{what} after its CPU went from 1000m to 500m",
        )
        assert verdict.decisions.reasons["j"] == reason(verdict)

    def test_the_policys_wish_for_a_harmed_job_is_not_obeyed_and_those_for_others_are(self) -> None:
        wishes = tuple(Resize(uid, "n1", "limits", 500, 250, "wish") for uid in ("j", "other"))
        resizes = reviewed(RESTARTED, wishes=wishes).decisions.resizes
        assert [(each.job_uid, each.to_millicores) for each in resizes] == [("other", 250), ("j", 1000)]

    def test_only_what_is_new_since_the_change_counts_whatever_the_nodes_clock_says(self) -> None:
        before = ContainerHealth(3, START + 5000, 1000.0, 100.0)  # killed long ago, by a clock that is ahead
        assert untouched(reviewed(before, changed(structs.replace(LOWERED, container_health=before))))
        again = structs.replace(before, oom_killed_at_seconds=START - 90_000)
        assert reason(reviewed(again, changed(structs.replace(LOWERED, container_health=before)))).startswith(
            "rolls back: OOM-killed"
        )

    @pytest.mark.parametrize(
        ("health", "known", "more"),
        [
            (RESTARTED, changed(None), {}),
            (RESTARTED, changed(structs.replace(LOWERED, is_rollback=True)), {}),
            (RESTARTED, changed(structs.replace(LOWERED, at_seconds=START - 200)), {}),
            (RESTARTED, changed(), {"limit": 2000}),
            (
                ContainerHealth(0, None),
                changed(structs.replace(LOWERED, container_health=ContainerHealth(3, START - 900))),
                {},
            ),
            (None, changed(), {}),
            (None, changed(), {"job": FAILED.altered(container_health=RESTARTED)}),
        ],
        ids=[
            "no change", "it gave back", "more than three intervals ago", "not in effect any more", "another pod",
            "no health", "it has ended",
        ],
    )  # fmt: skip
    def test_a_job_whose_last_change_cannot_have_done_it_is_left_as_it_is(
        self, health: ContainerHealth | None, known: JobMemory, more: dict[str, Any]
    ) -> None:
        assert untouched(reviewed(health, known, **more))

    def test_a_pod_that_crashes_after_a_move_was_not_ended_by_a_change_before_it(self) -> None:
        raised = structs.replace(LOWERED, from_millicores=500, to_millicores=1000)
        moved = MoveRecord(START - 50, "n0", "n1")
        assert not untouched(reviewed(RESTARTED, changed(raised), limit=1000))
        assert untouched(reviewed(RESTARTED, changed(raised, moves=(moved,)), limit=1000))

    def test_a_change_that_its_kubelet_has_not_carried_out_did_nothing(self) -> None:
        job = a_job("j", limit=500).altered(container_health=RESTARTED)
        assert untouched(reviewed(job=job.altered(actual=CpuAllocation(1000, 1000))))
        assert not untouched(reviewed(job=job.altered(actual=job.allocation)))

    def test_a_verdict_stands_until_the_resources_are_back(self) -> None:
        regressed = changed(structs.replace(LOWERED, regression="OOM-killed"))
        later = reviewed(HEALTHY, regressed, at=START + 3600)
        assert reason(later) == "rolls back: OOM-killed"
        assert later.decisions.memory.jobs["j"].backoff.until_seconds == START + 3600 + 600

    @pytest.mark.parametrize("limit", [1000, 4000])
    def test_a_verdict_ends_when_its_cpu_is_neither_before_nor_after_the_change_any_more(self, limit: int) -> None:
        """Somebody else gave it back, or its pod was replaced while a freeze held the rollback back."""
        verdict = reviewed(HEALTHY, changed(structs.replace(LOWERED, regression="OOM-killed")), limit=limit)
        assert verdict.decisions.resizes == ()
        assert verdict.decisions.memory.jobs["j"].change is None
        assert verdict.decisions.memory.jobs["j"].backoff.reason == "OOM-killed"


class TestThrottling:
    BEFORE = Pace(CHANGED_AT, 1.0, 2.0)

    def known(self, seconds: float, cores: float, began_at: float = CHANGED_AT + 20) -> JobMemory:
        """2 CPU-seconds a step before; now what is given, in an interval that began clearly after the change."""
        since = Pace(START, seconds, cores)
        return changed(
            structs.replace(LOWERED, pace=self.BEFORE), paces=(structs.replace(self.BEFORE, at_seconds=began_at), since)
        )

    def throttled(self, ratio: float, periods: float = 600.0) -> ContainerHealth:
        return ContainerHealth(0, None, 1000.0 + periods, 100.0 + ratio * periods)

    def test_throttling_that_makes_each_step_cost_more_is_harm(self) -> None:
        verdict = reviewed(self.throttled(0.9), self.known(6.0, 0.5))
        expected = "throttled in 90% of the time and 1.5 times the CPU a step after its CPU went from 1000m to 500m"
        assert reason(verdict) == f"rolls back: {expected}"

    @pytest.mark.parametrize(
        ("health", "seconds"),
        [
            (ContainerHealth(0, None, 1600.0, 640.0), 5.0),
            (ContainerHealth(0, None, 1600.0, 400.0), 6.0),
            (ContainerHealth(0, None, 1050.0, 145.0), 6.0),
            (ContainerHealth(0, None, 10.0, 9.0), 6.0),
            (ContainerHealth(0, None), 6.0),
        ],
        ids=["steps cost 1.25 times", "half of the periods", "5 s only", "counters began again", "no counters"],
    )
    def test_a_limit_that_only_slows_a_job_does_no_harm(self, health: ContainerHealth, seconds: float) -> None:
        assert untouched(reviewed(health, self.known(seconds, 0.5)))

    def test_a_pace_whose_cpu_may_be_of_the_time_before_the_change_says_nothing(self) -> None:
        assert untouched(reviewed(self.throttled(0.9), self.known(6.0, 0.5, began_at=CHANGED_AT)))
        assert reason(reviewed(self.throttled(0.9), self.known(6.0, 0.5, began_at=CHANGED_AT + 19)))

    def test_a_step_that_looked_cheap_just_before_the_change_is_not_what_it_cost(self) -> None:
        """Its CPU had been raised: 2 CPU-seconds a step, then 1.2 by a count that lagged, and 2.2 is none."""
        known = self.known(4.4, 0.5)
        cheap = structs.replace(self.BEFORE, cores=1.2)
        assert known.change is not None
        seen = structs.replace(
            known, change=structs.replace(known.change, pace=cheap), paces=(self.BEFORE, cheap, *known.paces)
        )
        assert untouched(reviewed(self.throttled(0.9), seen))


def growth(efficiency: float | None, at: float = START, change_per_second: float = 0.002) -> Growth:
    known = {} if efficiency is None else {"cpu": efficiency}
    return Growth(at, 60.0, change_per_second, 0.5, known)


class TestGrowth:
    def known(
        self, now: Growth, before: Growth | None = None, earlier: Growth | None = None, to: int = 500
    ) -> JobMemory:
        change = structs.replace(
            LOWERED,
            from_millicores=1000,
            to_millicores=to,
            growth=before or growth(0.06, CHANGED_AT),
            previous_growth=earlier or growth(0.08, CHANGED_AT - 60),
        )
        return changed(change, growth=now)

    def test_growth_per_cpu_below_half_of_what_its_own_decay_gives_is_harm(self) -> None:
        said = reason(reviewed(HEALTHY, self.known(growth(0.02))))
        assert said.startswith("rolls back: growth per CPU 0.02/s, expected 0.045/s,")
        assert untouched(reviewed(HEALTHY, self.known(growth(0.03))))

    @pytest.mark.parametrize(("to", "judged"), [(750, True), (760, False), (2000, False)])
    def test_only_a_cut_by_a_quarter_is_judged_by_growth(self, to: int, judged: bool) -> None:
        assert untouched(reviewed(HEALTHY, self.known(growth(0.0), to=to), limit=to)) is not judged

    def test_a_job_whose_growth_rose_before_is_expected_to_keep_it_and_not_to_rise_on(self) -> None:
        rising = growth(0.01, CHANGED_AT - 60)
        assert untouched(reviewed(HEALTHY, self.known(growth(0.031), earlier=rising)))
        assert "expected 0.06/s" in reason(reviewed(HEALTHY, self.known(growth(0.029), earlier=rising)))

    @pytest.mark.parametrize(
        "known",
        [
            lambda t: t.known(growth(0.0), before=growth(0.06, CHANGED_AT, change_per_second=0.0008)),
            lambda t: t.known(growth(0.0, at=START - 30)),
            lambda t: t.known(growth(None)),
            lambda t: t.known(growth(0.0), earlier=growth(None)),
            lambda t: t.known(growth(0.0), earlier=growth(0.0)),
            lambda t: structs.replace(t.known(growth(0.0)), growth=None),
        ],
        ids=["4.8 % before", "half the interval before", "idle now", "idle then", "flat before", "nothing since"],
    )
    def test_what_is_not_certain_is_no_harm(self, known: Callable[[TestGrowth], JobMemory]) -> None:
        assert untouched(reviewed(HEALTHY, known(self)))

    def test_a_wait_under_a_policy_that_serves_jobs_in_turns_is_judged_by_kills_and_restarts_alone(self) -> None:
        in_turns = replace(PATIENCE, judges_cuts=False)
        known = self.known(growth(0.0), to=9)
        assert untouched(reviewed(HEALTHY, known, limit=9, settings=in_turns))
        restarted = RESTARTED
        assert "restarted" in reason(reviewed(restarted, known, limit=9, settings=in_turns))


def waiting(result: OutcomeResult = "deferred", *, desired: CpuAllocation | None = None) -> Job:
    """Job `j` wishes for 1000m with a request of 800m, and has 500m with one of 250m."""
    job = a_job("j").altered(allocation=desired or CpuAllocation(1000, 800))
    pending = PendingResize(result, START - 9000, "no room on n1", CpuAllocation(500, 250))
    return job.altered(pending=pending)


RAISED = Change(START - 30, "limits", 500, 1000, reported="deferred")


class TestWaiting:
    def test_what_the_node_made_of_a_change_is_reported_once_and_again_when_it_becomes_something_else(self) -> None:
        verdict = reviewed(job=waiting(), known=changed(structs.replace(RAISED, reported=None)))
        [late] = verdict.late
        assert (late.result, late.detail, late.decision.reason) == ("deferred", "no room on n1", "accepted 30 s ago")
        assert (late.decision.from_millicores, late.decision.to_millicores) == (500, 1000)
        assert verdict.decisions.resizes == ()
        assert reviewed(job=waiting(), known=verdict.decisions.memory.jobs["j"]).late == ()
        impossible = reviewed(job=waiting("infeasible"), known=changed(RAISED))
        assert [each.result for each in impossible.late] == ["infeasible"]
        assert impossible.decisions.resizes[0].reason == "cancels: a change to 1000m cannot be: no room on n1"
        known = impossible.decisions.memory.jobs["j"]
        assert known.backoff.until_seconds == START + 600
        assert not regressed(known, START), "it was cancelled"

    @pytest.mark.parametrize(("ago", "taken_back"), [(119, False), (121, True)])
    def test_a_wish_is_taken_back_after_its_deadline_by_our_own_clock(self, ago: float, taken_back: bool) -> None:
        verdict = reviewed(job=waiting(), known=changed(structs.replace(RAISED, at_seconds=START - ago)))
        assert bool(verdict.decisions.resizes) is taken_back

    def test_what_is_taken_back_is_what_is_in_effect_and_the_job_is_left_alone(self) -> None:
        verdict = reviewed(job=waiting(), known=changed(structs.replace(RAISED, at_seconds=START - 130)))
        why = "a change to 1000m waited 130 s: no room on n1"
        assert verdict.decisions.resizes == (
            Resize("j", "n1", "limits", 1000, 500, f"cancels: {why}", is_rollback=True),
        )
        known = verdict.decisions.memory.jobs["j"]
        assert (known.backoff.until_seconds, known.backoff.reason) == (START + 600, why)

    @pytest.mark.parametrize(
        ("desired", "control", "to"),
        [(CpuAllocation(1000, 800), "limits", 500), (CpuAllocation(500, 800), "requests", 250)],
    )
    def test_a_forgotten_wish_is_taken_back_where_it_waits(self, desired: CpuAllocation, control: str, to: int) -> None:
        [resize] = reviewed(job=waiting(desired=desired), known=changed(None)).decisions.resizes
        assert (resize.control, resize.to_millicores) == (control, to)

    def test_a_wish_that_is_not_ours_is_left_alone(self) -> None:
        verdict = reviewed(job=waiting("infeasible"), known=JobMemory(levels=Levels(series="s")))
        assert (verdict.late, verdict.decisions.resizes) == ((), ())
        other_side = waiting("infeasible", desired=CpuAllocation(500, 800))
        assert reviewed(job=other_side, known=changed(RAISED)).decisions.resizes == ()


def test_what_is_still_to_be_judged_is_looked_at_soon() -> None:
    def watched(job: Job, change: Change | None = None) -> bool:
        return watches(MemoryState({"j": changed(change)}), a_snapshot([job]), PATIENCE)

    seen = a_job("j").altered(container_health=HEALTHY)
    assert watched(seen, LOWERED)
    assert watched(waiting())
    assert not watched(seen, structs.replace(LOWERED, at_seconds=START - 181))
    assert not watched(seen)
    assert not watched(a_job("j"), LOWERED)


class Wants:
    """A policy that wants job `j` at 500m."""

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        now = snapshot.jobs[0].allocation.limit_millicores or 0
        resizes = () if now == 500 else (Resize("j", "n1", "limits", now, 500, "wanted"),)
        return Decisions("wants", resizes, {"j": "because"}, memory)


def a_pass(
    at: float, limit: int, container_health: ContainerHealth, memory: FakeMemory, actuator: FakeActuator
) -> PassReport:
    job = a_job("j", limit=limit, at=at).altered(container_health=container_health)
    bounds = Bounds("Auto", 1, 64_000, cooldown_seconds=120, max_step_ratio=4, min_change_ratio=0)
    snapshot = a_snapshot([job], [a_node(cpu_cores=4.0)], at=at)
    return pass_over(snapshot, Wants(), actuator, memory, bounds, interval_seconds=60.0)


def test_passes_harm_a_job_give_its_resources_back_once_and_leave_it_alone() -> None:
    """It counts as regressed from the verdict over its rollback to the end of the back-off."""
    memory, actuator = FakeMemory(), FakeActuator()

    def passes(after: float, limit: int, health: ContainerHealth, by: FakeActuator = actuator) -> PassReport:
        return a_pass(START + after, limit, health, memory, by)

    def counts(after: float) -> bool:
        return regressed(memory.state.jobs["j"], START + after)

    passes(0, 1000, HEALTHY)
    change = memory.state.jobs["j"].change
    assert change is not None
    assert (change.from_millicores, change.to_millicores, change.container_health) == (1000, 500, HEALTHY)
    assert not counts(0)

    refused = passes(20, 500, RESTARTED, FakeActuator(refuses=frozenset({"j"})))
    assert [each.result for each in refused.results.of(Resize)] == ["failed"]
    assert counts(20)

    back = passes(40, 500, RESTARTED).results.of(Resize)
    assert [(each.decision.to_millicores, each.decision.is_rollback) for each in back] == [(1000, True)]

    report = passes(60, 1000, RESTARTED)
    assert report.results.of(Resize) == ()
    assert [each.guard for each in report.results.withheld_of(Resize)] == ["backoff"]
    assert report.requeue_at_seconds == START + 60 + 60
    assert (counts(60), counts(40 + 600)) == (True, False)

    report = passes(40 + 600, 1000, RESTARTED)
    assert [each.decision.to_millicores for each in report.results.of(Resize)] == [500]
    assert not counts(40 + 600)


def test_a_pass_shows_what_became_of_an_earlier_change_beside_its_own_outcomes() -> None:
    memory = FakeMemory(MemoryState({"j": changed(structs.replace(RAISED, reported=None))}))
    report = pass_over(a_snapshot([waiting()]), Wants(), memory=memory, interval_seconds=60.0)
    assert [(each.result, each.decision.to_millicores) for each in report.results.of(Resize)] == [
        ("deferred", 1000),
        ("applied", 500),
    ]
