"""Reads recorded losses: those that are shipped in `recorded/` by name, and a user's own from a CSV file.

A file has comments with what was trained, then a table: `done_ratio`, the fraction of the steps, and a column for each
stage of `training_loss`. `python -m replication.recording` writes those that are shipped.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from slopewise.simulator.curves import Recorded, recorded
from slopewise.simulator.scenario import csv_tables
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
    shipped_text = None if is_file(name) else (_SHIPPED / f"{name}.csv").read_text(encoding="utf-8")
    return recorded(csv_tables.numbers(name, (DONE, stage), shipped_text))
