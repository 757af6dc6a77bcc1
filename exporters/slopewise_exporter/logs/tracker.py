"""From what lines say to calls of a `Reporter`: how many steps were done since the last line, how many are planned."""

from __future__ import annotations

from slopewise_exporter.logs.found import Found
from slopewise_exporter.reporter import Reporter


class Tracker:
    """Takes what is found, in order, and reports it. One for each training."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def take(self, found: Found) -> None:
        """One more line. Never raises."""
        if found.loss is not None:
            self._reporter.step(found.loss)
