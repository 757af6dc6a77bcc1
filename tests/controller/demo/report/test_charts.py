"""The curves of a run as charts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from support.demo_result import sample_result

from slopewise.demo.report.charts import allotted_figure, frame, loss_figure, used_figure
from slopewise.demo.report.results import Curves, DemoResult, RunResult
from slopewise.reports.plots import Plot


def with_loss(result: DemoResult, name: str, *losses: list[tuple[float, float]]) -> DemoResult:
    """`result` with another loss curve of one job in each run."""
    runs = [
        replace(run, curves=run.curves | {name: replace(run.curves[name], loss=points)})
        for run, points in zip(result.runs, losses, strict=True)
    ]
    return replace(result, runs=runs)


def many_jobs(count: int) -> RunResult:
    """One run of `count` copies of the first job."""
    run = sample_result().runs[0]
    names = [f"job-{number}" for number in range(count)]
    return replace(
        run,
        jobs=[replace(run.jobs[0], name=name) for name in names],
        curves=dict.fromkeys(names, run.curves[run.jobs[0].name]),
    )


def heights(plot: Plot, place: int = 0) -> list[float]:
    return [value for _, value in plot.lines[place].points]


def test_a_loss_is_drawn_between_its_first_value_and_the_best_of_any_run() -> None:
    """First 2.0, best 0.0 (reached only in the second run): 1.0 is half way."""
    result = with_loss(sample_result(), "digits-logreg", [(0, 2.0), (5, 1.0), (9, 0.5)], [(0, 2.0), (5, 0.0), (9, 0.5)])

    first, second = (loss_figure(run, frame(result)) for run in result.runs)

    assert heights(first) == [1.0, 0.5, 0.25]
    assert heights(second) == [1.0, 0.0, 0.25]
    assert first.lines[0].shown == [2.0, 1.0, 0.5]


def test_a_loss_that_only_rose_or_never_moved_is_still_drawn() -> None:
    rose = with_loss(sample_result(), "digits-logreg", [(0, 1.0), (5, 3.0)], [(0, 1.0), (5, 2.0)])
    still = with_loss(sample_result(), "digits-logreg", [(0, 1.0), (5, 1.0)], [(0, 1.0)])

    assert heights(loss_figure(rose.runs[0], frame(rose))) == [0.0, 1.0]
    assert heights(loss_figure(still.runs[0], frame(still))) == [0.0, 0.0]


def test_values_that_are_not_finite_are_left_out_of_a_curve() -> None:
    points = [(0.0, 2.0), (1.0, float("nan")), (2.0, float("inf")), (3.0, 1e308), (4.0, 1.0)]
    result = with_loss(sample_result(), "digits-logreg", points, points)
    broken = replace(many_jobs(1), curves={"job-0": Curves(cpu_cores=[(1.0, float("nan")), (2.0, 1.0)])})

    line = loss_figure(result.runs[0], frame(result)).lines[0]
    (used,) = used_figure(broken, frame(replace(sample_result(), runs=[broken]))).areas

    assert list(line.points) == [(0.0, 1.0), (4.0, 0.0)]
    assert all(math.isfinite(value) for value in used.values)


def test_a_job_has_the_same_colour_in_every_chart_of_every_run() -> None:
    result = sample_result()
    shared = frame(result)
    figures = [draw(run, shared) for run in result.runs for draw in (loss_figure, used_figure, allotted_figure)]
    lines = {(line.name, line.colour) for figure in figures for line in figure.lines if line.place is not None}
    areas = {(area.name, area.colour) for figure in figures for area in figure.areas if area.place is not None}
    colours = lines | areas

    assert len(colours) == len(result.runs[0].jobs)


def test_areas_have_a_value_at_every_moment_that_any_of_them_has() -> None:
    """Two jobs sampled at 0, 2, 4 s and at 1, 3 s: an area must not fall to nothing in between."""
    run = replace(
        many_jobs(2),
        curves={
            "job-0": Curves(cpu_cores=[(0, 1.0), (2, 1.0), (4, 1.0)]),
            "job-1": Curves(cpu_cores=[(1, 0.5), (3, 0.5)]),
        },
    )

    first, second = used_figure(run, frame(replace(sample_result(), runs=[run]))).areas

    assert list(first.at) == list(second.at)
    assert set(first.values) == {1.0}
    assert {y for x, y in zip(second.at, second.values, strict=True) if 1 <= x <= 3} == {0.5}
    assert {y for x, y in zip(second.at, second.values, strict=True) if x < 1 or x > 3} == {0.0}


def allotted(*curves: list[tuple[float, float]]) -> RunResult:
    """A run of jobs with these allotments."""
    jobs = many_jobs(len(curves))
    return replace(jobs, curves={f"job-{n}": Curves(allotted_cores=points) for n, points in enumerate(curves)})


def test_allotments_are_stacked_at_their_true_values_in_steps() -> None:
    """Two jobs of one core each from 1 s; at 3 s the first has ended and the second has both cores."""
    run = allotted([(0, 2.0), (1, 1.0), (2, 1.0)], [(1, 1.0), (2, 1.0), (3, 2.0)])

    first, second = allotted_figure(run, frame(replace(sample_result(), runs=[run]))).areas

    assert list(first.at) == list(second.at) == [0, 1, 2, 3]
    assert first.values == [2.0, 1.0, 1.0, 0.0]
    assert second.values == [0.0, 1.0, 1.0, 2.0]
    assert list(second.low) == list(first.high)


def test_shares_fill_the_machine_and_never_more() -> None:
    result = sample_result()
    for run in result.runs:
        figure = allotted_figure(run, frame(result))
        stacks = list(figure.areas[-1].high)

        assert stacks == pytest.approx([result.node_cores] * len(stacks), abs=0.005)
        assert figure.y.high == pytest.approx(2.24)


def test_a_job_without_any_sample_breaks_no_chart() -> None:
    run = replace(many_jobs(1), curves={"job-0": Curves()})
    shared = frame(replace(sample_result(), runs=[run]))

    assert list(loss_figure(run, shared).lines[0].points) == []
    assert [list(draw(run, shared).areas[0].at) for draw in (used_figure, allotted_figure)] == [[], []]
