"""Reads recorded losses: those that are shipped in `recorded/` by name, and a user's own from a CSV file.

A file has comments with what was trained, then a table: `done_ratio`, the fraction of the steps, and a column for each
stage of `training_loss`. `python -m replication.recording` writes those that are shipped.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from pathlib import Path

from slopewise.simulator.curves import Recorded, recorded
from slopewise.text import unknown_name

DONE = "done_ratio"

_SHIPPED = files("slopewise.simulator") / "recorded"


def shipped() -> list[str]:
    """The names of the losses that come with Slopewise."""
    return sorted(each.name.removesuffix(".csv") for each in _SHIPPED.iterdir() if each.name.endswith(".csv"))


def is_file(name: str) -> bool:
    """True for a path rather than a name of a shipped one."""
    return "/" in name or name.endswith(".csv")


@cache
def recorded_loss(name: str, stage: str) -> Recorded:
    """The curve of one stage of a recorded training; ValueError says what is wrong, without a full stop."""
    if not is_file(name) and name not in shipped():
        more = ", or a path such as ./my-loss.csv"
        raise ValueError(unknown_name("recorded loss", name, shipped(), more).removesuffix("."))
    rows = list(csv.DictReader(line for line in _text(name).splitlines() if not line.startswith("#")))
    columns = list(rows[0]) if rows else []
    if not {DONE, stage} <= set(columns):
        raise ValueError(f"{name} needs the columns {DONE} and {stage}, and has {', '.join(columns) or 'none'}")
    try:
        pairs = [(float(row[DONE]), float(row[stage])) for row in rows]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} holds something other than numbers below its first row") from error
    return recorded(pairs)


def _text(name: str) -> str:
    if not is_file(name):
        return (_SHIPPED / f"{name}.csv").read_text(encoding="utf-8")
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        detail = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ValueError(f"{name} cannot be read ({detail}); give the path of a readable CSV file") from error
