"""Figures of runs that can be worked out by hand, and what several seeds say together."""

from __future__ import annotations

import math
from statistics import stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.outcomes import a_job_outcome as a_job
from support.outcomes import a_run_outcome as a_run

from slopewise.reports.estimates import Estimate, estimate
from slopewise.simulator.results.measures import MEASURES, Figures, figures, in_order, measure, verdict
from slopewise.simulator.world.model import RunOutcome


def of(run: RunOutcome, fair: RunOutcome | None = None, fair_jct: dict[str, float] | None = None) -> Figures:
    return figures(run, fair or run, fair_jct or {})


# --- one run ----------------------------------------------------------------------------------------------


def test_times_are_counted_from_each_jobs_own_arrival() -> None:
    run = a_run(
        a_job("a", 100.0, at_90_seconds=20.0, at_99_seconds=50.0),
        a_job("b", 160.0, arrived=40.0, at_90_seconds=100.0, at_99_seconds=150.0),
    )
    values = of(run).values
    assert values["jct_mean_seconds"] == 110.0
    assert values["time_to_90_seconds"] == 40.0
    assert values["time_to_99_seconds"] == 80.0
    assert values["makespan_seconds"] == 160.0


def test_the_makespan_begins_with_the_first_arrival() -> None:
    assert of(a_run(a_job("a", 100.0, arrived=30.0))).values["makespan_seconds"] == 70.0


def test_the_99th_percentile_lies_between_the_two_slowest_of_a_hundred_and_one_jobs() -> None:
    run = a_run(*(a_job(f"j{number}", float(number)) for number in range(1, 102)))
    assert of(run).values["jct_p99_seconds"] == 100.0


def test_a_job_that_never_reaches_99_percent_is_left_out_of_that_mean_alone() -> None:
    run = a_run(a_job("a", 100.0, at_99_seconds=50.0), a_job("diverged", 300.0))
    assert of(run).values["time_to_99_seconds"] == 50.0
    assert of(run).values["jct_mean_seconds"] == 200.0


def test_a_training_that_did_not_end_is_counted_and_leaves_no_makespan() -> None:
    reported = of(a_run(a_job("a", 100.0), a_job("b", None)))
    assert (reported.jobs, reported.not_ended) == (2, 1)
    assert reported.values["makespan_seconds"] is None
    assert reported.values["jct_mean_seconds"] == 100.0


def test_a_served_model_never_ends_and_is_not_missed() -> None:
    reported = of(a_run(a_job("a", 100.0), a_job("served", None, work_cpu_seconds=math.inf)))
    assert reported.not_ended == 0
    assert reported.values["makespan_seconds"] == 100.0


def test_the_worst_job_is_set_against_its_mean_over_many_fair_runs_not_against_one() -> None:
    fair = a_run(a_job("a", 50.0), a_job("b", 100.0))
    run = a_run(a_job("a", 90.0), a_job("b", 120.0))
    assert of(run, fair, {"a": 60.0, "b": 100.0}).values["worst_job_ratio"] == 1.5


def test_allocated_cpu_counts_for_all_jobs_together() -> None:
    run = a_run(
        a_job("a", 1.0, allocated_cpu_seconds=30.0, allocated_used_cpu_seconds=30.0),
        a_job("b", 1.0, allocated_cpu_seconds=10.0, allocated_used_cpu_seconds=0.0),
    )
    assert of(run).values["allocated_cpu_used_ratio"] == 0.75
    assert of(a_run(a_job("a", 1.0))).values["allocated_cpu_used_ratio"] is None


@pytest.mark.parametrize(("ends", "faster"), [(99.5, 0.0), (99.0, 0.5), (50.0, 0.5), (None, 0.0)])
def test_a_job_is_faster_from_one_per_cent_on(ends: float | None, faster: float) -> None:
    fair = a_run(a_job("a", 100.0), a_job("b", 100.0))
    assert of(a_run(a_job("a", ends), a_job("b", 100.0)), fair).values["jobs_faster_ratio"] == faster


def test_a_job_that_ended_under_the_policy_alone_is_faster() -> None:
    fair, run = a_run(a_job("a", None)), a_run(a_job("a", 100.0))
    assert of(run, fair).values["jobs_faster_ratio"] == 1.0


def test_a_response_objective_is_met_up_to_ten_per_cent_above_it_and_not_without_a_response() -> None:
    responses = (1.0, 1.1, 1.2, None)
    run = a_run(*(a_job(f"j{n}", None, qoe_seconds=1.0, response_seconds=each) for n, each in enumerate(responses)))
    assert of(run).values["qoe_satisfied_ratio"] == 0.5


def test_deadlines_are_met_to_the_second_and_lateness_is_the_mean_of_all_with_a_deadline() -> None:
    run = a_run(
        a_job("met", 100.0, deadline_seconds=100.0),
        a_job("late", 130.0, deadline_seconds=100.0),
        a_job("never", None, deadline_seconds=940.0),
        a_job("to come", None, deadline_seconds=2000.0),
        a_job("without", 500.0),
    )
    values = of(run).values
    assert values["deadlines_met_ratio"] == pytest.approx(1 / 3)
    assert values["tardiness_seconds"] == pytest.approx((0 + 30 + 60) / 3)


def test_measures_of_promises_that_were_not_made_are_unknown_and_not_zero() -> None:
    values = of(a_run(a_job("a", 100.0))).values
    promised = ("qoe_satisfied_ratio", "deadlines_met_ratio", "tardiness_seconds", "time_to_target_seconds")
    assert [values[name] for name in promised] == [None] * 4


def test_overlap_is_reported_by_number_of_jobs_and_a_number_that_never_ran_together_did_so_for_no_time() -> None:
    reported = of(a_run(a_job("a", 100.0), overlap_seconds={0: 5.0, 1: 60.0, 2: 40.0}))
    assert {name: value for name, value in reported.values.items() if "overlap" in name} == {
        "overlap_seconds_1": 60.0,
        "overlap_seconds_2": 40.0,
    }
    assert reported.value("overlap_seconds_9") == 0.0


def test_a_run_without_jobs_has_no_times_and_does_not_fail() -> None:
    values = of(a_run()).values
    assert values["jct_mean_seconds"] is None
    assert values["worst_job_ratio"] is None
    assert values["resizes_total"] == 4.0


# --- against fair -----------------------------------------------------------------------------------------


def test_ratios_are_to_the_fair_run_of_the_same_seed() -> None:
    fair, run = a_run(a_job("a", 100.0)), a_run(a_job("a", 80.0))
    assert of(run, fair).ratios_to_fair["jct_mean_seconds"] == 0.8


def test_a_mean_is_compared_over_the_jobs_that_ended_in_both_runs() -> None:
    """Over all that ended, 100 s would stand against 200 s, because the slow job starved."""
    fair = a_run(a_job("quick", 100.0), a_job("slow", 300.0))
    run = a_run(a_job("quick", 100.0), a_job("slow", None))
    reported = of(run, fair)
    assert reported.values["jct_mean_seconds"] == 100.0
    assert reported.ratios_to_fair["jct_mean_seconds"] == 1.0


def test_nothing_is_compared_with_nothing() -> None:
    fair, run = a_run(a_job("a", 100.0), resizes_total=0), a_run(a_job("a", 80.0))
    assert of(run, fair).ratios_to_fair["resizes_total"] is None


def test_less_overlap_than_fair_down_to_none_is_a_ratio_of_0() -> None:
    fair, run = a_run(a_job("a", 100.0), overlap_seconds={3: 50.0}), a_run(a_job("a", 80.0))
    assert of(run, fair).ratios_to_fair["overlap_seconds_3"] == 0.0


# --- over seeds -------------------------------------------------------------------------------------------


def test_the_interval_is_students() -> None:
    """Three values have two degrees of freedom: 4.303 standard errors of 1/√3."""
    found = estimate([1.0, 2.0, 3.0])
    assert (found.mean, found.count) == (2.0, 3)
    assert found.low == pytest.approx(2 - 4.3027 / math.sqrt(3), abs=1e-3)
    assert found.high == pytest.approx(2 + 4.3027 / math.sqrt(3), abs=1e-3)


@pytest.mark.parametrize(
    ("degrees", "printed"),
    [(1, 12.706), (4, 2.776), (5, 2.571), (7, 2.365), (11, 2.201), (23, 2.069), (60, 2.000), (120, 1.980)],
)
def test_the_quantiles_are_those_of_the_printed_tables(degrees: int, printed: float) -> None:
    values = [float(number) for number in range(degrees + 1)]
    found = estimate(values)
    assert found.high is not None
    assert found.mean is not None
    quantile = (found.high - found.mean) / (stdev(values) / math.sqrt(degrees + 1))
    assert quantile == pytest.approx(printed, abs=6e-4)


def test_one_seed_has_a_mean_and_no_interval() -> None:
    assert estimate([7.0]) == Estimate(7.0, None, None, 1)


def test_no_seed_has_no_mean() -> None:
    assert estimate([]) == Estimate(None, None, None, 0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40))
def test_the_mean_lies_in_its_interval(values: list[float]) -> None:
    found = estimate(values)
    assert found.low is not None
    assert found.mean is not None
    assert found.high is not None
    assert found.low <= found.mean <= found.high


@pytest.mark.parametrize(
    ("ratio", "less", "more"),
    [
        (Estimate(0.8, 0.7, 0.9, 12), "better", "worse"),
        (Estimate(1.2, 1.1, 1.3, 12), "worse", "better"),
        (Estimate(1.0, 0.95, 1.05, 12), "unclear", "unclear"),
        (Estimate(0.8, 0.5, 1.1, 12), "unclear", "unclear"),
        (Estimate(1.0, 0.995, 1.005, 12), "same", "same"),
        (Estimate(0.97, 0.96, 0.985, 12), "better", "worse"),
        (Estimate(0.8, None, None, 1), "better", "worse"),
        (Estimate(0.995, None, None, 1), "same", "same"),
        (Estimate(None, None, None), None, None),
    ],
)
def test_the_verdict_needs_an_interval_without_1(ratio: Estimate, less: str | None, more: str | None) -> None:
    assert verdict(measure("jct_mean_seconds"), ratio) == less
    assert verdict(measure("deadlines_met_ratio"), ratio) == more


def test_how_often_something_was_changed_is_neither_good_nor_bad() -> None:
    assert verdict(measure("resizes_total"), Estimate(2.0, 1.9, 2.1, 12)) is None


def test_overlaps_come_last_and_in_the_order_of_their_numbers() -> None:
    asked = ["overlap_seconds_10", "resizes_total", "overlap_seconds_2", "jct_mean_seconds"]
    assert in_order(asked) == ["jct_mean_seconds", "resizes_total", "overlap_seconds_2", "overlap_seconds_10"]


def test_every_measure_of_a_run_is_described() -> None:
    described = {each.name for each in MEASURES}
    assert set(of(a_run(a_job("a", 100.0))).values) == described
