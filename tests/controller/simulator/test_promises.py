"""Placement by need, holds and moves in simulated time: what they do for promises, over seeds, and how a hold ends."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import pytest
from support.instances import a_policy_run, a_served_model, a_sim_job, a_sim_node, an_instance

from slopewise.config.training_policy import Behaviour
from slopewise.config.validation import validate
from slopewise.estimators.pace import QOE_TOLERANCE_RATIO
from slopewise.reports.estimates import estimate
from slopewise.simulator.engine import run
from slopewise.simulator.scenario.scenario import Scenario
from slopewise.simulator.workload import draw
from slopewise.simulator.world.model import Instance, JobOutcome, PolicyRun, RunOutcome, TraceEvent

SEEDS = range(1, 11)

WITHOUT = {"placement": False, "moves": False}
HOLDS = Behaviour(interval_seconds=20.0, max_hold_seconds=600.0)
NO_HOLDS = Behaviour(interval_seconds=20.0, max_hold_seconds=0.0)


@cache
def uneven(kind: str) -> Scenario:
    """Two nodes of one core and one of four, on which the default scheduler puts as many jobs."""
    generate: dict[str, object] = {
        "qoe": {
            "count": 14,
            "arriveSeconds": {"uniform": [0, 300]},
            "qoe": {"requestCpuSeconds": [0.2, 2], "totalCores": 5},
        },
        "deadlines": {"count": 30, "deadlines": {"factor": [1.5, 4], "load": 1.0}},
    }
    nodes = [{"name": "small", "count": 2, "cpu": 1, "memoryGiB": 64}, {"name": "large", "cpu": 4, "memoryGiB": 64}]
    spec = {"nodes": nodes, "generate": generate[kind], "policies": ["fair"], "seeds": len(SEEDS)}
    if kind == "qoe":
        spec["durationSeconds"] = 1200
    document = {"apiVersion": "slopewise.dev/v1alpha1", "kind": "Scenario", "metadata": {"name": kind}, "spec": spec}
    return validate(Scenario, document, where=kind)


@cache
def instance(kind: str, seed: int) -> Instance:
    return draw(uneven(kind), seed)


def satisfied(job: JobOutcome) -> bool:
    if job.qoe_seconds is None or job.response_seconds is None:
        return False
    return job.response_seconds <= job.qoe_seconds * (1 + QOE_TOLERANCE_RATIO)


def in_time(job: JobOutcome) -> bool:
    return job.finished_seconds is not None and job.finished_seconds <= (job.deadline_seconds or 0.0)


def kept_ratios(kind: str, kept: Callable[[JobOutcome], bool], policy: PolicyRun) -> list[float]:
    """The part of the promises that are kept, of each seed."""
    outcomes = [run(instance(kind, seed), policy) for seed in SEEDS]
    return [statistics.fmean(kept(job) for job in outcome.jobs) for outcome in outcomes]


def least_gained(better: Sequence[float], than: Sequence[float]) -> float:
    """The lower end of the 95 % interval of the mean difference by seed."""
    low = estimate([one - other for one, other in zip(better, than, strict=True)]).low
    assert low is not None
    return low


class TestOverSeeds:
    def test_more_objectives_are_kept_with_placement_holds_and_moves_than_without_and_than_under_fair(self) -> None:
        base = a_policy_run("dqoes", behaviour=HOLDS)
        everything, without, fair = (
            kept_ratios("qoe", satisfied, each)
            for each in (
                base,
                replace(base, parameters=WITHOUT, behaviour=NO_HOLDS),
                a_policy_run("fair", behaviour=NO_HOLDS),
            )
        )
        assert least_gained(everything, without) > 0.1
        assert least_gained(everything, fair) > 0.2

    def test_moves_alone_mend_what_the_default_scheduler_has_placed(self) -> None:
        base = a_policy_run("dqoes", behaviour=NO_HOLDS, parameters={"placement": False})
        moved = kept_ratios("qoe", satisfied, base)
        without = kept_ratios("qoe", satisfied, replace(base, parameters=WITHOUT))
        assert least_gained(moved, without) > 0.1

    def test_more_deadlines_are_met_than_under_fair_and_moves_meet_more_than_none(self) -> None:
        base = a_policy_run("deadline", behaviour=NO_HOLDS)
        moved, without, fair = (
            kept_ratios("deadlines", in_time, each)
            for each in (base, replace(base, parameters=WITHOUT), a_policy_run("fair", behaviour=NO_HOLDS))
        )
        assert least_gained(moved, without) > 0.0
        assert least_gained(moved, fair) > 0.1


def held_events(outcome: RunOutcome) -> list[TraceEvent]:
    return [event for event in outcome.events if event.kind == "held"]


def placed_at(outcome: RunOutcome) -> dict[str, float]:
    return {job.name: job.stays[0].from_seconds for job in outcome.jobs}


def a_full_node(*, ends_after: float = 300.0, deadline_seconds: float | None = 3000.0) -> Instance:
    """Two jobs, of which the deadlines need all of the node, and a third one that arrives when that is known."""
    first = [
        a_sim_job(f"first-{n}", ends_after / 2, steps_planned=1000, deadline_seconds=ends_after * 1.12)
        for n in range(2)
    ]
    third = a_sim_job("third", 20.0, 100.0, steps_planned=100, deadline_seconds=deadline_seconds)
    return an_instance([*first, third], [a_sim_node("n1")])


class TestOneHold:
    @pytest.mark.parametrize("control", ["requests", "limits"])
    def test_it_waits_until_there_is_room_and_the_policy_places_it(self, control: str) -> None:
        outcome = run(a_full_node(), a_policy_run("deadline", behaviour=HOLDS, control=control), trace=True)
        [held] = held_events(outcome)
        assert (held.job, held.at_seconds) == ("third", 100.0)
        first = min(job.finished_seconds or 0.0 for job in outcome.jobs if job.name != "third")
        assert 150.0 < placed_at(outcome)["third"] < first + 25.0
        assert all(in_time(job) for job in outcome.jobs)

    def test_without_holds_it_is_placed_at_once(self) -> None:
        outcome = run(a_full_node(), a_policy_run("deadline", behaviour=NO_HOLDS), trace=True)
        assert (held_events(outcome), placed_at(outcome)["third"]) == ([], 100.0)

    def test_after_the_bound_it_is_let_in(self) -> None:
        bounded = HOLDS.model_copy(update={"max_hold_seconds": 70.0})
        outcome = run(a_full_node(ends_after=2000.0), a_policy_run("deadline", behaviour=bounded), trace=True)
        assert placed_at(outcome)["third"] == pytest.approx(170.0, abs=0.2)

    def test_its_own_deadline_bounds_it_too(self) -> None:
        """A third of the 300 s that it has."""
        soon = a_full_node(ends_after=2000.0, deadline_seconds=400.0)
        outcome = run(soon, a_policy_run("deadline", behaviour=HOLDS), trace=True)
        assert placed_at(outcome)["third"] == pytest.approx(200.0, abs=0.2)

    def test_a_job_without_a_promise_is_never_held_back(self) -> None:
        outcome = run(a_full_node(deadline_seconds=None), a_policy_run("deadline", behaviour=HOLDS), trace=True)
        assert (held_events(outcome), placed_at(outcome)["third"]) == ([], 100.0)


def test_a_model_that_its_node_cannot_serve_in_time_is_moved_once_and_stays() -> None:
    """On n1 two models need 0.6 cores each; n2 idles once its job has ended."""
    models = [a_served_model(f"m{n}", 0.3, qoe_seconds=0.5) for n in range(2)]
    first = [replace(model, arrive_seconds=1.0 + n) for n, model in enumerate(models)]
    blocks = a_sim_job("blocks", 60.0, 0.0, memory_bytes=3 * 2.0**30, migratable=False)
    large = [replace(model, memory_bytes=2.0**30) for model in first]
    nodes = [a_sim_node("n1", gib=4.0), a_sim_node("n2", gib=3.0)]
    there = an_instance([replace(blocks), *large], nodes, duration=900.0)
    outcome = run(there, a_policy_run("dqoes", behaviour=HOLDS, parameters={"placement": False}), trace=True)
    moved = [event for event in outcome.events if event.kind == "migrated"]
    assert len(moved) == 1
    assert {job.name for job in outcome.jobs if satisfied(job)} == {"m0", "m1"}
