"""Each run against the first: ratios, verdicts, and what must be said before they are believed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.demo.comparison import JCT, TIME_TO_90, JobMeasure, caveats, job_rows, measure_rows, summaries
from controller.demo.results import DemoResult, JobResult, RunResult


def job(name: str, jct_seconds: float | None, *, state: str = "finished", arrived: float = 0.0) -> JobResult:
    return JobResult(
        name=name,
        arrived_seconds=arrived,
        finished_seconds=None if jct_seconds is None else arrived + jct_seconds,
        jct_seconds=jct_seconds,
        time_to_90_seconds=None if jct_seconds is None else jct_seconds / 2,
        steps=10,
        loss_first=1.0,
        loss_last=0.1,
        cpu_seconds=5.0,
        state=state,
    )


def run(policy: str, *jobs: JobResult) -> RunResult:
    return RunResult(
        policy=policy,
        jobs=list(jobs),
        curves={},
        decisions=[],
        passes=3,
        passes_held=0,
        resizes_applied=0,
        withheld=0,
        controller_cpu_ratio=0.004,
    )


def demo(*runs: RunResult) -> DemoResult:
    return DemoResult(list(runs), "3.5.0", "cgroup v1, weights (cpu.shares)", 2.0, 8.0)


def test_a_mean_is_compared_with_that_of_the_first_run() -> None:
    rows = measure_rows(demo(run("fair", job("a", 40), job("b", 60)), run("flowcon", job("a", 30), job("b", 50))))

    mean = rows[0]

    assert (mean.label, mean.cells[0].seconds, mean.cells[0].ratio) == ("Mean completion time", 50, None)
    assert (mean.cells[1].seconds, mean.cells[1].ratio, mean.cells[1].verdict) == (40, 0.8, "better")


def test_a_longer_makespan_is_called_worse() -> None:
    rows = measure_rows(demo(run("fair", job("a", 40)), run("flowcon", job("a", 50))))

    assert (rows[2].cells[1].ratio, rows[2].cells[1].verdict) == (1.25, "worse")


@pytest.mark.parametrize(
    ("measure", "before", "after", "verdict"),
    [
        (JCT, 100, 100.9, "same"),
        (JCT, 100, 99.1, "same"),
        (JCT, 100, 101, "worse"),
        (JCT, 100, 99, "better"),
        (JCT, 10, 10.9, "worse"),
        (TIME_TO_90, 5, 5.9, "same"),
        (TIME_TO_90, 5, 4.1, "same"),
        (TIME_TO_90, 3.1, 4.1, "worse"),
        (TIME_TO_90, 4.1, 3.1, "better"),
        (TIME_TO_90, 400, 398.9, "better"),
    ],
)
def test_what_is_closer_than_its_measure_can_tell_is_the_same(
    measure: JobMeasure, before: float, after: float, verdict: str
) -> None:
    """An end within 1 %; a loss that is read once a second, within that second."""
    runs = [
        run(policy, replace(job("a", value), time_to_90_seconds=value))
        for policy, value in (("fair", before), ("flowcon", after))
    ]

    assert job_rows(demo(*runs), measure)[0].cells[1].verdict == verdict


def test_means_and_makespan_have_the_tolerance_of_their_measure() -> None:
    """Completion 100 and 100.9 s, time to 90 % 50 and 50.45 s: within 1 % and within a second."""
    rows = measure_rows(demo(run("fair", job("a", 100)), run("flowcon", job("a", 100.9))))

    assert [row.cells[1].verdict for row in rows] == ["same", "same", "same"]


def test_each_job_has_a_row_even_when_only_one_run_had_it() -> None:
    rows = job_rows(demo(run("fair", job("a", 40)), run("flowcon", job("a", 20), job("late", 9))), TIME_TO_90)

    assert [(row.label, [cell.seconds for cell in row.cells]) for row in rows] == [
        ("a", [20, 10]),
        ("late", [None, 4.5]),
    ]
    assert rows[1].cells[0].note == "did not run"


def test_a_job_that_never_ended_cannot_make_its_run_look_faster() -> None:
    """Means 50 and 20 s would read ×0.40; on the one job that both ended, nothing changed."""
    result = demo(run("fair", job("a", 20), job("slow", 80)), run("flowcon", job("a", 20), job("slow", None)))

    cell = measure_rows(result)[0].cells[1]

    assert (cell.seconds, cell.ratio, cell.verdict, cell.note) == (20, 1.0, "same", "over 1 common job")
    assert measure_rows(result)[2].cells[1].ratio is None


def test_to_crash_early_is_not_to_be_fast() -> None:
    result = demo(run("fair", job("a", 20), job("b", 80)), run("flowcon", job("a", 20), job("b", 2, state="failed")))

    crashed = job_rows(result, JCT)[1].cells[1]
    mean, _, makespan = measure_rows(result)

    assert (crashed.seconds, crashed.ratio, crashed.note) == (2, None, "failed")
    assert (mean.cells[1].ratio, mean.cells[1].note) == (1.0, "over 1 common job")
    assert (makespan.cells[1].ratio, makespan.cells[1].note) == (None, "other jobs failed")


def test_runs_without_a_common_job_are_not_compared() -> None:
    cell = measure_rows(demo(run("fair", job("a", None)), run("flowcon", job("a", 20))))[0].cells[1]

    assert (cell.ratio, cell.verdict, cell.note) == (None, None, "nothing to compare")


def test_a_baseline_of_no_time_gives_no_ratio() -> None:
    assert job_rows(demo(run("fair", job("a", 0)), run("flowcon", job("a", 5))), JCT)[0].cells[1].ratio is None


def test_the_summary_tells_what_is_worse_beside_what_is_better() -> None:
    result = demo(
        run("fair", job("a", 40), job("b", 60), job("c", 20)), run("flowcon", job("a", 20), job("b", 66), job("c", 20))
    )

    (summary,) = summaries(result)

    assert (summary.policy, summary.baseline) == ("flowcon", "fair")
    assert "mean completion time 12 % shorter" in summary.better
    assert "1 of 3 jobs ended sooner (most: a, 50 % shorter)" in summary.better
    assert "makespan 10 % longer" in summary.worse
    assert "1 of 3 jobs ended later (most: b, 10 % longer)" in summary.worse


def test_a_failure_and_a_job_without_end_are_said() -> None:
    cut = replace(
        run("flowcon", job("a", 5), job("b", 2, state="failed"), job("c", None, state="training")),
        passes_held=2,
        resizes_applied=1,
    )

    said = caveats(demo(run("fair", job("a", 5), job("b", 5), job("c", 5)), cut))

    assert said == [
        "Under flowcon, 1 of 3 jobs failed: b. A failed job is in no ratio.",
        "Under flowcon, 1 of 3 jobs had not ended: c.",
        "Under flowcon, 2 passes could not observe the jobs and changed nothing.",
    ]


@pytest.mark.parametrize(
    ("did", "said"),
    [
        ({}, ["Under specon, no CPU was changed and no job placed: whatever differs is chance."]),
        ({"resizes_applied": 1}, []),
        ({"moves_applied": 1}, []),
    ],
)
def test_a_policy_that_changed_nothing_is_said_to_differ_by_chance(did: dict[str, int], said: list[str]) -> None:
    idle = replace(run("specon", job("a", 20)), **did)

    assert caveats(demo(run("fair", job("a", 40)), idle)) == said


def test_one_run_alone_is_compared_with_nothing_and_says_so() -> None:
    result = demo(run("fair", job("a", 5)))

    assert summaries(result) == []
    assert caveats(result) == ["Only fair ran: there is nothing to compare it with."]


def test_a_demo_without_runs_says_so() -> None:
    assert caveats(demo()) == ["No run was completed: there is nothing to show."]


def test_a_job_that_reported_no_loss_is_named_with_the_cause_once_and_in_its_row() -> None:
    silent = replace(job("b", 5), time_to_90_seconds=None, no_loss="port 41523 refuses; add the two lines")
    changed = replace(run("flowcon", job("a", 5), silent), resizes_applied=1)
    result = demo(run("fair", job("a", 5), silent), changed)

    assert caveats(result) == ["b reported no loss: port 41523 refuses; add the two lines."]
    (_, row) = job_rows(result, TIME_TO_90)
    assert [cell.note for cell in row.cells] == ["no loss", "no loss"]
