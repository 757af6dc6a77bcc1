"""Limits the rate of writes with token buckets: for each node, for each namespace, and in all.

`actuator.py` takes from all three before a resize. A policy that changes 5,000 jobs in one pass thus changes the
cluster over several passes, and one team's jobs do not use up another's share.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

_FORGET_ABOVE = 1000
"""Full buckets, of deleted nodes and namespaces, are dropped once there are so many."""

_ONE = 1 - 1e-9
"""Ten refills of 0.1 are a little less than 1."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A bucket holds `tokens` and fills up within `seconds`: bursts of `tokens`, and that many in `seconds`."""

    tokens: int
    seconds: float = 60.0

    @property
    def seconds_each(self) -> float:
        """Until one more is there."""
        return self.seconds / self.tokens


@dataclass(slots=True)
class _Bucket:
    level: float
    at_seconds: float


class RateLimiter:
    """Three kinds of token buckets. Safe from any thread."""

    def __init__(self, *, node: Rate, namespace: Rate, cluster: Rate, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds."""
        self._node, self._namespace, self._cluster = node, namespace, cluster
        self._clock = clock
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._lock = threading.Lock()

    def take(self, node: str, namespace: str) -> str | None:
        """Take one from the node's, the namespace's and the cluster's bucket; None when it is taken.

        Else nothing is taken, and the answer says which bucket is empty and when it has one again, e.g. "30 resizes
        in 60 s are allowed on node n1; the next in 2 s".
        """
        wanted = (
            (("on node", node), self._node),
            (("in namespace", namespace), self._namespace),
            (("in the cluster", ""), self._cluster),
        )
        now = self._clock()
        with self._lock:
            buckets = [(key, rate, self._filled(key, rate, now)) for key, rate in wanted]
            for key, rate, bucket in buckets:
                if bucket.level < _ONE:
                    wait, where = math.ceil((1 - bucket.level) * rate.seconds_each), " ".join(filter(None, key))
                    return f"{rate.tokens} resizes in {rate.seconds:g} s are allowed {where}; the next in {wait} s"
            for _, _, bucket in buckets:
                bucket.level -= 1
            self._forget_full(now)
        return None

    def _filled(self, key: tuple[str, str], rate: Rate, now: float) -> _Bucket:
        bucket = self._buckets.setdefault(key, _Bucket(rate.tokens, now))
        bucket.level = min(rate.tokens, bucket.level + (now - bucket.at_seconds) / rate.seconds_each)
        bucket.at_seconds = now
        return bucket

    def _forget_full(self, now: float) -> None:
        """Drop buckets that are full again, which equal new ones."""
        if len(self._buckets) > _FORGET_ABOVE:
            longest = max(self._node.seconds, self._namespace.seconds, self._cluster.seconds)
            self._buckets = {key: each for key, each in self._buckets.items() if now - each.at_seconds < longest}
