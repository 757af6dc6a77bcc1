"""Pods whose owner has taken the label `slopewise.dev/managed` off: the watch shows them no more, and they are there.

The watch selects by that label, so such a pod looks as if it were deleted. What is remembered of it says where it was;
one read by name says whether it is still there.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.contracts import Api
from controller.adapters.kube.growth_book import GrowthBook
from controller.adapters.kube.parsing import parse_pod
from controller.adapters.kube.paths import path_of
from controller.adapters.kube.records import MANAGED_LABEL, ManagedPod
from controller.errors import ActuationError

READ_AGAIN_SECONDS = 60.0
"""How long what was read of such a pod counts: it is asked about in each pass, and not changed by us meanwhile."""

MOST_KEPT = 10_000

FindUnwatched = Callable[[str], ManagedPod | None]
"""`UnwatchedPods.find`."""


def nothing_unwatched(job_uid: str) -> ManagedPod | None:
    """Where every pod is watched."""
    return None


class UnwatchedPods:
    """Reads them one by one. Called by one thread at a time."""

    def __init__(
        self,
        api: Api,
        book: GrowthBook,
        read_again_seconds: float = READ_AGAIN_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._book = book
        self._read_again_seconds = read_again_seconds
        self._monotonic = monotonic
        self._known: dict[str, tuple[float, ManagedPod | None]] = {}
        """By job uid: until when it counts, and what was found."""

    def find(self, job_uid: str) -> ManagedPod | None:
        """The pod of a remembered job, where it runs on without our label; ActuationError when it cannot be read."""
        now, known = self._monotonic(), self._known.pop(job_uid, None)
        if known is None or known[0] <= now:
            known = (now + self._read_again_seconds, self._read(job_uid))
        if len(self._known) >= MOST_KEPT:
            del self._known[next(iter(self._known))]
        self._known[job_uid] = known
        return known[1]

    def _read(self, job_uid: str) -> ManagedPod | None:
        workload_uid, _, slot_name = job_uid.rpartition(":")
        document = self._book.find(workload_uid)
        slot = None if document is None else document.slots.get(slot_name)
        if document is None or slot is None or not slot.pod.name:
            return None
        try:
            pod = parse_pod(self._api.get(path_of("v1", "pods", document.namespace, slot.pod.name)))
        except ApiError as error:
            if error.is_gone:
                return None
            raise ActuationError(f"whether its pod is still there cannot be read: {error}") from error
        except ValueError as error:
            raise ActuationError(str(error)) from error
        if pod.uid != slot.pod.uid or MANAGED_LABEL in pod.labels or pod.ended or pod.deleting:
            return None
        container = next((each for each in pod.containers if each.name == slot.pod.container), pod.containers[0])
        return ManagedPod(job_uid, document.workload, slot_name, pod, container)
