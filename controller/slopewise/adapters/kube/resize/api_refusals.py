"""Caches refused resizes, and until when a retry of each would be refused again.

`actuator.py` checks it before it sends anything; `meanings.explain` makes the refusals. What a quota, a LimitRange, a
webhook or a policy has refused is asked again after 30 s, then less and less often.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from slopewise.adapters.kube.cache.records import ManagedPod, Resources
from slopewise.adapters.kube.client.meanings import A_WHILE_SECONDS, Refused
from slopewise.adapters.pauses import BACKOFF
from slopewise.ports import Clock

KEPT_REFUSALS = 10_000
"""The bound of the cache, since jobs end without notice."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """One refused resize of one pod, how often it was refused, and until when."""

    same: tuple[str, Resources, Resources]
    """The pod's uid, its resources, and the refused ones."""
    until_seconds: float
    refusal: Refused
    times: int = 1


class RefusalCache:
    """The last refusals of each job, of its CPU and of its memory, while the same resize would be refused again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: dict[tuple[str, bool], _Kept] = {}

    def remember(self, managed: ManagedPod, wanted: Resources, refusal: Refused) -> Refused:
        """The refusal of a resize, with the time of its retry.

        A refusal that is worth an immediate retry is not kept.
        """
        if refusal.refused_for_seconds <= 0:
            return refusal
        key, same = _key(managed, wanted), _same(managed, wanted)
        former = self._refused.pop(key, None)
        times = former.times + 1 if former is not None and former.same == same else 1
        seconds = refusal.refused_for_seconds
        if seconds == A_WHILE_SECONDS:
            seconds = BACKOFF.after(times)
        kept = replace(refusal, retry=self._retry(seconds))
        if len(self._refused) >= KEPT_REFUSALS:
            del self._refused[next(iter(self._refused))]
        self._refused[key] = _Kept(same, self._clock.monotonic() + seconds, kept, times)
        return kept

    def find(self, managed: ManagedPod, wanted: Resources) -> Refused | None:
        """The refusal of the same resize of the same pod, while it holds."""
        known = self._refused.get(_key(managed, wanted))
        if known is None or known.same != _same(managed, wanted):
            return None
        return known.refusal if self._clock.monotonic() < known.until_seconds else None

    def _retry(self, seconds: float) -> str:
        """A time of day and not a duration: the text stays in a status that is written once."""
        if not math.isfinite(seconds):
            return ""
        return f"tried again at {datetime.fromtimestamp(self._clock.now() + seconds, UTC):%H:%M:%S UTC}"


def _key(managed: ManagedPod, wanted: Resources) -> tuple[str, bool]:
    return managed.job_uid, wanted.memory != managed.container.memory


def _same(managed: ManagedPod, wanted: Resources) -> tuple[str, Resources, Resources]:
    return managed.pod.uid, managed.container.resources, wanted
