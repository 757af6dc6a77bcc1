"""Reads what threads beyond the CPU in effect cost, by library: `thread_penalties.csv`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from slopewise.simulator.scenario import csv_tables
from slopewise.simulator.world.threads import Penalty, ThreadBehaviour, Threads

_TABLE = files("slopewise.simulator") / "thread_penalties.csv"


def libraries() -> list[str]:
    """The libraries that were measured."""
    return sorted({library for library, _ in _measured()})


def threads_of(number: int, behaviour: ThreadBehaviour, library: str) -> Threads:
    """The threads of a job. Those that follow wait without spinning, as under the exporter."""
    return Threads(number, behaviour, _measured()[library, "spin" if behaviour == "spin" else "wait"])


@cache
def _measured() -> dict[tuple[str, str], tuple[Penalty, ...]]:
    """By library and behaviour."""
    found: dict[tuple[str, str], list[Penalty]] = {}
    text = _TABLE.read_text(encoding="utf-8")
    for row in csv_tables.entries("thread_penalties.csv", ("library", "behaviour"), text):
        library, behaviour = str(row.pop("library")), str(row.pop("behaviour"))
        found.setdefault((library, behaviour), []).append(Penalty(**row))  # type: ignore[arg-type]
    return {key: tuple(sorted(penalties)) for key, penalties in found.items()}
