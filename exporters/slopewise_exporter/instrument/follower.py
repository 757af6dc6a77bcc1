"""Reports what lines of output say, from the first loss on: lines of text in, calls of a `Reporter` out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Callable

from slopewise_exporter.logs import Found, LineParser
from slopewise_exporter.logs.tracker import Tracker
from slopewise_exporter.reporter import Reporter

PATTERN_VARIABLE = "SLOPEWISE_EXPORTER_PATTERN"
"""Patterns for the output, one a line."""

_KEPT = 100
"""Findings before the first loss, the newest of them: the plan may be printed long before."""


class OutputFollower:
    """Opens a reporter with the first line that has a loss. Output without one opens none."""

    def __init__(self, patterns: Sequence[str], reporter: Callable[[], Reporter | None]) -> None:
        """`reporter` opens one, or returns None where nothing is to be reported. PatternError."""
        self._parser = LineParser(patterns)
        self._reporter = reporter
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
            while self._before:
                self._tracker.take(self._before.popleft())
        self._tracker.take(found)


def patterns_in(text: str) -> list[str]:
    """The patterns of `PATTERN_VARIABLE`."""
    return [line for line in text.splitlines() if line.strip()]
