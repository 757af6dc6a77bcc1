"""Renders a comparison of policies: a column for each where the terminal has room, else a line for each figure.

First each comparison moves below its figure, then labels wrap between words, and then there are no columns at all. No
name and no figure is cut. Cells are `Text` and never markup, because names are foreign.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from slopewise.reports.cells import Cell, Row
from slopewise.reports.estimates import Verdict
from slopewise.reports.wording import plain

STYLES: Mapping[Verdict | None, str] = {"better": "green", "worse": "red", "same": "dim", "unclear": "dim", None: ""}

_ANY_WIDTH = 10_000
"""Wider than any table: how wide one would be."""


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """Laid out when it is drawn, because only then the width is known."""

    title: str
    policies: Sequence[str]
    """The first is what the others are compared with."""
    blocks: Sequence[tuple[str, Sequence[Row]]]
    """Each under its heading; those without one are measures, the others of jobs."""
    baseline: str = ""
    """What a ratio is of; the first policy otherwise."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unbound = options.update(width=_ANY_WIDTH)
        words = [word for _, rows in self.blocks for row in rows for word in row.label.split()]
        longest_word = max(map(len, words), default=0)
        for stacked, label_width in ((False, None), (True, None), (True, longest_word)):
            table = self._table(stacked=stacked, label_width=label_width)
            if Measurement.get(console, unbound, table).maximum <= options.max_width:
                yield table
                return
        yield from self._lines()

    def _table(self, *, stacked: bool, label_width: int | None) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(Text(plain(self.title), style="bold"), overflow="fold", width=label_width)
        for policy in self.policies:
            table.add_column(Text(plain(policy), style="bold"), overflow="fold")
        for heading, rows in self.blocks:
            if heading:
                table.add_row(Text(plain(heading), style="bold"))
            for row in rows:
                table.add_row(Text(plain(row.label)), *(_cell_text(cell, stacked=stacked) for cell in row.cells))
        return table

    def _lines(self) -> Iterator[Text]:
        if self.title:
            yield Text(plain(self.title), style="bold", overflow="fold")
        for heading, rows in self.blocks:
            if heading:
                yield Text(plain(heading), style="bold", overflow="fold")
            for row in rows:
                label = row.label if heading else _uncapitalised(row.label)
                for policy, cell in zip(self.policies, row.cells, strict=True):
                    figure = Text(plain(f"{policy}: {label} {cell.text}".rstrip()), overflow="fold")
                    if cell.badge:
                        against = _against(cell, self.baseline or self.policies[0])
                        figure.append(", " if cell.text else " ").append(plain(against), style=STYLES[cell.verdict])
                    yield figure.append(f" ({cell.note})", style="dim") if cell.note else figure


def _cell_text(cell: Cell, *, stacked: bool) -> Text:
    text = Text(cell.text)
    if cell.badge:
        between = "\n" if stacked else "  "
        text.append(between if cell.text else "").append(cell.badge, style=STYLES[cell.verdict])
    if cell.note:
        text.append(f"\n({cell.note})", style="dim")
    return text


def _against(cell: Cell, baseline: str) -> str:
    """`×0.94 of fair, better`; of what is no ratio the badge itself."""
    if not cell.badge.startswith("×"):
        return cell.badge
    ratio = cell.badge.removesuffix(f" {cell.verdict}")
    return f"{ratio} of {baseline}" + (f", {cell.verdict}" if ratio != cell.badge else "")


def _uncapitalised(label: str) -> str:
    """As within a sentence: `mean completion time`, and `CPU of everything else`."""
    return label if label[1:2].isupper() else label[:1].lower() + label[1:]
