"""What migrations cost: put together from the records of processes and from what the passes have learnt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slopewise.adapters.local.job_record import JobRecord
from slopewise.adapters.local.move import MoveMade
from slopewise.config.jobs_file import JobSpec
from slopewise.demo.report.comparison import cost_text, fact_rows, job_blocks
from slopewise.demo.report.results import DemoResult, JobMove, JobResult, RunResult
from slopewise.demo.report.sections import report_of
from slopewise.demo.runner import job_moves
from slopewise.model import MoveEvent, MoveRecord, PassReport, Results
from slopewise.reports.page import page_of

START = 1_000.0
MOVE = JobMove(10.0, "node-1", "node-2", 0.4, 2.5, 0.0)


def reported(at: float, job_uid: str = "a", **more: Any) -> PassReport:
    """A pass that reports the migration that was decided at `at`."""
    record = MoveRecord(START + at, "node-1", "node-2", steps_before=100.0, **more)
    event = MoveEvent(job_uid, "resumed" if more else "begun", record, "on its way")
    return PassReport(START + at, "specon", {}, START, results=Results(events=(event,)))


def made(at: float) -> MoveMade:
    return MoveMade("node-1", "node-2", START + at + 0.01, START + at + 0.41, START + at + 0.5)


def a_record(*moves: MoveMade) -> JobRecord:
    return JobRecord(JobSpec("a", ["x"], 0.0), 20_000, node="node-2", moves=list(moves))


def a_result(*moves: JobMove) -> DemoResult:
    stays = JobResult("a", 0.0, 40.0, 40.0, None, 10, None, None, 1.0, "finished", node="node-2")
    runs = [
        RunResult(policy, [job], {}, 1, 0, 0, 0, 0.0)
        for policy, job in (("fair", replace(stays, node="node-1")), ("specon", replace(stays, moves=moves)))
    ]
    return DemoResult(runs, "3.5.0", "cgroup v2", 2.0, 5.0, nodes=2)


def test_each_migration_has_what_the_passes_have_learnt_of_that_one() -> None:
    reports = [
        reported(10),
        reported(10, resumed_at_seconds=START + 13.0, resumed_on="node-2", steps_lost=0.0),
        reported(30, resumed_at_seconds=START + 34.0, resumed_on="node-2", steps_lost=7.0),
        reported(10, "b", resumed_at_seconds=START + 99.0, steps_lost=99.0),
    ]
    first, second = job_moves(a_record(made(10), made(30)), reports, START)
    assert (first.from_node, first.node, round(first.at_seconds, 2), round(first.saving_seconds, 2)) == (
        "node-1", "node-2", 10.01, 0.4,
    )  # fmt: skip
    assert (first.pause_seconds, first.steps_lost) == (3.0, 0.0)
    assert (second.pause_seconds, second.steps_lost) == (4.0, 7.0)


def test_of_a_job_that_ended_before_it_was_seen_again_only_the_move_is_known() -> None:
    (move,) = job_moves(a_record(made(10)), [reported(10)], START)
    assert (move.pause_seconds, move.steps_lost) == (None, None)
    (unknown,) = job_moves(a_record(made(10)), [], START)
    assert (unknown.pause_seconds, unknown.steps_lost) == (None, None)


def test_the_cost_of_moves_is_reported_as_far_as_it_is_known() -> None:
    unseen = replace(MOVE, pause_seconds=None, steps_lost=None)
    assert cost_text([]) == ""
    assert cost_text([MOVE]) == "paused 2.5 s, no step lost"
    assert cost_text([MOVE, replace(MOVE, steps_lost=1.0)]) == "paused 5.0 s, 1 step lost"
    assert cost_text([MOVE, unseen]) == "paused 2.5 s, no step lost, 1 not seen at work again"


def test_the_way_of_a_moved_job_is_shown_and_where_nothing_moved_only_its_node() -> None:
    there_and_back = a_result(replace(MOVE, from_node="node-2", node="node-1"), MOVE)
    block = job_blocks(there_and_back)[-1]
    (row,) = block.rows
    assert [cell.text for cell in row.cells] == ["node-1", "node-2 → node-1 → node-2"]
    assert [cell.note for cell in row.cells] == ["", "paused 5.0 s, no step lost"]
    assert block.heading == "Node of each job"


def test_what_all_moves_of_a_run_cost_has_a_row_where_there_were_any() -> None:
    assert [row.label for row in fact_rows(a_result())] == ["Changes made"]
    row, _ = fact_rows(a_result(MOVE))
    assert [(cell.text, cell.note) for cell in row.cells] == [
        ("0 moves", ""),
        ("1 move", "paused 2.5 s, no step lost"),
    ]


def test_the_report_and_the_json_have_the_moves() -> None:
    result = a_result(MOVE)
    page = page_of(report_of(result))
    for shown in ("Running jobs moved", "node-1 → node-2", "paused 2.5 s, no step lost"):
        assert shown in page
    assert "Running jobs moved" not in page_of(report_of(a_result()))
    run = result.as_json()["policy_runs"]["specon"]
    assert (run["jobs_moved"], run["jobs"][0]["moves"][0]["pause_seconds"]) == (1, 2.5)
