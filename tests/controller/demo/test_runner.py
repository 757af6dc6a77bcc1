"""From a run's raw data to its figures: time to 90 %, and time to a level that was asked for."""

from __future__ import annotations

import pytest

from slopewise.adapters.local.job_record import JobRecord
from slopewise.config.jobs_file import JobSpec
from slopewise.demo.report.results import Curves, JobResult, RunResult
from slopewise.demo.runner import time_to_level, trouble, with_times_to_quality
from slopewise.model import Objective


def a_run(policy: str, arrived: float, *points: tuple[float, float], objective: Objective = "min") -> RunResult:
    job = JobResult("j", arrived, 100.0, 100.0 - arrived, None, 10, None, None, 1.0, "finished")
    return RunResult(policy, [job], {"j": Curves(objective, list(points))}, 1, 0, 0, 0, 0.0)


def times(*runs: RunResult) -> list[float | None]:
    return [run.jobs[0].time_to_90_seconds for run in with_times_to_quality(runs)]


def test_time_to_90_counts_from_the_arrival_to_nine_tenths_of_the_improvement() -> None:
    assert times(a_run("fair", 5.0, (6.0, 1.0), (8.0, 0.5), (9.0, 0.05), (20.0, 0.0))) == [4.0]


def test_all_runs_share_one_target_although_one_was_scraped_later_and_the_other_ended_earlier() -> None:
    fair = a_run("fair", 0.0, (1.0, 10.0), (2.0, 2.0), (3.0, 0.9), (4.0, 0.0))
    late = a_run("flowcon", 0.0, (2.0, 2.0), (3.0, 1.5), (5.0, 0.95))
    assert times(fair, late) == [3.0, 5.0]  # against its own range the second would need 1.055, reached at 5.0 too
    assert times(late) == [5.0]


def test_an_accuracy_is_to_rise() -> None:
    assert times(a_run("fair", 0.0, (1.0, 0.1), (2.0, 0.95), (3.0, 1.0), objective="max")) == [2.0]


@pytest.mark.parametrize("points", [(), ((1.0, 0.5), (2.0, 0.5)), ((1.0, 0.5), (2.0, 0.9))])
def test_a_job_that_never_improved_never_reached_anything(points: tuple[tuple[float, float], ...]) -> None:
    assert times(a_run("fair", 0.0, *points)) == [None]


@pytest.mark.parametrize(
    ("objective", "level", "expected"),
    [("min", 0.5, 3.0), ("min", 0.4, None), ("max", 0.8, 2.0), ("max", 2.0, None), ("min", None, None)],
)
def test_time_to_a_level_counts_from_the_arrival_to_the_first_time_it_was_seen(
    objective: Objective, level: float | None, expected: float | None
) -> None:
    curves = Curves(objective, [(6.0, 0.7), (7.0, 0.9), (8.0, 0.5), (9.0, 0.6)])
    assert time_to_level(curves, level, arrived_seconds=5.0) == expected


@pytest.mark.parametrize(
    ("status", "text", "ended_by_move", "reported"),
    [
        (0, "", "", ""),
        (1, "Traceback\nKeyError: 'x'", "", "a failed with status 1: KeyError: 'x'"),
        (1, "", "", "a failed with status 1: it wrote nothing"),
        (
            0,
            "",
            "ended with status 0 when it was signalled to end",
            "a ended with status 0 when it was signalled to end",
        ),
    ],
)
def test_a_job_that_failed_or_left_its_work_in_a_move_is_reported_with_the_figures(
    status: int, text: str, ended_by_move: str, reported: str
) -> None:
    record = JobRecord(JobSpec("a", ["x"], 0.0), 20_000, finished_at_seconds=1.0, exit_status=status)
    record.last_output_lines, record.ended_by_move = text, ended_by_move
    assert trouble(record) == reported
