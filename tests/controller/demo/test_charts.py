"""The curves of a run as plotly figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.demo.charts import JOB_COLOURS, allotted_figure, cut_losses, frame, label, loss_figure, used_figure
from controller.demo.results import Curves, DemoResult, RunResult
from tests.controller.demo.sample import sample_result


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


def test_a_loss_is_drawn_between_its_first_value_and_the_best_of_any_run() -> None:
    """First 2.0, best 0.0 (reached only in the second run): 1.0 is half way."""
    result = with_loss(sample_result(), "digits-logreg", [(0, 2.0), (5, 1.0), (9, 0.5)], [(0, 2.0), (5, 0.0), (9, 0.5)])

    first, second = (loss_figure(run, frame(result)).data[0] for run in result.runs)

    assert list(first.y) == [1.0, 0.5, 0.25]
    assert list(second.y) == [1.0, 0.0, 0.25]
    assert list(first.customdata) == [2.0, 1.0, 0.5]


def test_a_loss_that_only_rose_or_never_moved_is_still_drawn() -> None:
    rose = with_loss(sample_result(), "digits-logreg", [(0, 1.0), (5, 3.0)], [(0, 1.0), (5, 2.0)])
    still = with_loss(sample_result(), "digits-logreg", [(0, 1.0), (5, 1.0)], [(0, 1.0)])

    assert list(loss_figure(rose.runs[0], frame(rose)).data[0].y) == [0.0, 1.0]
    assert list(loss_figure(still.runs[0], frame(still)).data[0].y) == [0.0, 0.0]


def test_the_axis_grows_with_a_loss_that_rises_above_its_first_value() -> None:
    result = with_loss(sample_result(), "digits-logreg", [(0, 1.0), (5, 1.3), (9, 0.0)], [(0, 1.0), (9, 0.0)])
    shared = frame(result)

    tops = [loss_figure(run, shared).layout.yaxis.range[1] for run in result.runs]

    assert tops == pytest.approx([1.3 * 1.03] * 2)
    assert cut_losses(result.runs[0], shared) == []


def test_the_axis_keeps_its_usual_height_where_no_loss_rises() -> None:
    points = [(0.0, 1.0), (9.0, 0.0)]
    run = replace(many_jobs(1), curves={"job-0": Curves(loss=points)})

    assert frame(replace(sample_result(), runs=[run])).loss_top == 1.12


def test_a_loss_that_leaves_the_chart_is_named() -> None:
    """It diverges to 50 times its first value: the others would be a flat line on an axis that shows it."""
    result = with_loss(sample_result(), "digits-logreg", [(0, 1.0), (5, 50.0), (9, 0.0)], [(0, 1.0), (9, 0.0)])
    shared = frame(result)

    assert loss_figure(result.runs[0], shared).layout.yaxis.range[1] == 1.5
    assert [cut_losses(run, shared) for run in result.runs] == [["digits-logreg"], []]


def test_values_that_are_not_finite_are_left_out_of_a_curve() -> None:
    points = [(0.0, 2.0), (1.0, float("nan")), (2.0, float("inf")), (3.0, 1e308), (4.0, 1.0)]
    result = with_loss(sample_result(), "digits-logreg", points, points)

    trace = loss_figure(result.runs[0], frame(result)).data[0]

    assert (list(trace.x), list(trace.y)) == ([0.0, 4.0], [1.0, 0.0])


def test_a_job_has_the_same_colour_in_every_chart_of_every_run() -> None:
    result = sample_result()
    shared = frame(result)
    colours = {
        (trace.name, trace.line.color)
        for run in result.runs
        for draw in (loss_figure, used_figure, allotted_figure)
        for trace in draw(run, shared).data
    }

    assert len(colours) == len(result.runs[0].jobs)


def test_jobs_beyond_the_palette_differ_by_dash_and_pattern() -> None:
    run = many_jobs(len(JOB_COLOURS) + 1)
    shared = frame(replace(sample_result(), runs=[run]))

    first, *_, ninth = used_figure(run, shared).data

    assert first.line.color == ninth.line.color
    assert (first.line.dash, first.fillpattern.shape) != (ninth.line.dash, ninth.fillpattern.shape)


def test_all_runs_share_the_axis_of_time() -> None:
    result = sample_result()
    shared = frame(result)

    ends = {used_figure(run, shared).layout.xaxis.range for run in result.runs}

    assert len(ends) == 1
    assert ends.pop()[1] > max(job.finished_seconds or 0 for run in result.runs for job in run.jobs)


def test_areas_have_a_value_at_every_moment_that_any_of_them_has() -> None:
    """Two jobs sampled at 0, 2, 4 s and at 1, 3 s: an area must not fall to nothing in between."""
    run = replace(
        many_jobs(2),
        curves={
            "job-0": Curves(cpu_cores=[(0, 1.0), (2, 1.0), (4, 1.0)]),
            "job-1": Curves(cpu_cores=[(1, 0.5), (3, 0.5)]),
        },
    )

    first, second = used_figure(run, frame(replace(sample_result(), runs=[run]))).data

    assert list(first.x) == list(second.x)
    assert set(first.y) == {1.0}
    assert {y for x, y in zip(second.x, second.y, strict=True) if 1 <= x <= 3} == {0.5}
    assert {y for x, y in zip(second.x, second.y, strict=True) if x < 1 or x > 3} == {0.0}


def allotted(*curves: list[tuple[float, float]]) -> RunResult:
    """A run of jobs with these allotments."""
    jobs = many_jobs(len(curves))
    return replace(jobs, curves={f"job-{n}": Curves(allotted_cores=points) for n, points in enumerate(curves)})


def test_allotments_are_stacked_at_their_true_values_in_steps() -> None:
    """Two jobs of one core each from 1 s; at 3 s the first has ended and the second has both cores."""
    run = allotted([(0, 2.0), (1, 1.0), (2, 1.0)], [(1, 1.0), (2, 1.0), (3, 2.0)])

    first, second = allotted_figure(run, frame(replace(sample_result(), runs=[run]))).data

    assert list(first.x) == list(second.x) == [0, 1, 2, 3]
    assert list(first.y) == [2.0, 1.0, 1.0, 0.0]
    assert list(second.y) == [0.0, 1.0, 1.0, 2.0]
    assert {trace.line.shape for trace in (first, second)} == {"hv"}
    assert first.stackgroup == second.stackgroup is not None


def test_an_allotment_holds_until_its_next_sample() -> None:
    run = allotted([(0, 0.5), (4, 1.5)], [(0, 1.0), (2, 1.0), (4, 0.5)])

    first, _ = allotted_figure(run, frame(replace(sample_result(), runs=[run]))).data

    assert list(zip(first.x, first.y, strict=True)) == [(0, 0.5), (2, 0.5), (4, 1.5)]


def test_shares_fill_the_machine_and_never_more() -> None:
    result = sample_result()
    for run in result.runs:
        figure = allotted_figure(run, frame(result))
        stacks = [sum(values) for values in zip(*(trace.y for trace in figure.data), strict=True)]

        assert stacks == pytest.approx([result.node_cores] * len(stacks), abs=0.005)
        assert figure.layout.yaxis.range == (0, pytest.approx(2.24))


def test_limits_that_add_up_to_more_than_the_machine_fit_the_axis_of_every_run() -> None:
    """Two jobs that may use both cores each: a stack of 4 on a node of 2, also where another run shows less."""
    fair = allotted([(0, 2.0), (1, 2.0)], [(0, 2.0), (1, 2.0)])
    shared = frame(replace(sample_result(), runs=[fair, allotted([(0, 2.0)])]))

    ranges = {allotted_figure(run, shared).layout.yaxis.range for run in (fair, allotted([(0, 2.0)]))}

    assert ranges == {(0, 4 * 1.12)}


def test_a_job_without_any_sample_breaks_no_chart() -> None:
    run = replace(many_jobs(1), curves={"job-0": Curves()})
    shared = frame(replace(sample_result(), runs=[run]))

    drawn = [draw(run, shared).data[0] for draw in (loss_figure, used_figure, allotted_figure)]

    assert [list(trace.x) for trace in drawn] == [[], [], []]


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        ("<b>x</b>", "&lt;b&gt;x&lt;/b&gt;"),
        ("a&lt;b", "a&amp;lt;b"),
        ("$x^2$", "&#36;x^2&#36;"),
        ("x" * 40, "x" * 17 + "…"),
    ],
)
def test_a_label_shows_markup_and_does_not_obey_it(foreign: str, shown: str) -> None:
    assert label(foreign) == shown
