"""Figures of arrivals that are held back: how long they have waited, and how many had to be let in without room. Pure.

Worked example: of two that arrived 100 s and 400 s ago and may wait for 600 s each, the oldest has waited for 400 s and
used 0.67 of its time. If the next pass, at 600 s, does not hold it back, its wait is over: it is let in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from slopewise.model import Hold, PassReport


class HeldJobs(NamedTuple):
    """The arrivals that one pass holds back."""

    jobs: int = 0
    oldest_seconds: float = 0.0
    """How long the one that has waited longest has waited."""
    used_ratio: float = 0.0
    """The largest part of its time that one of them has used; at 1 it is let in."""


def held_jobs(report: PassReport) -> HeldJobs:
    """Of a pass that observed."""
    now = report.taken_at_seconds
    arrived_at = {each.uid: each.arrived_at_seconds for each in (report.snapshot.waiting if report.snapshot else ())}
    waits = [
        (max(0.0, now - arrived_at.get(uid, now)), hold.until_seconds - now) for uid, hold in report.held_back.items()
    ]
    oldest = max((waited for waited, _ in waits), default=0.0)
    return HeldJobs(len(waits), oldest, max((_used_ratio(waited, left) for waited, left in waits), default=0.0))


def _used_ratio(waited_seconds: float, left_seconds: float) -> float:
    return waited_seconds / (waited_seconds + left_seconds) if left_seconds > 0 else 1.0


def expired(before: Mapping[str, Hold], report: PassReport) -> int:
    """How many of those that an earlier pass held back are not held back any more because their time is over."""
    over = (uid for uid, hold in before.items() if hold.until_seconds <= report.taken_at_seconds)
    return sum(uid not in report.held_back for uid in over)
