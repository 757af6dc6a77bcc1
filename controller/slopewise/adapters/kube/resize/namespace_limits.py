"""Counts changes of the LimitRanges and ResourceQuotas of namespaces, whose refusals are then retried.

`watches.py` reports every change here; `RefusalCache` retries what one of them refused once it has changed. A
quota's usage counts too: room in it appears when another pod has ended.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from slopewise.adapters.kube.client.meanings import LimitKind
from slopewise.adapters.kube.client.protocol import Json

ChangesOf = Callable[[LimitKind, str], int | None]
"""`NamespaceLimits.changes`: of a kind and a namespace."""


def unknown_changes(kind: LimitKind, namespace: str) -> int | None:
    """Where they are not watched."""
    return None


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
