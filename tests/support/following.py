"""What the tests of the log reader share: a reporter that keeps what it is given, lines fed to it, files that grow."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from slopewise_exporter.logs import Found, LineParser, Tracker


class Kept:
    """A reporter of which the last values stay."""

    def __init__(self) -> None:
        self.steps = 0
        self.epochs = 0
        self.planned: float | None = None
        self.losses: list[float] = []
        self.evaluations: list[float] = []
        self.restarts = 0
        self.ended: str | None = None
        self.times: list[float | None] = []

    def advance_to(
        self, steps: int, epochs: int, loss: float | None = None, *, at_seconds: float | None = None
    ) -> None:
        self.steps, self.epochs = steps, epochs
        self.times.append(at_seconds)
        if loss is not None:
            self.losses.append(loss)

    def plan(self, steps: float | None, *, upper_bound: bool = False) -> None:
        self.planned = steps

    def evaluate(self, value: float) -> None:
        self.evaluations.append(value)

    def begin_again(self) -> None:
        self.restarts += 1
        self.ended = None

    def mark_ended(self, *, failed: bool) -> None:
        self.ended = "failed" if failed else "finished"


def found_in(line: str, **names: list[str]) -> dict[str, Any]:
    """What a line says, by the fields of `Found`."""
    return (LineParser(names=names).parse(line) or Found()).said


def read(lines: Iterable[str], parser: LineParser | None = None) -> Kept:
    """What a training with these lines has reported."""
    kept = Kept()
    tracker = Tracker(kept)
    parser = parser or LineParser()
    for line in lines:
        found = parser.parse(line)
        if found is not None:
            tracker.take(found)
    return kept


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
