"""Renders the comparison of a demo's runs as a table for the terminal.

Nothing is said by colour alone: rich drops colours where NO_COLOR is set or no terminal listens. Cells are `Text` and
never markup, because job names and reasons are foreign.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slopewise.demo.report.comparison import (
    ROUND_HEADINGS,
    Summary,
    caveats,
    condition_rows,
    job_blocks,
    measure_rows,
    round_rows,
    summaries,
)
from slopewise.demo.report.job_moves import move_rows
from slopewise.demo.report.results import DemoResult
from slopewise.reports.cells import AnyCell, Row
from slopewise.reports.columns import one_line
from slopewise.reports.wording import plain

_VERDICT_STYLES = {"better": "green", "worse": "red", "same": "dim", "unclear": "dim", None: ""}
# Labels of 20 columns, `fair` of 8 and two policies of 22 fit 80 columns; more put the ratio below the figure.
_RUNS_ON_ONE_LINE = 3
# With intervals, `fair` takes 17 and each policy 33.
_RUNS_OF_ROUNDS_ON_ONE_LINE = 2


def comparison(result: DemoResult) -> RenderableType:
    """The end of a demo: each measure and each job by policy with its ratio, then what is better and worse."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for run in result.runs:
        table.add_column(Text(plain(run.policy), style="bold"), no_wrap=True)
    stacked = len(result.runs) > (_RUNS_ON_ONE_LINE if len(result.rounds) == 1 else _RUNS_OF_ROUNDS_ON_ONE_LINE)
    for heading, rows in _blocks(result):
        if heading:
            table.add_row(one_line(heading, style="bold"))
        for row in rows:
            table.add_row(one_line(row.label), *(_cell_text(cell, stacked=stacked) for cell in row.cells))
    rounds: list[RenderableType] = [_rounds(result), ""] if len(result.rounds) > 1 else []
    return Group(table, "", *rounds, _footer(result))


def _rounds(result: DemoResult) -> Table:
    """Every run with its own figures, and whether it is in the ratios."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("Round", "Policy", *ROUND_HEADINGS):
        table.add_column(heading)
    for row in round_rows(result):
        note = "" if row.compared else "  (not compared)"
        table.add_row(str(row.number), Text(row.policy), *row.figures[:-1], f"{row.figures[-1]}{note}")
    return table


def _blocks(result: DemoResult) -> Iterator[tuple[str, list[Row]]]:
    yield "", [*measure_rows(result), *move_rows(result), *condition_rows(result)]
    for block in job_blocks(result):
        yield block.heading, list(block.rows)


def _cell_text(cell: AnyCell, *, stacked: bool) -> Text:
    text = Text(cell.text)
    if cell.badge:
        text.append("\n" if stacked else "  ")
        text.append(cell.badge, style=_VERDICT_STYLES[cell.verdict])
    if cell.note:
        text.append(f"\n({cell.note})", style="dim")
    return text


def _footer(result: DemoResult) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for summary in summaries(result):
        if not summary.compared:
            text = f"{summary.policy} is not compared with {summary.baseline}; the notes say why"
            grid.add_row(Text("no verdict", style="yellow"), Text(text))
            continue
        grid.add_row(Text("better", style="green"), _phrases(summary, summary.better))
        grid.add_row(Text("worse", style="red"), _phrases(summary, summary.worse))
        if summary.unclear:
            grid.add_row(Text("unclear", style="dim"), _phrases(summary, summary.unclear))
    for note in caveats(result):
        grid.add_row(Text("note", style="yellow"), Text(note))
    return grid


def _phrases(summary: Summary, phrases: Sequence[str]) -> Text:
    return Text(f"{summary.policy} against {summary.baseline}: {'; '.join(phrases) or 'nothing'}")
