"""Finds the current pod of a job by the job's uid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from slopewise.adapters.kube.cache.records import ContainerRecord, ManagedPod, PodRecord
from slopewise.adapters.kube.client.protocol import Store
from slopewise.adapters.kube.workloads.owners import Identity, Owners, Resolution


class JobIndex(Protocol):
    """Finds the pods of jobs (`WatchedJobIndex`)."""

    def find(self, job_uid: str) -> ManagedPod | None:
        """The newest version of a job's pod; None: it does not exist."""
        ...


class WatchedJobIndex:
    """An index of the watched pods, also those that no policy selects. Shape: `JobIndex`."""

    def __init__(
        self, pods: Store[PodRecord], owners: Owners, trainer: Callable[[Identity, PodRecord], ContainerRecord]
    ) -> None:
        """`trainer`: which container of a pod trains."""
        self._pods = pods
        self._owners = owners
        self._trainer = trainer
        self._resolution = Resolution({}, {})
        self._known: Mapping[str, ManagedPod] = {}

    def refresh(self) -> Resolution:
        """Resolve all pods now. In between, `find` resolves again only for a missing pod: 5,000 take 10 ms."""
        self._resolution = self._owners.resolve(self._pods.items())
        return self._resolution

    def keep(self, known: Mapping[str, ManagedPod]) -> None:
        """Store results that `find` returns while the pods stay the same, by job uid."""
        self._known = known

    def find(self, job_uid: str) -> ManagedPod | None:
        """The newest version of a job's pod; None: it does not exist."""
        found = self._newest(job_uid)
        if found is None:
            self.refresh()
            found = self._newest(job_uid)
        if found is None:
            return None
        identity, pod = found
        known = self._known.get(job_uid)
        if known is not None and known.pod is pod:
            return known
        return ManagedPod(job_uid, identity.workload, identity.slot, pod, self._trainer(identity, pod))

    def _newest(self, job_uid: str) -> tuple[Identity, PodRecord] | None:
        """The pod as the store has it now; not another pod of the same name."""
        if (found := self._resolution.pods.get(job_uid)) is None:
            return None
        identity, pod = found
        fresh = self._pods.get(pod.namespace, pod.name)
        return (identity, fresh) if fresh is not None and fresh.uid == pod.uid else None
