"""The LimitRanges and ResourceQuotas of namespaces: not what they say, only that one of them has changed.

`cluster/watches.py` reports every change here; `refusals.InVain` asks again for what one of them refused once it has
changed. What a quota has used counts too: room in it comes when somebody else's pod has ended.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from controller.adapters.kube.contracts import Json

LimitKind = Literal["limitranges", "resourcequotas"]

ChangesOf = Callable[[LimitKind, str], int | None]
"""`NamespaceLimits.changes`: of a kind and a namespace."""


def unknown_changes(kind: LimitKind, namespace: str) -> int | None:
    """Where they are not watched."""
    return None


@dataclass(frozen=True, slots=True)
class LimitRecord:
    """One LimitRange or ResourceQuota. `says`: what of it may refuse a resize of CPU, as JSON."""

    namespace: str
    name: str
    says: str


def parse_limit_range(raw: Json) -> LimitRecord:
    """All of its limits; KeyError for what is none."""
    return _record(raw, raw["spec"].get("limits") or [])


def parse_quota(raw: Json) -> LimitRecord:
    """What it allows and has counted of CPU; its other figures change with every pod that comes and goes."""
    status = raw.get("status") or {}
    figures = (raw["spec"].get("hard") or {}, status.get("hard") or {}, status.get("used") or {})
    return _record(raw, [{key: value for key, value in each.items() if "cpu" in key} for each in figures])


def _record(raw: Json, says: object) -> LimitRecord:
    meta = raw["metadata"]
    return LimitRecord(meta["namespace"], meta["name"], json.dumps(says, sort_keys=True))


class NamespaceLimits:
    """How often those of a namespace have changed. Fed by the watches; safe from any thread."""

    def __init__(self, is_watched: Callable[[LimitKind], bool]) -> None:
        """`is_watched`: whether changes of this kind are heard of, which takes the right to watch it."""
        self._is_watched = is_watched
        self._lock = threading.Lock()
        self._changes: Counter[tuple[LimitKind, str]] = Counter()

    def note(self, kind: LimitKind, namespace: str) -> None:
        """One of them was made, changed or deleted."""
        with self._lock:
            self._changes[kind, namespace] += 1

    def changes(self, kind: LimitKind, namespace: str) -> int | None:
        """How many there were so far; None: they are not heard of."""
        if not self._is_watched(kind):
            return None
        with self._lock:
            return self._changes[kind, namespace]
