"""What all sources have in common: a log, a CSV file, event files, the run folders of MLflow and Weights & Biases."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Callable

from slopewise_exporter.logs import Found
from slopewise_exporter.logs.names import Names
from slopewise_exporter.logs.text import found_in_pairs
from slopewise_exporter.values import Checker

Take = Callable[[Found, "float | None"], None]
"""Gets what is found, and when it was written where that is in the past."""


class SourceError(Exception):
    """A source that cannot be read at all; the message is one sentence for its user."""


class Source:
    """Something that a training writes, and that is followed while it does."""

    ended = False
    """Whether it says itself that the training has ended."""

    failed = False
    """Whether the last that it says is that the training has failed."""

    def __init__(self, where: object) -> None:
        """`where`: for messages."""
        self.where = str(where)

    @property
    def position(self) -> dict[str, Any]:
        """What `resume` takes; JSON."""
        return {}

    def resume(self, position: dict[str, Any]) -> None:
        """Go on where another one was. KeyError, TypeError or ValueError where it is no position."""

    def poll(self) -> bool:
        """Hand over what is there, a limited amount at a time; False: there is nothing now. Never raises."""
        raise NotImplementedError

    def wait(self, seconds: float) -> None:
        """Until there may be more."""
        time.sleep(seconds)

    def close(self) -> None:
        """Hand over what is left, and let go of files."""


class NamedValues(Source):
    """A source of values with names, out of which the `names` choose."""

    def __init__(self, where: object, names: Names, take: Take, check: Checker) -> None:
        super().__init__(where)
        self._names = names
        self._take = take
        self._check = check

    def _take_plan(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Of a run's parameters only the plan counts."""
        found = found_in_pairs(self._names, pairs)
        if found is not None and (found.steps_planned or found.epochs_planned):
            self._take(Found(steps_planned=found.steps_planned, epochs_planned=found.epochs_planned), None)
