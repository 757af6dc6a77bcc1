"""Measures how long each Job that a move has suspended has had no pod: only its resumption is missing then.

A move resumes its Job within a second after its last pod has ended. The time until then, in which pods save their
checkpoints, is not counted. Read by the metrics of each replica, so a standby reports a leader that leaves a Job
suspended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from slopewise.adapters.kube.cache.records import ObjectRecord, PodRecord
from slopewise.adapters.kube.client.protocol import Store
from slopewise.adapters.kube.moves.suspend.annotation import under_way
from slopewise.tracking import FirstSeen


class SuspendedJobs:
    """Counts from the first call of `seconds` that sees a Job so, i.e. from a scrape. Safe from any thread."""

    def __init__(
        self, jobs: Store[ObjectRecord], pods: Store[PodRecord], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._jobs = jobs
        self._pods = pods
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._seen = FirstSeen[str]()

    def seconds(self) -> list[float]:
        """For how long each of them has had no pod; empty: none is without."""
        with self._lock:
            now, uids = self._monotonic(), self._without_pods()
            self._seen.keep(uids, now)
            return [self._seen.seconds(uid, now) for uid in uids]

    def _without_pods(self) -> list[str]:
        suspended = {
            (move.namespace, move.workload_uid)
            for move in under_way(self._jobs)
            if move.step in ("leaving", "unpinning")
        }
        if not suspended:
            return []
        with_pods = {
            (pod.namespace, pod.owner.uid) for pod in self._pods.items() if pod.owner is not None and not pod.ended
        }
        return [uid for _, uid in suspended - with_pods]
