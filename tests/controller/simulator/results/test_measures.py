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


def test_times_are_counted_from_each_jobs_own_arrival_and_the_makespan_from_the_first() -> None:
    values = of(
        a_run(
            a_job("a", 100.0, arrived=10.0, at_90_seconds=20.0, at_99_seconds=50.0),
            a_job("b", 160.0, arrived=40.0, at_90_seconds=100.0, at_99_seconds=150.0),
            a_job("diverged", 310.0, arrived=10.0),  # it reaches neither, and is left out of those means alone
        )
    ).values
    assert values["jct_mean_seconds"] == (90.0 + 120.0 + 300.0) / 3
    assert values["time_to_90_seconds"] == 35.0
    assert values["time_to_99_seconds"] == 75.0
    assert values["makespan_seconds"] == 300.0
    promised = ("qoe_satisfied_ratio", "deadlines_met_ratio", "tardiness_seconds", "time_to_target_seconds")
    assert [values[name] for name in promised] == [None] * 4, "unknown where nothing was promised, and not zero"
    assert set(values) == {each.name for each in MEASURES}


def test_the_99th_percentile_lies_between_the_two_slowest_of_a_hundred_and_one_jobs() -> None:
    run = a_run(*(a_job(f"j{number}", float(number)) for number in range(1, 102)))
    assert of(run).values["jct_p99_seconds"] == 100.0


def test_a_training_that_did_not_end_is_counted_and_leaves_no_makespan_and_a_served_model_is_not_missed() -> None:
    reported = of(a_run(a_job("a", 100.0), a_job("b", None)))
    assert (reported.jobs, reported.not_ended) == (2, 1)
    assert reported.values["makespan_seconds"] is None
    assert reported.values["jct_mean_seconds"] == 100.0
    served = of(a_run(a_job("a", 100.0), a_job("served", None, work_cpu_seconds=math.inf)))
    assert (served.not_ended, served.values["makespan_seconds"]) == (0, 100.0)


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


@pytest.mark.parametrize(
    ("fair", "ends", "faster"),
    [(100.0, 99.5, 0.0), (100.0, 99.0, 0.5), (100.0, 50.0, 0.5), (100.0, None, 0.0), (None, 100.0, 0.5)],
)
def test_a_job_is_faster_from_one_per_cent_on_and_where_it_ended_under_the_policy_alone(
    fair: float | None, ends: float | None, faster: float
) -> None:
    base = a_run(a_job("a", fair), a_job("b", 100.0))
    assert of(a_run(a_job("a", ends), a_job("b", 100.0)), base).values["jobs_faster_ratio"] == faster


def test_a_job_is_later_above_five_per_cent_of_its_mean_time_in_fair_runs_and_where_it_never_ended() -> None:
    run = a_run(a_job("same", 105.0), a_job("later", 105.1), a_job("never", None), a_job("not in fair runs", 900.0))
    fair = dict.fromkeys(["same", "later", "never"], 100.0)
    assert of(run, None, fair).values["jobs_later_ratio"] == pytest.approx(2 / 3)
    assert of(run, None, fair).ratios_to_fair["jobs_later_ratio"] is None


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


def test_a_mean_is_compared_over_the_jobs_that_ended_in_both_runs() -> None:
    """Over all that ended, 100 s would stand against 200 s, because the slow job starved."""
    fair = a_run(a_job("quick", 100.0), a_job("slow", 300.0))
    run = a_run(a_job("quick", 100.0), a_job("slow", None))
    reported = of(run, fair)
    assert reported.values["jct_mean_seconds"] == 100.0
    assert reported.ratios_to_fair["jct_mean_seconds"] == 1.0


def test_ratios_are_to_the_fair_run_and_of_nothing_there_are_none() -> None:
    fair = a_run(a_job("a", 100.0), resizes_total=0, overlap_seconds={3: 50.0})
    ratios = of(a_run(a_job("a", 80.0)), fair).ratios_to_fair
    names = ("jct_mean_seconds", "resizes_total", "overlap_seconds_3")
    assert [ratios[name] for name in names] == [0.8, None, 0.0]


# --- over seeds -------------------------------------------------------------------------------------------


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
        (Estimate(0.8, 0.5, 1.1, 12), "unclear", "unclear"),
        (Estimate(1.0, 0.995, 1.005, 12), "same", "same"),
        (Estimate(0.97, 0.96, 0.985, 12), "better", "worse"),
        (Estimate(0.8, None, None, 1), "better", "worse"),
        (Estimate(None, None, None), None, None),
    ],
)
def test_the_verdict_needs_an_interval_without_1(ratio: Estimate, less: str | None, more: str | None) -> None:
    assert verdict(measure("jct_mean_seconds"), ratio) == less
    assert verdict(measure("deadlines_met_ratio"), ratio) == more
    assert verdict(measure("resizes_total"), ratio) is None, "neither good nor bad"


def test_overlaps_come_last_and_in_the_order_of_their_numbers() -> None:
    asked = ["overlap_seconds_10", "resizes_total", "overlap_seconds_2", "jct_mean_seconds"]
    assert in_order(asked) == ["jct_mean_seconds", "resizes_total", "overlap_seconds_2", "overlap_seconds_10"]
