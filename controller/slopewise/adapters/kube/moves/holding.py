"""Keeps gated pods that a policy holds back until there is room, and shows that on the pod.

A pass says which arrivals wait, and until when at most (`PassReport.held_back`, bounded by `guards/holds.py`). That
stands until the next pass says otherwise, until its bound, or until that next pass is late. Meanwhile the controller
renews the annotation `slopewise.dev/held-until` of the pod, a minute ahead: the sweeper leaves such a pod, and releases
it once a controller that is gone no longer renews it. A new leader holds nothing back before its own first pass.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from slopewise.adapters.kube.cache.records import HELD_UNTIL, PodRecord
from slopewise.model import MAX_HOLD_SECONDS, PassReport

RENEWED_AHEAD_SECONDS = 60.0
"""A hold that is not renewed for so long counts as left."""

RENEW_BEFORE_SECONDS = 35.0
"""So long before its end a hold is renewed, every 25 s: a renewal that fails is made up for in time."""

RENEWED_PER_TICK = 4
"""Eight a second: 200 held pods are renewed in 25 s."""

LATE_SECONDS = 30.0
"""A pass that is so late does not come: its policy is gone, or cannot observe."""


def is_held_back(pod: PodRecord, now_seconds: float) -> bool:
    """Whether a controller holds a gated pod back and has renewed that; it counts for a bounded time in all."""
    until = held_until_seconds(pod)
    if until is None or now_seconds - pod.created_at_seconds > MAX_HOLD_SECONDS + RENEWED_AHEAD_SECONDS:
        return False
    return now_seconds < until <= now_seconds + 2 * RENEWED_AHEAD_SECONDS


def held_until_seconds(pod: PodRecord) -> float | None:
    """What its annotation says, in Unix time; None: nothing, or no time."""
    try:
        stated = datetime.fromisoformat(pod.annotations[HELD_UNTIL])
    except (KeyError, ValueError):
        return None
    return stated.timestamp() if stated.tzinfo is not None else None


def held_until_text(until_seconds: float) -> str:
    """The value of the annotation, to the second."""
    return datetime.fromtimestamp(until_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class _Held(NamedTuple):
    """One job that is held back, in Unix time."""

    until_seconds: float
    confirmed_by_seconds: float
    """When a pass must have held it back again."""


class HeldJobs:
    """The jobs that passes hold back, of all policies, by uid. Safe from any thread."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()

    def note(self, report: PassReport, waiting: Collection[str]) -> None:
        """Take over what a pass decided on the arrivals that it saw (uids)."""
        confirmed_by = report.requeue_at_seconds + LATE_SECONDS
        with self._lock:
            for uid in waiting:
                hold = report.held_back.get(uid)
                if hold is None:
                    self._held.pop(uid, None)
                else:
                    self._held[uid] = _Held(hold.until_seconds, confirmed_by)

    def current(self, now_seconds: float) -> Mapping[str, float]:
        """The bound of each job that waits, by uid, in Unix time; those whose time is over are forgotten."""
        with self._lock:
            self._held = {uid: each for uid, each in self._held.items() if now_seconds < min(each)}
            return {uid: each.until_seconds for uid, each in self._held.items()}


def renewal(pod: PodRecord, until_seconds: float, now_seconds: float) -> float | None:
    """What the annotation is to say now, in Unix time; None: it need not be written yet."""
    stated = held_until_seconds(pod)
    if stated is not None and now_seconds + RENEW_BEFORE_SECONDS < stated <= now_seconds + RENEWED_AHEAD_SECONDS + 1:
        return None
    wanted = min(until_seconds, now_seconds + RENEWED_AHEAD_SECONDS)
    return None if stated is not None and abs(wanted - stated) < 1 else wanted
