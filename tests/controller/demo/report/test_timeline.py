"""Classes over time, and the marks of the outcome of each change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.demo_result import sample_result

from slopewise.demo.report.charts import frame
from slopewise.demo.report.results import DecisionRow, JobMove, RunResult
from slopewise.demo.report.timeline import Segment, classes, mark, segments, timeline_figure


def decision(at: float, job_class: str | None, outcome: str = "", **change: int) -> DecisionRow:
    return DecisionRow(at, "digits-logreg", job_class, change.get("before"), change.get("after"), outcome, "why")


def run_with(*decisions: DecisionRow, finished: float | None = 30.0) -> RunResult:
    """A run of one job that arrives at 2 s, whose CPU was last sampled at 40 s."""
    run = sample_result().runs[0]
    job = replace(run.jobs[0], arrived_seconds=2.0, finished_seconds=finished)
    curves = {job.name: replace(run.curves[job.name], loss=[], cpu_cores=[(0.0, 1.0), (40.0, 1.0)])}
    return replace(run, jobs=[job], curves=curves, decisions=list(decisions))


def test_a_class_lasts_until_the_next_one_and_the_last_until_the_job_ends() -> None:
    run = run_with(decision(8, "NL"), decision(16, "NL", "applied", before=2000, after=500), decision(24, "WL"))

    assert segments(run) == [
        Segment("digits-logreg", None, 2.0, 8),
        Segment("digits-logreg", "NL", 8, 24),
        Segment("digits-logreg", "WL", 24, 30.0),
    ]


def test_a_job_that_did_not_end_is_drawn_to_the_end_of_the_run() -> None:
    assert segments(run_with(finished=None)) == [Segment("digits-logreg", None, 2.0, 40.0)]


def test_a_decision_after_the_end_of_a_job_draws_nothing() -> None:
    assert segments(run_with(decision(35, "CL"))) == [Segment("digits-logreg", None, 2.0, 30.0)]


@pytest.mark.parametrize(
    ("row", "symbol"),
    [
        (decision(1, "NL", "applied", before=500, after=2000), "triangle-up"),
        (decision(1, "CL", "applied", before=2000, after=500), "triangle-down"),
        (decision(1, "CL", "withheld by cooldown", before=2000, after=500), "circle"),
        (decision(1, "CL", "failed", before=2000, after=500), "x"),
    ],
)
def test_a_mark_shows_what_became_of_a_change(row: DecisionRow, symbol: str) -> None:
    assert mark(row) == symbol


def test_a_change_of_class_alone_gets_no_mark() -> None:
    run = run_with(decision(8, "NL"), decision(9, "WL", "applied", before=2000, after=500))

    figure = timeline_figure(run, frame(replace(sample_result(), runs=[run])))

    assert [each.x for each in figure.marks] == [9]


def test_a_class_is_written_on_its_bar_and_not_only_coloured() -> None:
    run = run_with(decision(8, "NL"), decision(24, "PC"))

    figure = timeline_figure(run, frame(replace(sample_result(), runs=[run])))

    assert [box.text for box in figure.boxes] == ["", "NL", "PC"]


def test_the_key_names_each_class_once_with_flowcons_own_first() -> None:
    run = run_with(decision(8, "PC"), decision(9, "CL"), decision(10, "NL"), decision(11, "CL"))

    assert [key.name for key in classes(replace(sample_result(), runs=[run, run]))] == ["NL", "CL", "PC"]


def test_a_mark_shows_the_change_and_its_reason_in_short_lines() -> None:
    row = replace(decision(9, "CL", "applied", before=2000, after=500), reason="<a href='x'>y</a> " + "long " * 30)

    (each,) = timeline_figure(run_with(row), frame(replace(sample_result(), runs=[run_with(row)]))).marks
    lines = each.title.splitlines()

    assert lines[1:3] == ["2.00 → 0.50 cores, applied", "<a href='x'>y</a> " + "long " * 7 + "long"]
    assert max(map(len, lines)) <= 60


def test_a_placement_has_a_mark_of_its_own_and_names_the_node() -> None:
    placed = DecisionRow(3.0, "digits-logreg", None, None, None, "applied", "fewest claims", "node-2")
    run = run_with(placed)

    figure = timeline_figure(run, frame(replace(sample_result(), runs=[run])))

    assert mark(placed) == "diamond"
    assert mark(replace(placed, outcome="infeasible")) == "x"
    assert "to node-2, applied" in figure.marks[0].title


def test_a_moved_job_has_a_pause_in_its_bar_and_a_mark_where_it_was_seen_at_work_again() -> None:
    again = DecisionRow(13.0, "digits-logreg", None, None, None, "resumed", "resumed on node-2 after 3 s", "node-2")
    run = run_with(again)
    moves = (
        JobMove(10.0, "node-1", "node-2", 0.4, 3.0, 0.0),
        JobMove(20.0, "node-2", "node-1", 0.4, None, None),
    )
    run = replace(run, jobs=[replace(run.jobs[0], moves=moves)])
    figure = timeline_figure(run, frame(replace(sample_result(), runs=[run])))
    pauses = [box for box in figure.boxes if box.hatched]

    assert [(box.left, box.right) for box in pauses] == [(10.0, 13.0)]
    assert "node-1 → node-2 at 10.0 s\npaused 3.0 s, no step lost" in pauses[0].title
    assert mark(again) == "diamond-dot"
    assert mark(replace(again, outcome="failed")) == "x"
