"""Reports what lines of output say, from the first loss on: lines of text in, calls of a `Reporter` out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Callable

from slopewise_exporter.logs import Found, LineParser
from slopewise_exporter.logs.names import Names
from slopewise_exporter.logs.text import MAX_COUNT, number_of
from slopewise_exporter.logs.tracker import Tracker
from slopewise_exporter.reporter import Reporter

PATTERN_VARIABLE = "SLOPEWISE_EXPORTER_PATTERN"
"""Patterns for the output, one a line."""

_PLANS = ("epochs_planned", "steps_planned")

_KEPT = 100
"""Findings before the first loss, the newest of them: the plan may be printed long before."""


class OutputFollower:
    """Opens a reporter with the first line that has a loss. Output without one opens none."""

    def __init__(
        self,
        patterns: Sequence[str],
        reporter: Callable[[], Reporter | None],
        command: Callable[[], Sequence[str]] = lambda: (),
    ) -> None:
        """`reporter` opens one, or returns None where nothing is to be reported. PatternError.

        `command`: the arguments of the training, which may have a plan: `--epochs 60`. What is printed replaces it.
        """
        self._parser = LineParser(patterns)
        self._reporter = reporter
        self._command = command
        self._before: deque[Found] = deque(maxlen=_KEPT)
        self._tracked: Reporter | None = None
        self._tracker: Tracker | None = None

    @property
    def reports(self) -> bool:
        """Whether a loss was found and reported."""
        return self._tracked is not None

    def take(self, line: str) -> None:
        """One more line."""
        found = self._parser.parse(line)
        if found is None:
            return
        has_loss = found.loss is not None or found.evaluation is not None
        if self._tracker is None and not has_loss:
            self._before.append(found)
            return
        reporter = self._reporter()
        if reporter is None:
            return
        if self._tracker is None or reporter is not self._tracked:
            self._tracked, self._tracker = reporter, Tracker(reporter)
            self._tracker.take(planned_in(self._command()))
            while self._before:
                self._tracker.take(self._before.popleft())
        self._tracker.take(found)


def planned_in(arguments: Sequence[str]) -> Found:
    """The epochs or steps that options of a command plan: `--epochs 60`, `--max-steps=1000`."""
    names = Names()
    planned: dict[str, Any] = {}
    for option, value in zip(arguments, (*arguments[1:], "")):
        name, separator, own = option.partition("=")
        meaning = names.meaning(name.lstrip("-")) if name.startswith("--") else None
        number = number_of(own if separator else value)
        if meaning is not None and meaning.field in _PLANS and number is not None and 0 < number <= MAX_COUNT:
            planned[meaning.field] = number
    return Found(**planned)


def patterns_in(text: str) -> list[str]:
    """The patterns of `PATTERN_VARIABLE`."""
    return [line for line in text.splitlines() if line.strip()]
