"""Finds out that no pass has observed for three intervals, so that original resources are restored.

A job that waited when the outage began may have the floor's CPU, and nothing would ever raise it. A shorter outage
changes nothing. An outage ends with the first pass that observes, which decides from what the jobs have then.
"""

from __future__ import annotations

from dataclasses import replace

from slopewise.model import PassReport

OUTAGE_INTERVALS = 3
"""Two held passes in a row may be a restart of Prometheus."""

_UNCHANGED = "; nothing is changed meanwhile"


class Outage:
    """Follows the reports of one policy's passes."""

    def __init__(self, interval_seconds: float, now_seconds: float, *, restores: bool) -> None:
        """`restores`: whether the policy changes jobs at all."""
        self._interval_seconds = interval_seconds
        self._expected_since_seconds = now_seconds
        """An interval before the next observation was expected: a policy may have planned a longer pause."""
        self._restores = restores
        self.lasts = False
        """True once original resources are to be restored, until a pass observes."""

    def note(self, report: PassReport) -> PassReport:
        """The report of a pass, which says so when its outage has lasted for so long."""
        if report.held is None or report.policy_failed:
            planned_seconds = report.requeue_at_seconds - self._interval_seconds
            self._expected_since_seconds = max(report.taken_at_seconds, planned_seconds)
            self.lasts = False
            return report
        seconds = report.taken_at_seconds - self._expected_since_seconds
        self.lasts = self._restores and seconds >= OUTAGE_INTERVALS * self._interval_seconds
        if not self.lasts:
            return report
        restored = f"No observation for {seconds:.0f} s, {OUTAGE_INTERVALS} intervals: original resources are restored."
        return replace(report, held=f"{report.held.replace(_UNCHANGED, '')} {restored}")
