"""Figures of winners, moves, CPU and targets, on runs that can be worked out by hand."""

from __future__ import annotations

import pytest
from support.instances import a_served_model, a_sim_job, a_sim_node, an_instance
from support.outcomes import a_job_outcome, a_run_outcome

from replication.claims import Pair
from replication.figures import (
    allocated_cpu_used_percent,
    best_target_reduction,
    cpu_jitter_percent,
    first_move_seconds,
    idle_received_percent,
    most_on_a_node,
    moves_of,
    of_jobs,
    rebalanced_to_idle,
    time_to_target_seconds,
    winners_mean_reduction,
    winners_mean_reduction_seconds,
    within_an_even_share,
)
from slopewise.simulator.world.model import RunOutcome, Stay


def a_pair(base: RunOutcome, ours: RunOutcome) -> Pair:
    return Pair(an_instance([]), base, ours)


def ending(**ends: float | None) -> RunOutcome:
    return a_run_outcome(*(a_job_outcome(name, end) for name, end in ends.items()))


def test_winners_are_averaged_without_the_losers_and_without_jobs_that_ended_once() -> None:
    pair = a_pair(ending(a=100.0, b=200.0, c=50.0, d=None), ending(a=80.0, b=100.0, c=60.0, d=1.0))
    assert winners_mean_reduction_seconds(pair) == pytest.approx((20 + 100) / 2)
    assert winners_mean_reduction(pair) == pytest.approx((20 + 50) / 2)
    none = a_pair(ending(a=100.0), ending(a=100.0))
    assert (winners_mean_reduction_seconds(none), winners_mean_reduction(none)) == (None, None)


MOVED = a_run_outcome(
    a_job_outcome("first", 900.0, arrived=10.0, stays=(Stay("w4", 10.0, 900.0, "placed"),)),
    a_job_outcome(
        "slow",
        1200.0,
        arrived=20.0,
        stays=(
            Stay("w4", 20.0, 155.0, "placed"),
            Stay("w2", 155.0, 910.0, "migrated"),
            Stay("w4", 910.0, 1200.0, "rebalanced"),
        ),
    ),
    a_job_outcome(
        "other",
        1300.0,
        stays=(Stay("w3", 30.0, 910.0, "placed"), Stay("w4", 910.0, 1300.0, "rebalanced")),
        arrived=30.0,
    ),
    a_job_outcome(
        "crowded",
        1400.0,
        stays=(Stay("w2", 40.0, 950.0, "placed"), Stay("w4", 950.0, 1400.0, "rebalanced")),
        arrived=40.0,
    ),
)


def test_moves_are_counted_by_kind_and_timed_from_the_first_arrival() -> None:
    assert (moves_of("migrated")(MOVED), moves_of("rebalanced")(MOVED)) == (1.0, 3.0)
    assert (first_move_seconds("migrated")(MOVED), first_move_seconds("rebalanced")(MOVED)) == (145.0, 900.0)
    assert first_move_seconds("migrated")(ending(a=1.0)) is None


def test_an_idle_node_receives_all_that_come_at_one_moment_and_none_later() -> None:
    assert rebalanced_to_idle(MOVED) == 2.0
    assert (idle_received_percent(MOVED), idle_received_percent(ending(a=1.0))) == (100.0, 0.0)


def test_the_most_jobs_on_a_node_are_those_that_are_there_at_one_moment() -> None:
    stays = [("n1", 0.0, 10.0), ("n1", 10.0, 30.0), ("n1", 20.0, 25.0), ("n2", 21.0, 22.0)]
    jobs = (a_job_outcome(f"j{n}", 1.0, stays=(Stay(*stay, "placed"),)) for n, stay in enumerate(stays))
    assert most_on_a_node(a_run_outcome(*jobs)) == 2.0
    assert most_on_a_node(a_run_outcome()) == 0.0


def test_cpu_is_in_per_cent() -> None:
    run = a_run_outcome(
        a_job_outcome("a", 1.0, cpu_jitter_ratio=0.2, allocated_cpu_seconds=8.0, allocated_used_cpu_seconds=6.0),
        a_job_outcome("b", 1.0, cpu_jitter_ratio=0.4),
    )
    assert cpu_jitter_percent(run) == pytest.approx(30.0)
    assert allocated_cpu_used_percent(run) == 75.0
    assert (cpu_jitter_percent(a_run_outcome()), allocated_cpu_used_percent(a_run_outcome())) == (None, None)


def reaching(**targets: float | None) -> RunOutcome:
    jobs = (a_job_outcome(name, 500.0, arrived=100.0, target_seconds=at) for name, at in targets.items())
    return a_run_outcome(*jobs)


def test_times_to_a_target_count_from_arrival_and_over_jobs_that_reached_it() -> None:
    assert time_to_target_seconds(reaching(a=150.0, b=250.0, c=None)) == 100.0
    assert time_to_target_seconds(reaching(a=None)) is None
    pair = a_pair(reaching(a=200.0, b=300.0, c=None), reaching(a=175.0, b=200.0, c=101.0))
    assert best_target_reduction(pair) == pytest.approx(50.0), "of a job that reached it twice"
    assert best_target_reduction(a_pair(reaching(a=None), reaching(a=150.0))) is None


def test_a_figure_may_be_of_some_jobs_alone() -> None:
    jobs = [a_sim_job("a", target_level=0.1), a_sim_job("b")]
    pair = Pair(an_instance(jobs), ending(a=100.0, b=200.0), ending(a=300.0, b=150.0))
    free = of_jobs(lambda job: job.target_level is None, lambda job: job.jct_seconds)
    assert free(pair) == pytest.approx(25.0)
    assert of_jobs(lambda job: job.name == "c", lambda job: job.jct_seconds)(pair) is None


def test_an_even_share_meets_what_needs_no_more() -> None:
    jobs = [a_served_model(f"s{number}", need, qoe_seconds=1.0) for number, need in enumerate((0.4, 0.5, 0.6, 0.2))]
    assert within_an_even_share(Pair(an_instance(jobs, [a_sim_node(cpu=2.0)]), ending(), ending())) == 3.0
