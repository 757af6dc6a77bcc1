"""Writes the CPU that an arriving job's promise needs into its gated pod, before the gate is released.

One PATCH of `pods/resize`: the API server accepts it of a pod without a node (observed on 1.36), and the pod starts
with that CPU. The owner's CPU is stored in the JobGrowth first (`JobMemory.came_with`), so that a crash between the two
writes leaves a pod that is restored all the same. Where anything stands against it, the pod starts with what it came
with, and the outcome of its placement gives the reason. `moves/gated_pods.py` calls this before each release.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from slopewise.adapters.kube.cache.parsing import parse_pod
from slopewise.adapters.kube.cache.records import ManagedPod, PodRecord, Resources
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.fencing import NotLeadingError
from slopewise.adapters.kube.client.meanings import explain
from slopewise.adapters.kube.client.paths import path_of
from slopewise.adapters.kube.client.protocol import PARAMS, STRATEGIC_MERGE_PATCH, Api, Json
from slopewise.adapters.kube.resize import target
from slopewise.adapters.kube.state.job_growth_object import GrowthDocument, Slot
from slopewise.adapters.kube.state.job_growth_store import JobGrowthStore
from slopewise.adapters.kube.workloads.eligibility import Case, unsizable_reason
from slopewise.adapters.kube.workloads.job_index import JobIndex
from slopewise.config.training_policy import ResourceSettings
from slopewise.errors import SlopewiseError
from slopewise.model import CpuAllocation, JobMemory, Place

AutoscalerOf = Callable[[ManagedPod], str | None]
"""The HorizontalPodAutoscaler that scales a pod's owner by CPU; None: there is none."""


class ArrivalSizer:
    """Sizes the arrivals of one policy."""

    def __init__(
        self,
        policy: str,
        api: Api,
        index: JobIndex,
        job_growths: JobGrowthStore,
        settings: ResourceSettings,
        *,
        autoscaler_of: AutoscalerOf = lambda _: None,
        on_written: Callable[[Json], None] = lambda _: None,
    ) -> None:
        """`on_written` gets each pod that was read or written here, so that the stores need not wait for the watch."""
        self._policy = policy
        self._api = api
        self._index = index
        self._job_growths = job_growths
        self._settings = settings
        self._autoscaler_of = autoscaler_of
        self._on_written = on_written

    def size(self, move: Place, pod: PodRecord) -> tuple[PodRecord, str]:
        """The pod as it is afterwards, and a message for the outcome; NotLeadingError without the lease."""
        if move.request_millicores is None:
            return pod, ""
        managed = self._index.find(move.job_uid)
        if managed is None or managed.pod.uid != pod.uid:
            return pod, _unsized("the pod that it replaces is still there")
        wanted = self._planned(structs.replace(managed, pod=pod), move.request_millicores)
        if isinstance(wanted, target.Impossible):
            return pod, _unsized(wanted.reason)
        if wanted == managed.container.desired:
            return pod, f"it requests {wanted.request_millicores}m already"
        document, slot = self._slot_of(managed)
        unstored = self._store(document, slot, managed)
        return (pod, _unsized(unstored)) if unstored else self._write(document, slot, managed, wanted)

    def _planned(self, managed: ManagedPod, millicores: int) -> CpuAllocation | target.Impossible:
        has = managed.container.desired
        case = Case(managed.pod, managed.container, None, self._settings, has, self._autoscaler_of(managed))
        reason = unsizable_reason(case)
        return target.sized(managed, millicores) if reason is None else target.Impossible(reason)

    def _slot_of(self, managed: ManagedPod) -> tuple[GrowthDocument, Slot]:
        document = self._job_growths.get_or_create(managed.workload, managed.pod.namespace)
        with self._job_growths.lock:
            document.policy = document.policy or self._policy
            return document, document.slots.setdefault(managed.slot, Slot(managed.job_uid, JobMemory()))

    def _store(self, document: GrowthDocument, slot: Slot, managed: ManagedPod) -> str | None:
        """Store what the pod came with; why that failed, or must not be done; None: it is stored."""
        if slot.memory.original is not None:
            return "its CPU was changed in an earlier pod"
        with self._job_growths.lock:
            before, is_known = slot.memory, slot.pod.uid == managed.pod.uid
            if before.came_with is not None and is_known:
                return None  # sized before, and not released
            slot.meet(managed)
            slot.memory = before.altered(came_with=managed.container.desired)
            slot.adopted = True
        try:
            self._job_growths.write_now(document)
        except NotLeadingError:
            slot.memory = before
            raise
        except SlopewiseError as error:
            slot.memory = before
            return f"what it came with could not be stored: {error}"
        return None

    def _write(
        self, document: GrowthDocument, slot: Slot, managed: ManagedPod, wanted: CpuAllocation
    ) -> tuple[PodRecord, str]:
        had, path = managed.container.desired, path_of("v1", "pods", managed.pod.namespace, managed.pod.name)
        body = target.patch_body(managed.pod, managed.container, Resources(wanted, managed.container.memory))
        try:
            answer = self._api.patch(f"{path}/resize", body, STRATEGIC_MERGE_PATCH, PARAMS)
            self._on_written(answer)
            written = parse_pod(answer)
        except ApiError as error:
            return self._explain(document, slot, managed, error)
        except ValueError as error:
            return managed.pod, str(error)
        return written, f"with a CPU request of {wanted.request_millicores}m, not {had.request_millicores}m"

    def _explain(
        self, document: GrowthDocument, slot: Slot, managed: ManagedPod, error: ApiError
    ) -> tuple[PodRecord, str]:
        """Keep what it came with where the patch may have been carried out, and forget it where it was refused."""
        if error.maybe_done:
            return managed.pod, f"not known whether its CPU request was changed ({error.message})"
        if slot.memory.came_with == managed.container.desired:
            slot.memory = slot.memory.altered(came_with=None)
            self._job_growths.changed(document, transition=True)
        return managed.pod, _unsized(explain(error, "resize").detail)


def _unsized(reason: str) -> str:
    return f"it starts with what it came with: {reason}"
