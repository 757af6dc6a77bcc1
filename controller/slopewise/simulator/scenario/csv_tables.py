"""Reads CSV files that a scenario names: jobs, curves and recorded losses. Each refusal is a ValueError.

A file has a row of column names, then a row for each entry. Lines that begin with `#` are comments.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path

Row = dict[str, object]

MAX_BYTES = 64 * 2**20
"""100,000 jobs take about 10 MiB; more is not a workload, but another file."""


def numbers(path: str, columns: tuple[str, str], text: str | None = None) -> list[tuple[float, float]]:
    """The figures of two columns, row by row. `text`: what the file holds, where it is known."""
    rows = _rows(path, text)
    known = list(rows[0]) if rows else []
    if not set(columns) <= set(known):
        raise ValueError(f"{path} needs the columns {' and '.join(columns)}, and has {', '.join(known) or 'none'}")
    first, second = columns
    try:
        return [(float(row[first]), float(row[second])) for row in rows]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} holds something other than numbers below its first row") from error


def entries(path: str, texts: Sequence[str], text: str | None = None) -> list[Row]:
    """A mapping for each row, without its empty cells; a cell is a number, true, false, a list `[1, 2]`, or text.

    The columns in `texts` are always text: a job may be named 7. `text`: what the file holds, where it is known.
    """
    found: list[Row] = []
    for number, row in enumerate(_rows(path, text), start=1):
        if None in row or None in row.values():
            raise ValueError(f"{path}: row {number} has not as many cells as there are columns; complete it")
        cells = {key: cell.strip() for key, cell in row.items()}
        found.append({key: cell if key in texts else _value(cell) for key, cell in cells.items() if cell})
    if not found:
        raise ValueError(f"{path} has no rows; write the names of the columns, then a row for each job")
    return found


def _value(cell: str) -> object:
    try:
        value: object = json.loads(cell)
    except ValueError:
        return cell
    return cell if isinstance(value, float) and not math.isfinite(value) else value


def _rows(path: str, text: str | None = None) -> list[dict[str, str]]:
    known = _text(path) if text is None else text
    lines = (line for line in known.splitlines() if line.strip() and not line.startswith("#"))
    try:
        return list(csv.DictReader(lines, skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise ValueError(f"{path} is not CSV ({error}); correct it") from error


def _text(path: str) -> str:
    file = Path(path)
    try:
        if file.stat().st_size > MAX_BYTES:
            raise ValueError(f"{path} is larger than {MAX_BYTES >> 20} MiB; give a file of fewer rows")
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        detail = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ValueError(f"{path} cannot be read ({detail}); give the path of a readable CSV file") from error
