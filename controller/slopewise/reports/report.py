"""A report: sections of tables, charts, texts and notes, printed to a terminal or rendered as one HTML page.

`demo`, `simulate`, `advise` and `run --local` build theirs of these parts; `terminal` and `page.py` draw any of them.
Foreign text is kept as it is: a terminal gets `Text` and never markup, and the template escapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar, Literal

from rich import text as rich_text
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table as Grid

from slopewise.reports.cells import Row
from slopewise.reports.columns import Column, fitting, remarks, table_of
from slopewise.reports.comparison_table import ComparisonTable
from slopewise.reports.estimates import Verdict
from slopewise.reports.plots import Plot
from slopewise.reports.wording import plain
from slopewise.text import printable

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


@dataclass(frozen=True, slots=True)
class Facts:
    """Figures beside what they are."""

    kind: ClassVar[str] = "facts"
    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph. `style`: rich's, or `code`, which keeps its lines."""

    kind: ClassVar[str] = "text"
    text: str
    style: str = ""


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
            drawn += [remarks(_lines(parts))] if are_notes else [_Drawn(part) for part in parts]
    return Group(*drawn)


def _lines(notes: Iterable[Part]) -> Iterator[tuple[str, str, str]]:
    """A line for each word, so that all words of a section share a column."""
    for part in notes:
        if isinstance(part, Notes):
            for word, style, phrases in part.rows:
                said = "; ".join(phrases)
                yield word, style, f"{part.subject}: {said or 'nothing'}" if part.subject else said


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Laid out when it is drawn, because only then the width is known. What is for a page only is nothing."""

    part: Part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        part = self.part
        if isinstance(part, Comparison):
            yield ComparisonTable(part.title, part.policies, part.blocks, part.baseline)
        elif isinstance(part, Table):
            order = [column.heading for column in part.whole]
            yield table_of(fitting(part.columns, order, options.max_width), part.rows)
        elif isinstance(part, Text):
            code = part.style == "code"
            yield rich_text.Text(printable(part.text) if code else plain(part.text), style="" if code else part.style)
        elif isinstance(part, Facts):
            grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
            for _ in range(2):
                grid.add_column(overflow="fold")
            for what, figure in part.rows:
                grid.add_row(what, rich_text.Text(plain(figure)))
            yield grid


def _charts(sections: Sequence[Section]) -> Iterator[Chart]:
    for part in (part for section in sections for part in section.parts):
        if isinstance(part, Chart):
            yield part
        elif isinstance(part, Cards):
            yield from _charts(part.cards)
