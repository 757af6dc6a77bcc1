"""How a figure of a paper is taken from two runs, on runs that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.instances import a_served_model, a_sim_node, an_instance
from support.outcomes import a_job_outcome, a_run_outcome

from replication.claims import (
    Pair,
    best_reduction,
    deadlines_met,
    jct_mean_seconds,
    jct_seconds,
    job_reductions,
    jobs_faster,
    jobs_slower,
    losers_mean_increase_seconds,
    makespan_seconds,
    more,
    of_base,
    of_ours,
    overlap_seconds,
    qoe_best_subset,
    qoe_satisfied,
    reduction,
    worst_increase,
)
from slopewise.simulator.world.model import JobOutcome, Physics, RunOutcome


def a_pair(base: RunOutcome, ours: RunOutcome) -> Pair:
    return Pair(an_instance([]), base, ours)


def ending(**ends: float | None) -> RunOutcome:
    """Jobs that arrived 10 s after the start of the run and took this long."""
    return a_run_outcome(
        *(a_job_outcome(name, None if end is None else 10 + end, arrived=10.0) for name, end in ends.items())
    )


BASE = ending(a=100.0, b=200.0, c=400.0, d=50.0)
OURS = ending(a=80.0, b=220.0, c=500.0, d=50.0)


def test_times_count_from_arrival_and_the_makespan_from_the_first_one_to_the_last_end() -> None:
    run = a_run_outcome(
        a_job_outcome("a", 90.0, arrived=30.0),
        a_job_outcome("b", 70.0, arrived=40.0),
        overlap_seconds={0: 5.0, 1: 100.0, 2: 155.8, 3: 84.7},
    )
    assert makespan_seconds(run) == 60.0
    assert [overlap_seconds(run, 2), overlap_seconds(run, 3)] == pytest.approx([240.5, 84.7])
    assert jct_seconds(BASE, "b") == 200.0
    started = ending(a=100.0, b=300.0, c=None)
    assert (makespan_seconds(started), jct_mean_seconds(started), jct_mean_seconds(ending(a=None))) == (
        None,
        200.0,
        None,
    )


MET = [a_run_outcome(*(a_job_outcome(f"j{n}", 1.0, deadline_seconds=2.0) for n in range(k))) for k in range(6)]


@pytest.mark.parametrize(
    ("figure", "base", "ours", "expected"),
    [
        (of_base(makespan_seconds), ending(a=1.0), ending(a=2.0), 1.0),
        (of_ours(makespan_seconds), ending(a=1.0), ending(a=2.0), 2.0),
        (reduction(makespan_seconds), ending(a=200.0), ending(a=150.0), 25.0),
        (reduction(makespan_seconds), ending(a=200.0), ending(a=250.0), -25.0),
        (reduction(makespan_seconds), ending(a=None), ending(a=1.0), None),
        (reduction(makespan_seconds), ending(a=1.0), ending(a=None), None),
        (reduction(lambda run: run.load_imbalance_ratio), BASE, OURS, None),
        (more(deadlines_met), MET[4], MET[5], 25.0),
        (more(deadlines_met), MET[0], MET[5], None),
        (worst_increase, ending(a=100.0), ending(a=50.0), 0.0),  # no job has lost
        (losers_mean_increase_seconds, ending(a=100.0), ending(a=50.0), None),
        (best_reduction, ending(a=None), ending(a=None), None),
        (worst_increase, ending(a=None), ending(a=None), None),
    ],
)
def test_a_figure_of_two_runs(
    figure: Callable[[Pair], float | None], base: RunOutcome, ours: RunOutcome, expected: float | None
) -> None:
    assert figure(a_pair(base, ours)) == expected


def test_jobs_are_compared_one_by_one() -> None:
    pair = a_pair(BASE, OURS)
    assert job_reductions(pair) == pytest.approx([20.0, -10.0, -25.0, 0.0])
    assert (jobs_faster(pair), jobs_slower(pair)) == (1, 2), "the fourth took as long"
    assert job_reductions(a_pair(ending(a=100.0, b=None, c=1.0), ending(a=50.0, b=1.0, c=None))) == [50.0]
    assert best_reduction(pair) == pytest.approx(20.0)
    assert worst_increase(pair) == pytest.approx(25.0)
    assert losers_mean_increase_seconds(pair) == pytest.approx((20.0 + 100.0) / 2)


def a_response(name: str, seconds: float | None, objective: float | None) -> JobOutcome:
    return a_job_outcome(name, None, response_seconds=seconds, qoe_seconds=objective)


def test_an_objective_is_met_within_a_tenth_of_it() -> None:
    run = a_run_outcome(
        a_response("met", 0.9, 1.0),
        a_response("tolerated", 1.1, 1.0),
        a_response("missed", 1.11, 1.0),
        a_response("silent", None, 1.0),
        a_response("unpromised", 0.1, None),
    )
    assert qoe_satisfied(run) == 2


def test_the_best_subset_takes_the_cheapest_objectives_until_the_cpu_is_used_up() -> None:
    """Tolerated are 1.1 s, so 0.55, 1.1, 0.66 and 0.22 core-seconds a request need 0.5, 1, 0.6 and 0.2 cores."""
    jobs = [
        a_served_model(f"s{number}", request, qoe_seconds=1.0) for number, request in enumerate((0.55, 1.1, 0.66, 0.22))
    ]
    node = a_sim_node(cpu=1.35)
    free = Pair(an_instance(jobs, [node], physics=Physics(contention_ratio=0.0)), BASE, OURS)
    assert qoe_best_subset(free) == 3  # 0.2 + 0.5 + 0.6 = 1.3
    contended = Pair(an_instance(jobs, [node], physics=Physics(contention_ratio=0.02)), BASE, OURS)
    assert qoe_best_subset(contended) == 2  # 1.3 / (1 - 3 x 0.02) = 1.38


def test_a_deadline_is_met_by_a_job_that_ends_at_it_and_missed_by_one_that_never_ends() -> None:
    run = a_run_outcome(
        a_job_outcome("at", 100.0, deadline_seconds=100.0),
        a_job_outcome("late", 100.1, deadline_seconds=100.0),
        a_job_outcome("never", None, deadline_seconds=100.0),
        a_job_outcome("unpromised", 1.0),
    )
    assert deadlines_met(run) == 1
