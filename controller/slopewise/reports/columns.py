"""Fits tables to the terminal's width: names in full, and as many of the other columns as there is room for.

A name that is longer than its column goes on in the next line. rich itself would cut it.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import Generic, Literal, TypeVar

from rich.table import Table
from rich.text import Text

from slopewise.reports.wording import no_formula, plain

R = TypeVar("R")

MIN_NAME_WIDTH = 20
"""A name has half of the terminal, and at least this."""


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """One column, how wide it is, and what it shows of a row."""

    heading: str
    width: int
    cell: Callable[[R], Text]
    justify: Literal["left", "right"] = "left"
    instead_of: str | None = None
    """The heading of a narrower column, whose place it takes where there is room."""
    fills: bool = False
    """It takes the remaining width, and `width` at least."""
    is_name: bool = False
    """It may have half of the width, or its own."""
    wraps: bool = False
    """It may go on in the next line, and is never cut, like a name."""


def sized(
    heading: str,
    rows: Sequence[R],
    cell: Callable[[R], Text],
    justify: Literal["left", "right"] = "left",
    *,
    min_width: int = 0,
    max_width: int = 40,
    instead_of: str | None = None,
) -> Column[R]:
    """A column as wide as the widest of its cells, within bounds."""
    widest = max((cell(row).cell_len for row in rows), default=0)
    width = min(max_width, max(min_width, len(heading.strip()), widest))
    return Column(heading, width, cell, justify, instead_of)


def named(heading: str, rows: Sequence[R], name: Callable[[R], str]) -> Column[R]:
    """A column of foreign names."""

    def cell(row: R) -> Text:
        return Text(plain(name(row)))

    widest = max(map(len, (heading, *map(name, rows))))
    return replace(sized(heading, rows, cell, max_width=widest), is_name=True)


def fitting(wanted: Iterable[Column[R]], order: Sequence[str], width: int) -> list[Column[R]]:
    """The columns that fit, chosen in the order of `wanted` and returned in that of `order`."""
    chosen: dict[str, Column[R]] = {}
    left = width
    for each in wanted:
        column = replace(each, width=min(each.width, max(MIN_NAME_WIDTH, width // 2))) if each.is_name else each
        narrower = None if column.instead_of is None else chosen.get(column.instead_of)
        needed = column.width + 1 - (narrower.width + 1 if narrower else 0)
        if chosen and needed > left:
            continue
        if narrower is not None:
            del chosen[narrower.heading]
        chosen[column.heading] = column
        left -= needed
    whole = [replace(each, width=each.width + left) if each.fills else each for each in chosen.values()]
    return sorted(whole, key=lambda column: order.index(column.heading))


def table_of(columns: Sequence[Column[R]], rows: Iterable[R]) -> Table:
    """The rows; what is too long ends with an ellipsis, unless it is a name."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for each in columns:
        wraps = each.is_name or each.wraps
        cut: Literal["fold", "ellipsis"] = "fold" if wraps else "ellipsis"
        heading = Text(each.heading.strip())  # of an argument it is foreign text
        table.add_column(heading, no_wrap=not wraps, overflow=cut, justify=each.justify, width=each.width)
    for row in rows:
        table.add_row(*(each.cell(row) for each in columns))
    return table


def one_line(text: str, style: str = "") -> Text:
    """Foreign text, cut with an ellipsis where it is too long."""
    return Text(plain(text), style=style, no_wrap=True, overflow="ellipsis")


def listing_of(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Rows of foreign texts, of which each may go on in the next line; none of them is markup."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(each)) for each in row))
    return table


def remarks(rows: Iterable[tuple[str, str, str]]) -> Table:
    """A line for each remark: what it is, in which style, and its text."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for what, style, text in rows:
        grid.add_row(Text(what, style=style), Text(plain(text)))
    return grid


def csv_text(rows: Iterable[Mapping[str, object]], names: Sequence[str]) -> str:
    """A line for each row; no cell is a formula to a spreadsheet. What is not known is empty."""
    writer = csv.DictWriter(text := StringIO(), names, lineterminator="\n")
    for row in ({name: name for name in names}, *rows):
        writer.writerow({name: no_formula(cell) if isinstance(cell, str) else cell for name, cell in row.items()})
    return text.getvalue()
