"""Deadlines and objectives in the comparison: counted, named where they changed, and shown only where they apply."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from support.demo_runs import demo, job, run

from slopewise.demo.report.comparison import job_blocks, measure_rows, report_blocks, summaries
from slopewise.demo.report.results import DemoResult, JobResult
from slopewise.demo.report.sections import report_of
from slopewise.reports.cells import Block, Cell
from slopewise.reports.page import page_of
from slopewise.reports.report import terminal


def cells_of(block: Block, label: str) -> tuple[Cell, ...]:
    (row,) = [row for row in block.rows if row.label == label]
    return row.cells


def served(name: str, pace: float | None, objective: float = 0.2) -> JobResult:
    return replace(job(name, qoe_seconds=objective, pace_seconds=pace), steps=None, time_to_90_seconds=None)


def with_deadlines(fair: tuple[float, float], other: tuple[float, float]) -> DemoResult:
    """Jobs a and b, both due 50 s after their arrival, with these completion times under each policy."""
    return demo(
        *(
            run(policy, job("a", a, deadline_seconds=50.0), job("b", b, deadline_seconds=50.0))
            for policy, (a, b) in (("fair", fair), ("deadline", other))
        )
    )


@pytest.mark.parametrize(
    ("pace", "satisfied"), [(0.2, True), (0.2 * 1.1, True), (0.2 * 1.11, False), (0.01, True), (None, False)]
)
def test_an_objective_is_satisfied_up_to_a_tenth_above_it(pace: float | None, satisfied: bool) -> None:
    assert served("a", pace).qoe_satisfied is satisfied


def test_a_served_model_that_failed_satisfied_no_objective_however_fast_it_was() -> None:
    assert replace(served("a", 0.01), state="failed").qoe_satisfied is False


@pytest.mark.parametrize(
    ("jct", "state", "met"),
    [
        (50, "finished", True),
        (50.1, "finished", False),
        (None, "running", False),
        (5, "failed", False),
        (5, "stopped at target", True),
    ],
)
def test_a_deadline_is_met_by_ending_well_before_it(jct: float | None, state: str, met: bool) -> None:
    assert job("a", jct, state, deadline_seconds=50.0).deadline_met is met


def test_where_nothing_was_promised_nothing_is_said_of_it() -> None:
    result = demo(run("fair", job("a")), run("flowcon", job("a")))
    assert (job("a").deadline_met, job("a").qoe_satisfied) == (None, None)
    assert [row.label for row in measure_rows(result)] == ["Mean completion time", "Mean time to 90 %", "Makespan"]
    assert [block.heading for block in job_blocks(result)] == ["JCT of each job"]
    assert run("fair", job("a")).as_json()["deadlines_met"] is None


def test_more_deadlines_met_is_better_and_is_said_with_the_jobs_that_gained_and_lost() -> None:
    result = with_deadlines((60, 60), (40, 40))
    count = measure_rows(result)[0]
    assert (count.label, count.cells[0].text, count.cells[0].badge) == ("Deadlines met", "0 of 2", "")
    assert (count.cells[1].text, count.cells[1].badge, count.cells[1].verdict) == ("2 of 2", "+2 better", "better")
    (summary,) = summaries(result)
    assert "2 more deadlines met" in summary.phrases["better"]
    assert "deadline met that was missed: a, b" in summary.phrases["better"]


def test_a_job_that_lost_is_named_although_the_count_is_the_same() -> None:
    (summary,) = summaries(with_deadlines((40, 60), (60, 40)))
    assert "deadlines met" in summary.phrases["same"]
    assert "deadline met that was missed: b" in summary.phrases["better"]
    assert "deadline missed that was met: a" in summary.phrases["worse"]


def test_served_models_are_compared_by_their_objectives_and_not_by_when_they_end() -> None:
    result = demo(
        run("fair", served("a", 0.3), served("b", 0.1)),
        run("dqoes", served("a", 0.2), served("b", 0.2)),
    )
    assert [row.label for row in measure_rows(result)] == ["Objectives satisfied"]
    assert len(report_blocks(result)) == 1
    cells = cells_of(job_blocks(result)[0], "a")
    assert [cell.text for cell in cells if cell] == ["300 of 200 ms", "200 of 200 ms"]
    (summary,) = summaries(result)
    assert summary.phrases["better"] == ["1 more objectives satisfied", "objective satisfied that was missed: a"]
    assert not any("ended" in phrase for phrase in (*summary.phrases["better"], *summary.phrases["worse"]))


def test_time_to_targets_is_a_duration_like_others_where_targets_were_stated() -> None:
    aims: dict[str, Any] = {"target_level": 0.1, "deliverable_level": 0.5}
    runs = [
        run(policy, job("a", **aims, time_to_deliverable_seconds=first, time_to_target_seconds=last))
        for policy, first, last in (("fair", 10.0, 20.0), ("tradl", 5.0, 30.0))
    ]
    rows = {row.label: row.cells[1] for row in measure_rows(demo(*runs))}
    assert (rows["Mean time to deliverable"].badge, rows["Mean time to target"].badge) == (
        "×0.50 better",
        "×1.50 worse",
    )
    assert "Time to target of each job" in [block.heading for block in job_blocks(demo(*runs))]


def test_a_job_that_did_not_run_or_failed_kept_nothing_and_that_is_noted() -> None:
    result = demo(
        run("fair", job("a", 40, deadline_seconds=50.0)),
        run("deadline", job("a", 5, "failed", deadline_seconds=50.0)),
        run("las"),
    )
    _, failed, missing = cells_of(job_blocks(result)[0], "a")
    assert failed is not None
    assert missing is not None
    assert (failed.badge, failed.note) == ("missed", "failed")
    assert (missing.badge, missing.note, missing.verdict) == ("missed", "did not run", None)


def test_a_served_model_without_a_response_in_its_time_missed_its_objective_and_that_is_noted() -> None:
    silent = demo(run("fair", served("a", 0.1)), run("dqoes", served("a", None)))
    _, cell = cells_of(job_blocks(silent)[0], "a")
    assert cell is not None
    assert (cell.badge, cell.note) == ("missed", "no response or step")


def test_the_json_has_counts_and_what_each_job_was_promised_and_where_it_ran() -> None:
    printed = run("deadline", job("a", 40, deadline_seconds=50.0, node="node-2"), served("b", 0.5)).as_json()
    assert printed["deadlines_met"] == {"met": 1, "of": 1}
    assert printed["qoe_satisfied"] == {"met": 0, "of": 1}
    assert {"node", "deadline_seconds", "deadline_met", "pace_seconds", "qoe_satisfied"} <= printed["jobs"][0].keys()
    assert printed["jobs"][0]["node"] == "node-2"


def test_the_terminal_and_the_report_show_counts_promises_and_placements() -> None:
    result = replace(with_deadlines((60, 40), (40, 40)), nodes=2)
    console = Console(width=100)
    with console.capture() as captured:
        console.print(terminal(report_of(result)))
    for reported in ("Deadlines met", "2 of 2  +1 better", "60.0 of 50.0 s  missed", "40.0 of 50.0 s  met"):
        assert reported in captured.get()
    page = page_of(report_of(result))
    for reported in ("Deadlines met", "+1 better", "40.0 of 50.0 s", "as 2 nodes with cores of their own"):
        assert reported in page
