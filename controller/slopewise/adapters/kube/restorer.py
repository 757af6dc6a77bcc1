"""Restores the pods of one policy by its name alone: no document, no pass, no Prometheus."""

from __future__ import annotations

from slopewise.adapters.clock import SystemClock
from slopewise.adapters.kube.cache.records import ContainerRecord, PodRecord
from slopewise.adapters.kube.client.protocol import Api, TakeTurn
from slopewise.adapters.kube.resize.actuator import KubeActuator
from slopewise.adapters.kube.state.freezes import KubeFreezes
from slopewise.adapters.kube.state.job_growth_store import JobGrowthStore
from slopewise.adapters.kube.state.job_memory import KubeMemory
from slopewise.adapters.kube.watches import Watches
from slopewise.adapters.kube.workloads.owners import Identity, Owners, WatchedJobIndex
from slopewise.config.training_policy import ResourceSettings
from slopewise.feedback.restore import RestoreReport, restore_originals
from slopewise.model import NO_FREEZES, JobUid


class Restorer:
    """The restores of one policy. Called by one thread at a time, and not while the policy has passes."""

    def __init__(
        self,
        policy: str,
        api: Api,
        watches: Watches,
        owners: Owners,
        job_growths: JobGrowthStore,
        take_turn: TakeTurn,
        settings: ResourceSettings | None = None,
        *,
        freezes: KubeFreezes | None = None,
    ) -> None:
        """`settings`: the policy's, where they are known: a limit that we added stays at its ceiling.

        `freezes`: None where they hold nothing back.
        """
        self.policy = policy
        self._job_growths = job_growths
        self.index = WatchedJobIndex(watches.pods, owners, _changed_container, job_growths.changed_container)
        self._memory = KubeMemory(policy, job_growths, self.index)
        self._actuator = KubeActuator(
            api,
            self.index,
            settings or ResourceSettings(),
            take_turn,
            SystemClock(),
            self._memory.stored_original,
            watches.pods.observe,
            waited_seconds=watches.resizes.waited_seconds,
            freezes=lambda: NO_FREEZES if freezes is None else freezes.before_write(policy),
        )

    def restore(self) -> RestoreReport:
        """Restore every pod; what waits or fails is tried by the next call."""
        self.index.refresh()
        return restore_originals(self._memory, self._actuator)

    def retire(self) -> None:
        """Delete the JobGrowths of this policy without an original."""
        self._memory.load()
        self._memory.retire()

    def leaves_anything(self) -> bool:
        """True while JobGrowths of this policy exist."""
        return bool(self._job_growths.of(self.policy))

    def name_of(self, job_uid: str) -> str:
        """A job's `namespace/name`, also when its pod is deleted."""
        workload_uid, slot = JobUid.of(job_uid)
        document = self._job_growths.find(workload_uid)
        if document is None or slot not in document.slots:
            return job_uid
        return f"{document.namespace}/{document.slots[slot].pod.name or document.name}"


def _changed_container(_: Identity, pod: PodRecord, changed: str | None) -> ContainerRecord:
    """The container whose original is stored."""
    return next((each for each in pod.containers if each.name == changed), pod.containers[0])
