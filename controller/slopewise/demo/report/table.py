"""Renders the comparison of a demo's runs as a table for the terminal.

Nothing is said by colour alone: rich drops colours where NO_COLOR is set or no terminal listens. Cells are `Text` and
never markup, because job names and reasons are foreign.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from slopewise.demo.report.comparison import (
    ROUND_HEADINGS,
    RoundRow,
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
from slopewise.reports.cells import Row
from slopewise.reports.columns import Column, fitting, named, remarks, sized, table_of
from slopewise.reports.comparison_table import ComparisonTable


def comparison(result: DemoResult) -> RenderableType:
    """The end of a demo: each measure and each job by policy with its ratio, then what is better and worse."""
    table = ComparisonTable("", [run.policy for run in result.runs], list(_blocks(result)))
    rounds: list[RenderableType] = [_Rounds(round_rows(result)), ""] if len(result.rounds) > 1 else []
    return Group(table, "", *rounds, remarks(_footer(result)))


@dataclass(frozen=True, slots=True)
class _Rounds:
    """Every run with its own figures, and whether it is in the ratios."""

    rows: Sequence[RoundRow]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        order = ("Round", "Policy", *ROUND_HEADINGS, "Compared")
        yield table_of(fitting(self._wanted(), order, options.max_width), self.rows)

    def _wanted(self) -> Iterator[Column[RoundRow]]:
        yield named("Policy", self.rows, lambda row: row.policy)
        yield sized("Round", self.rows, lambda row: Text(str(row.number)))
        if not all(row.compared for row in self.rows):
            yield sized("Compared", self.rows, lambda row: Text("yes" if row.compared else "no"))
        for place, heading in enumerate(ROUND_HEADINGS):
            yield sized(heading, self.rows, lambda row, place=place: Text(row.figures[place]))  # type: ignore[misc]


def _blocks(result: DemoResult) -> Iterator[tuple[str, list[Row]]]:
    yield "", [*measure_rows(result), *move_rows(result), *condition_rows(result)]
    for block in job_blocks(result):
        yield block.heading, list(block.rows)


def _footer(result: DemoResult) -> Iterator[tuple[str, str, str]]:
    for summary in summaries(result):
        if not summary.compared:
            yield "no verdict", "yellow", f"{summary.policy} is not compared with {summary.baseline}; the notes say why"
            continue
        yield "better", "green", _phrases(summary, summary.better)
        yield "worse", "red", _phrases(summary, summary.worse)
        if summary.unclear:
            yield "unclear", "dim", _phrases(summary, summary.unclear)
    for note in caveats(result):
        yield "note", "yellow", note


def _phrases(summary: Summary, phrases: Sequence[str]) -> str:
    return f"{summary.policy} against {summary.baseline}: {'; '.join(phrases) or 'nothing'}"
