"""Seconds a response, or a step: over the second half of a job's life, from what Prometheus counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.worlds import START

from slopewise.adapters.local.job_record import JobRecord
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.reader import JobSeries, PrometheusReading
from slopewise.config.jobs_file import JobSpec
from slopewise.demo.paces import mean_pace, mean_paces
from slopewise.model import Objectives, Responses


class FakeReader:
    """Counters that grow with time, as a function of the seconds since the start."""

    def __init__(self, series: Callable[[float], dict[str, JobSeries]]) -> None:
        self.series = series

    def read(self, at_seconds: float) -> PrometheusReading:
        jobs = {JobKey("run", name): each for name, each in self.series(at_seconds - START).items()}
        return PrometheusReading(jobs, queries=3)


def a_record(name: str, qoe: float | None = 0.2, ended: float | None = 40.0) -> JobRecord:
    record = JobRecord(JobSpec(name, ["x"], 0.0, objectives=Objectives(qoe_seconds=qoe)), 20_000)
    record.started_at_seconds = START
    record.finished_at_seconds = None if ended is None else START + ended
    return record


def served(count: float, seconds: float) -> JobSeries:
    return JobSeries(responses=Responses(count, seconds))


def test_only_the_second_half_of_a_life_counts() -> None:
    """100 responses of 1 s each until 20 s, then 100 of 0.2 s."""
    reader = FakeReader(lambda after: {"a": served(100, 100.0) if after < 21 else served(200, 120.0)})
    assert mean_paces(reader, [a_record("a")]) == {"a": pytest.approx(0.2)}  # type: ignore[arg-type]


def test_only_jobs_with_an_objective_that_have_ended_are_asked_for() -> None:
    reader = FakeReader(lambda after: {name: served(10 * after, after) for name in ("a", "b", "c")})
    records = [a_record("a"), a_record("b", qoe=None), a_record("c", ended=None), a_record("unseen")]
    assert mean_paces(reader, records) == {"a": pytest.approx(0.1)}  # type: ignore[arg-type]


def test_a_trainings_pace_is_time_over_steps() -> None:
    assert mean_pace(JobSeries(steps_total=100), JobSeries(steps_total=140), 20.0) == 0.5


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, served(1, 1.0)),
        (served(1, 1.0), None),
        (served(5, 1.0), served(5, 1.0)),
        (served(50, 9.0), served(3, 1.0)),
        (JobSeries(), JobSeries()),
        (JobSeries(steps_total=5), served(9, 1.0)),
    ],
)
def test_nothing_done_a_restart_or_no_counter_is_unknown(before: JobSeries | None, after: JobSeries | None) -> None:
    assert mean_pace(before, after, 20.0) is None


def test_counters_of_two_processes_are_not_compared_even_where_the_second_is_ahead() -> None:
    before = JobSeries(responses=Responses(50, 9.0), process_started_at_seconds=START)
    after = JobSeries(responses=Responses(80, 9.5), process_started_at_seconds=START + 25)
    assert mean_pace(before, after, 20.0) is None
    same_process = JobSeries(responses=Responses(80, 9.6), process_started_at_seconds=START)
    assert mean_pace(before, same_process, 20.0) == pytest.approx(0.02)
