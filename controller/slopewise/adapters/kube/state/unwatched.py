"""Finds running pods whose owner has removed the label `slopewise.dev/managed`, which the watch selects by.

In the watch such a pod looks deleted. The stored memory has its name, and one read by that name shows whether it
exists.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from slopewise.adapters.kube.cache.parsing import parse_pod
from slopewise.adapters.kube.cache.records import MANAGED_LABEL, ManagedPod
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.paths import path_of
from slopewise.adapters.kube.client.protocol import Api
from slopewise.adapters.kube.state.job_growth_store import JobGrowthStore
from slopewise.errors import ActuationError
from slopewise.model import JobUid
from slopewise.tracking import TtlMap

READ_AGAIN_SECONDS = 60.0
"""How long a read of such a pod counts: each pass needs it, and Slopewise does not change the pod meanwhile."""

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
        job_growths: JobGrowthStore,
        read_again_seconds: float = READ_AGAIN_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._job_growths = job_growths
        self._known = TtlMap[str, ManagedPod | None](read_again_seconds, monotonic)
        """By job uid."""

    def find(self, job_uid: str) -> ManagedPod | None:
        """The running pod of a stored job without the label; ActuationError when it cannot be read."""
        return self._known.get(job_uid, lambda: self._read(job_uid))

    def _read(self, job_uid: str) -> ManagedPod | None:
        workload_uid, slot_name = JobUid.of(job_uid)
        document = self._job_growths.find(workload_uid)
        slot = None if document is None else document.slots.get(slot_name)
        if document is None or slot is None or not slot.pod.name:
            return None
        try:
            pod = parse_pod(self._api.get(path_of("v1", "pods", document.namespace, slot.pod.name)))
        except ApiError as error:
            if error.is_not_found:
                return None
            raise ActuationError(f"whether its pod is still there cannot be read: {error}") from error
        except ValueError as error:
            raise ActuationError(str(error)) from error
        if pod.uid != slot.pod.uid or MANAGED_LABEL in pod.labels or pod.ended or pod.deleting:
            return None
        container = next((each for each in pod.containers if each.name == slot.pod.container), pod.containers[0])
        return ManagedPod(job_uid, document.workload, slot_name, pod, container)
