"""How a figure of a paper is taken from two runs, on runs that can be worked out by hand."""

from __future__ import annotations

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


def test_the_makespan_counts_from_the_first_arrival_to_the_last_end() -> None:
    run = a_run_outcome(a_job_outcome("a", 90.0, arrived=30.0), a_job_outcome("b", 70.0, arrived=40.0))
    assert makespan_seconds(run) == 60.0


def test_there_is_no_makespan_while_a_job_has_not_ended() -> None:
    assert makespan_seconds(ending(a=1.0, b=None)) is None


def test_completion_times_count_from_arrival_and_their_mean_is_over_jobs_that_ended() -> None:
    assert jct_seconds(BASE, "b") == 200.0
    assert jct_mean_seconds(ending(a=100.0, b=300.0, c=None)) == 200.0
    assert jct_mean_seconds(ending(a=None)) is None


def test_two_jobs_overlap_while_three_do() -> None:
    run = a_run_outcome(overlap_seconds={0: 5.0, 1: 100.0, 2: 155.8, 3: 84.7})
    assert overlap_seconds(run, 2) == pytest.approx(240.5)
    assert overlap_seconds(run, 3) == 84.7


def test_a_reduction_is_positive_where_the_candidate_has_less() -> None:
    assert reduction(makespan_seconds)(a_pair(ending(a=200.0), ending(a=150.0))) == 25.0
    assert reduction(makespan_seconds)(a_pair(ending(a=200.0), ending(a=250.0))) == -25.0


def test_there_is_no_reduction_of_what_is_unknown_or_nothing() -> None:
    assert reduction(makespan_seconds)(a_pair(ending(a=None), ending(a=1.0))) is None
    assert reduction(makespan_seconds)(a_pair(ending(a=1.0), ending(a=None))) is None
    assert reduction(lambda run: run.load_imbalance_ratio)(a_pair(BASE, OURS)) is None


def test_a_figure_of_one_run_is_taken_from_that_run() -> None:
    pair = a_pair(ending(a=1.0), ending(a=2.0))
    assert (of_base(makespan_seconds)(pair), of_ours(makespan_seconds)(pair)) == (1.0, 2.0)


def test_jobs_are_compared_one_by_one() -> None:
    pair = a_pair(BASE, OURS)
    assert job_reductions(pair) == pytest.approx([20.0, -10.0, -25.0, 0.0])
    assert (jobs_faster(pair), jobs_slower(pair)) == (1, 2), "the fourth took as long"
    assert best_reduction(pair) == pytest.approx(20.0)
    assert worst_increase(pair) == pytest.approx(25.0)
    assert losers_mean_increase_seconds(pair) == pytest.approx((20.0 + 100.0) / 2)


def test_a_job_that_did_not_end_in_both_runs_is_in_no_comparison() -> None:
    assert job_reductions(a_pair(ending(a=100.0, b=None, c=1.0), ending(a=50.0, b=1.0, c=None))) == [50.0]


def test_without_a_loser_nothing_grew() -> None:
    pair = a_pair(ending(a=100.0), ending(a=50.0))
    assert worst_increase(pair) == 0.0
    assert losers_mean_increase_seconds(pair) is None


def test_without_a_job_that_ended_nothing_is_best_or_worst() -> None:
    pair = a_pair(ending(a=None), ending(a=None))
    assert (best_reduction(pair), worst_increase(pair)) == (None, None)


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


def test_so_many_per_cent_more_is_over_what_the_baseline_has() -> None:
    met = [a_run_outcome(*(a_job_outcome(f"j{n}", 1.0, deadline_seconds=2.0) for n in range(k))) for k in range(6)]
    assert more(deadlines_met)(a_pair(met[4], met[5])) == 25.0
    assert more(deadlines_met)(a_pair(met[0], met[5])) is None
