"""Fits tables to the terminal's width: names in full, and as many of the other columns as there is room for.

rich itself would narrow the columns that may wrap, which are the names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

from rich.table import Table
from rich.text import Text

from slopewise.reports.wording import plain

R = TypeVar("R")


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


def fitting(wanted: Iterable[Column[R]], order: Sequence[str], width: int) -> list[Column[R]]:
    """The columns that fit, chosen in the order of `wanted` and returned in that of `order`."""
    chosen: dict[str, Column[R]] = {}
    left = width
    for column in wanted:
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
    """The rows, one line each; what is too long ends with an ellipsis."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for each in columns:
        table.add_column(each.heading.strip(), no_wrap=True, justify=each.justify, width=each.width)
    for row in rows:
        table.add_row(*(each.cell(row) for each in columns))
    return table


def one_line(text: str, style: str = "") -> Text:
    """Foreign text, cut with an ellipsis where it is too long."""
    return Text(plain(text), style=style, no_wrap=True, overflow="ellipsis")


def as_text(*cells: str) -> list[Text]:
    """Foreign cells of a row that may wrap; none of them is markup."""
    return [Text(plain(each)) for each in cells]
