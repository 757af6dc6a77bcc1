"""A report: sections of tables, charts, texts and notes, printed to a terminal or rendered as one HTML page.

`demo`, `simulate`, `advise` and `run --local` build theirs of these parts; `terminal` and `page.py` draw any of them.
Foreign text is kept as it is: a terminal gets `Text` and never markup, and the template escapes.

A comparison of policies has a column for each where the terminal has room: first each comparison moves below its
figure, then labels wrap between words, and then each figure has a line. No name and no figure is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar, Literal

from rich import text as rich_text
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as Grid

from slopewise.reports.cells import Cell, Row
from slopewise.reports.columns import Column, fitting, remarks, table_of
from slopewise.reports.estimates import Verdict
from slopewise.reports.plots import Plot
from slopewise.reports.wording import plain, uncapitalised
from slopewise.text import printable

STYLES: Mapping[Verdict | None, str] = {"better": "green", "worse": "red", "same": "dim", "unclear": "dim", None: ""}

_ANY_WIDTH = 10_000
"""Wider than any table: how wide one would be."""


def _cell_text(cell: Cell, *, stacked: bool) -> rich_text.Text:
    text = rich_text.Text(cell.text)
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


Medium = Literal["terminal", "page"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows of cells beside one another, one for each policy, with their verdicts."""

    kind: ClassVar[str] = "comparison"
    title: str
    """Stands above the labels."""
    policies: Sequence[str]
    blocks: Sequence[tuple[str, Sequence[Row]]]
    """Each under its heading; those without one are measures, the others of jobs."""
    caption: str = ""
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

    def _table(self, *, stacked: bool, label_width: int | None) -> Grid:
        table = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(rich_text.Text(plain(self.title), style="bold"), overflow="fold", width=label_width)
        for policy in self.policies:
            table.add_column(rich_text.Text(plain(policy), style="bold"), overflow="fold")
        for heading, rows in self.blocks:
            if heading:
                table.add_row(rich_text.Text(plain(heading), style="bold"))
            for row in rows:
                cells = (_cell_text(cell, stacked=stacked) for cell in row.cells)
                table.add_row(rich_text.Text(plain(row.label)), *cells)
        return table

    def _lines(self) -> Iterator[rich_text.Text]:
        if self.title:
            yield rich_text.Text(plain(self.title), style="bold", overflow="fold")
        for heading, rows in self.blocks:
            if heading:
                yield rich_text.Text(plain(heading), style="bold", overflow="fold")
            for row in rows:
                label = row.label if heading else uncapitalised(row.label)
                for policy, cell in zip(self.policies, row.cells, strict=True):
                    figure = rich_text.Text(plain(f"{policy}: {label} {cell.text}".rstrip()), overflow="fold")
                    if cell.badge:
                        against = _against(cell, self.baseline or self.policies[0])
                        figure.append(", " if cell.text else " ").append(plain(against), style=STYLES[cell.verdict])
                    yield figure.append(f" ({cell.note})", style="dim") if cell.note else figure


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of records. A terminal shows the columns that fit, by importance, a page all of them."""

    kind: ClassVar[str] = "table"
    columns: Sequence[Column[Any]]
    """By importance."""
    rows: Sequence[Any]
    order: Sequence[str] = ()
    """Headings from left to right; as `columns`, where empty."""
    caption: str = ""

    @property
    def whole(self) -> Sequence[Column[Any]]:
        """All columns from left to right."""
        return sorted(self.columns, key=lambda column: self.order.index(column.heading)) if self.order else self.columns

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        order = [column.heading for column in self.whole]
        yield table_of(fitting(self.columns, order, options.max_width), self.rows)


@dataclass(frozen=True, slots=True)
class Facts:
    """Figures beside what they are."""

    kind: ClassVar[str] = "facts"
    rows: Sequence[tuple[str, str]]

    def __rich__(self) -> RenderableType:
        grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        for _ in range(2):
            grid.add_column(overflow="fold")
        for what, figure in self.rows:
            grid.add_row(what, rich_text.Text(plain(figure)))
        return grid


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph. `style`: rich's, or `code`, which keeps its lines."""

    kind: ClassVar[str] = "text"
    text: str
    style: str = ""

    def __rich__(self) -> RenderableType:
        code = self.style == "code"
        return rich_text.Text(printable(self.text) if code else plain(self.text), style="" if code else self.style)


@dataclass(frozen=True, slots=True)
class Notes:
    """Sentences, each after a word that says what it is. A page shows them under those words."""

    kind: ClassVar[str] = "notes"
    rows: Sequence[tuple[str, str, Sequence[str]]]
    """The word, its style, and phrases that belong together."""
    subject: str = ""
    """What the phrases are of, which a terminal says before them."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """The figures that come first, each in a box coloured by its verdict; on a page only."""

    kind: ClassVar[str] = "tiles"
    tiles: Sequence[tuple[str, str, str, Verdict | None]]
    """What it is, the figure, what stands below it, and the verdict."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart; on a page only."""

    kind: ClassVar[str] = "chart"
    id: str
    caption: str
    plot: Plot
    label: str
    """For who cannot see it."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Jobs:
    """Buttons that show single jobs in all charts; on a page only."""

    kind: ClassVar[str] = "jobs"
    jobs: Sequence[tuple[str, str]]
    """Names and colours, by the place that charts know a job by."""


@dataclass(frozen=True, slots=True)
class Cards:
    """Sections beside one another; on a page only."""

    kind: ClassVar[str] = "cards"
    cards: Sequence[Section]


Part = Comparison | Table | Facts | Text | Notes | Tiles | Chart | Jobs | Cards
_DRAWN = (Comparison, Table, Facts, Text)
"""What a terminal can draw; those whose width is known only then lay themselves out."""


@dataclass(frozen=True, slots=True)
class Section:
    """Parts that belong together. A terminal leaves the heading out and an empty line between two sections."""

    heading: str
    parts: Sequence[Part]
    on: Medium | None = None
    """None: on both."""


@dataclass(frozen=True, slots=True)
class Report:
    """One report."""

    title: str
    sections: Sequence[Section]
    lead: str = ""
    """The rest is for a page, whose notes are read first."""
    notes: Sequence[str] = ()
    footer: Sequence[str] = ()

    def of(self, medium: Medium) -> list[Section]:
        """The sections that it has there."""
        return [section for section in self.sections if section.on in (None, medium) and section.parts]

    @property
    def charts(self) -> Iterator[Chart]:
        """Every chart of the page."""
        return _charts(self.of("page"))


def notes_of(sentences: Sequence[str]) -> list[Part]:
    """The sentences as notes; none where there are none."""
    return [Notes([("note", "yellow", [sentence]) for sentence in sentences])] if sentences else []


def terminal(report: Report) -> RenderableType:
    """The report as tables for a terminal."""
    drawn: list[RenderableType] = []
    for section in report.of("terminal"):
        drawn += [""] * bool(drawn)
        for are_notes, group in groupby(section.parts, lambda part: isinstance(part, Notes)):
            parts = list(group)
            drawn += [remarks(_lines(parts))] if are_notes else [each for each in parts if isinstance(each, _DRAWN)]
    return Group(*drawn)


def _lines(notes: Iterable[Part]) -> Iterator[tuple[str, str, str]]:
    """A line for each word, so that all words of a section share a column."""
    for part in notes:
        if isinstance(part, Notes):
            for word, style, phrases in part.rows:
                said = "; ".join(phrases)
                yield word, style, f"{part.subject}: {said or 'nothing'}" if part.subject else said


def _charts(sections: Sequence[Section]) -> Iterator[Chart]:
    for part in (part for section in sections for part in section.parts):
        if isinstance(part, Chart):
            yield part
        elif isinstance(part, Cards):
            yield from _charts(part.cards)
