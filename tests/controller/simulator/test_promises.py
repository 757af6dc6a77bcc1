"""Placement by need, holds and moves in simulated time: what they do for promises, over seeds, and how a hold ends."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import pytest
from support.instances import a_policy_run, a_served_model, a_sim_job, a_sim_node, an_instance
from support.scenarios import a_scenario

from slopewise.config.training_policy import Behaviour
from slopewise.estimators.pace import QOE_TOLERANCE_RATIO
from slopewise.reports.estimates import estimate
from slopewise.simulator.engine import run
from slopewise.simulator.scenario.scenario import Scenario
from slopewise.simulator.workload import draw
from slopewise.simulator.world.model import Instance, JobOutcome, PolicyRun

SEEDS = range(1, 11)

WITHOUT = {"placement": False, "moves": False}
EVERY_20_S = Behaviour(interval_seconds=20.0)


@cache
def uneven(kind: str) -> Scenario:
    """Two nodes of one core and one of four, on which the default scheduler puts as many jobs."""
    qoe = {"count": 14, "arriveSeconds": {"uniform": [0, 300]}, "qoe": {"requestCpuSeconds": [0.2, 2], "totalCores": 5}}
    deadlines = {"count": 30, "deadlines": {"factor": [1.5, 4], "load": 1.0}}
    nodes = [{"name": "small", "count": 2, "cpu": 1, "memoryGiB": 64}, {"name": "large", "cpu": 4, "memoryGiB": 64}]
    of_kind = {"generate": qoe, "durationSeconds": 1200} if kind == "qoe" else {"generate": deadlines}
    return a_scenario(nodes=nodes, **of_kind)


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


@pytest.mark.long
class TestOverSeeds:
    def test_more_objectives_are_kept_with_placement_holds_and_moves_than_without_and_than_under_fair(self) -> None:
        base = a_policy_run("dqoes", behaviour=EVERY_20_S)
        everything, without, fair = (
            kept_ratios("qoe", satisfied, each)
            for each in (
                base,
                replace(base, parameters=WITHOUT, behaviour=EVERY_20_S),
                a_policy_run("fair", behaviour=EVERY_20_S),
            )
        )
        assert least_gained(everything, without) > 0.1
        assert least_gained(everything, fair) > 0.2

    def test_more_deadlines_are_met_than_under_fair_and_moves_meet_more_than_none(self) -> None:
        base = a_policy_run("deadline", behaviour=EVERY_20_S)
        moved, without, fair = (
            kept_ratios("deadlines", in_time, each)
            for each in (base, replace(base, parameters=WITHOUT), a_policy_run("fair", behaviour=EVERY_20_S))
        )
        assert least_gained(moved, without) > 0.0
        assert least_gained(moved, fair) > 0.1


def test_a_model_that_its_node_cannot_serve_in_time_is_moved_once_and_stays() -> None:
    """On n1 two models need 0.6 cores each; n2 idles once its job has ended."""
    models = [a_served_model(f"m{n}", 0.3, qoe_seconds=0.5) for n in range(2)]
    first = [replace(model, arrive_seconds=1.0 + n) for n, model in enumerate(models)]
    blocks = a_sim_job("blocks", 60.0, 0.0, memory_bytes=3 * 2.0**30, migratable=False)
    large = [replace(model, memory_bytes=2.0**30) for model in first]
    nodes = [a_sim_node("n1", gib=4.0), a_sim_node("n2", gib=3.0)]
    there = an_instance([replace(blocks), *large], nodes, duration=900.0)
    outcome = run(there, a_policy_run("dqoes", behaviour=EVERY_20_S, parameters={"placement": False}), trace=True)
    moved = [event for event in outcome.events if event.kind == "migrated"]
    assert len(moved) == 1
    assert {job.name for job in outcome.jobs if satisfied(job)} == {"m0", "m1"}
