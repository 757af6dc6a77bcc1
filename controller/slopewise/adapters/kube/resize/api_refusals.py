"""Caches refused resizes, and until when a retry of each would be refused again.

`actuator.py` checks it before it sends anything; `meanings.explain` makes the refusals. `watches.py` reports every
change of a LimitRange or ResourceQuota, after which what it refused is retried. A quota's usage counts too: room in it
appears when another pod has ended.
"""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import get_args

from slopewise.adapters.kube.cache.records import ManagedPod, Resources
from slopewise.adapters.kube.client.meanings import A_WHILE_SECONDS, LimitKind, Refused
from slopewise.adapters.kube.client.protocol import Json
from slopewise.adapters.pauses import BACKOFF
from slopewise.ports import Clock

ChangesOf = Callable[[LimitKind, str], int | None]
"""`NamespaceLimits.changes`: of a kind and a namespace."""


@dataclass(frozen=True, slots=True)
class LimitRecord:
    """One LimitRange or ResourceQuota. `content`: the part that may refuse a resize, as JSON."""

    namespace: str
    name: str
    content: str


def parse_limit_range(raw: Json) -> LimitRecord:
    """All of its limits; KeyError for anything else."""
    return _record(raw, raw["spec"].get("limits") or [])


def parse_quota(raw: Json) -> LimitRecord:
    """Its bounds and usage of CPU and memory; other figures change with every pod."""
    status = raw.get("status") or {}
    figures = (raw["spec"].get("hard") or {}, status.get("hard") or {}, status.get("used") or {})
    return _record(
        raw, [{key: value for key, value in each.items() if "cpu" in key or "memory" in key} for each in figures]
    )


def _record(raw: Json, content: object) -> LimitRecord:
    meta = raw["metadata"]
    return LimitRecord(meta["namespace"], meta["name"], json.dumps(content, sort_keys=True))


class NamespaceLimits:
    """The number of changes in each namespace. Fed by the watches; safe from any thread."""

    def __init__(self, is_watched: Callable[[LimitKind], bool]) -> None:
        """`is_watched`: whether changes of this kind arrive, which takes the right to watch it."""
        self._is_watched = is_watched
        self._lock = threading.Lock()
        self._changes: Counter[tuple[LimitKind, str]] = Counter()

    def note(self, kind: LimitKind, namespace: str) -> None:
        """One of them was created, changed or deleted."""
        with self._lock:
            self._changes[kind, namespace] += 1

    def changes(self, kind: LimitKind, namespace: str) -> int | None:
        """The number of changes so far; None: this kind is not watched."""
        if not self._is_watched(kind):
            return None
        with self._lock:
            return self._changes[kind, namespace]


_KINDS: Mapping[LimitKind, str] = {"limitranges": "LimitRange", "resourcequotas": "ResourceQuota"}
Changes = Mapping[LimitKind, int | None]

KEPT_REFUSALS = 10_000
"""The bound of the cache, since jobs end without notice."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """One refused resize of one pod, how often it was refused, and until when."""

    same: tuple[str, Resources, Resources]
    """The pod's uid, its resources, and the refused ones."""
    until_seconds: float
    refusal: Refused
    namespace: str
    changes: int | None
    """Changes of the refusing kind of object before the request."""
    times: int = 1


class RefusalCache:
    """The last refusal of each job, while the same resize would be refused again."""

    def __init__(self, clock: Clock, changes_of: ChangesOf) -> None:
        """`changes_of`: how often the LimitRanges or ResourceQuotas of a namespace have changed."""
        self._clock = clock
        self._changes_of = changes_of
        self._refused: dict[str, _Kept] = {}

    def changes(self, namespace: str) -> Changes:
        """Read it just before a request: a change during the request may have allowed it."""
        return {kind: self._changes_of(kind, namespace) for kind in get_args(LimitKind)}

    def remember(self, managed: ManagedPod, wanted: Resources, refusal: Refused, before: Changes) -> Refused:
        """The refusal of a resize, with the time of its retry.

        A refusal that is worth an immediate retry is not kept.
        """
        if refusal.refused_for_seconds <= 0:
            return refusal
        same, former = _same(managed, wanted), self._refused.pop(managed.job_uid, None)
        times = former.times + 1 if former is not None and former.same == same else 1
        changes = before.get(refusal.refused_by) if refusal.refused_by is not None else None
        seconds = refusal.refused_for_seconds
        if changes is None and seconds == A_WHILE_SECONDS:
            seconds = BACKOFF.after(times)
        kept = replace(refusal, retry=self._retry(managed, refusal, seconds, watched=changes is not None))
        if len(self._refused) >= KEPT_REFUSALS:
            del self._refused[next(iter(self._refused))]
        until = self._clock.monotonic() + seconds
        self._refused[managed.job_uid] = _Kept(same, until, kept, managed.pod.namespace, changes, times)
        return kept

    def find(self, managed: ManagedPod, wanted: Resources) -> Refused | None:
        """The refusal of the same resize of the same pod, while it holds."""
        known = self._refused.get(managed.job_uid)
        if known is None or known.same != _same(managed, wanted):
            return None
        holds = self._clock.monotonic() < known.until_seconds and not self._has_changed(known)
        return known.refusal if holds else None

    def waits_for(self, kind: LimitKind, namespace: str) -> bool:
        """Whether these limits have refused something that is to be retried."""
        known = list(self._refused.values())
        return any(each.namespace == namespace and each.refusal.refused_by == kind for each in known)

    def _has_changed(self, known: _Kept) -> bool:
        if known.refusal.refused_by is None or known.changes is None:
            return False
        return self._changes_of(known.refusal.refused_by, known.namespace) != known.changes

    def _retry(self, managed: ManagedPod, refusal: Refused, seconds: float, *, watched: bool) -> str:
        """A time of day and not a duration: the text stays in a status that is written once."""
        if not math.isfinite(seconds):
            return ""
        at = datetime.fromtimestamp(self._clock.now() + seconds, UTC).strftime("%H:%M:%S UTC")
        if refusal.refused_by is None or not watched:
            return f"tried again at {at}"
        return f"tried again at {at}, or when a {_KINDS[refusal.refused_by]} of {managed.pod.namespace} changes"


def _same(managed: ManagedPod, wanted: Resources) -> tuple[str, Resources, Resources]:
    return managed.pod.uid, managed.container.resources, wanted
