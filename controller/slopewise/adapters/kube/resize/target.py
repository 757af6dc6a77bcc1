"""Computes a container's CPU and memory after a resize, within the rules of `pods/resize`, and the patch. Pure.

What Kubernetes always refuses is found here, with a message, instead of by a request: a limit below its request,
another QoS class, a request above its limit. Observed on 1.36: a limit that is given to a container without a request
brings a request of the same size, so that one is written as 0; a limit, once set, stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slopewise.adapters.kube.cache.records import (
    BEST_EFFORT,
    GUARANTEED,
    ContainerRecord,
    ManagedPod,
    PodRecord,
    Resources,
)
from slopewise.adapters.kube.client.protocol import Json
from slopewise.config.quantities import cpu_quantity, memory_quantity
from slopewise.config.training_policy import ResourceSettings
from slopewise.model import CpuAllocation, MemoryAllocation, Resize, ResizeMemory


@dataclass(frozen=True, slots=True)
class Impossible:
    """A resize that Kubernetes would refuse; the reason names the remedy."""

    reason: str


def resized(
    managed: ManagedPod, resize: Resize, original: CpuAllocation, settings: ResourceSettings
) -> CpuAllocation | Impossible:
    """The container's request and limit after this resize. `original` bounds how far a request rises again."""
    if managed.pod.qos_class == BEST_EFFORT:
        return Impossible("its pod is BestEffort, and a resize may not change that; give it a CPU or memory request")
    if resize.control == "requests":
        return _with_request(managed, resize.to_millicores)
    if managed.pod.qos_class == GUARANTEED:
        return _both(managed, resize.to_millicores, original, settings)
    return _with_limit(managed, resize.to_millicores, original, settings)


def _both(
    managed: ManagedPod, target: int, original: CpuAllocation, settings: ResourceSettings
) -> CpuAllocation | Impossible:
    """Guaranteed: request and limit are equal, and stay equal."""
    if settings.accelerators != "Ignore" and managed.pod.accelerators:
        return CpuAllocation(target, target)
    if not settings.lower_requests:
        return Impossible(
            "its pod is Guaranteed, so its request moves with its limit; set resources.lowerRequests to allow that"
        )
    highest = max(original.request_millicores, managed.container.desired.request_millicores)
    if target > highest:
        return Impossible(
            f"its pod is Guaranteed, so its request would grow beyond its original {highest}m; "
            "give it a request below its limit"
        )
    return CpuAllocation(target, target)


def _with_limit(
    managed: ManagedPod, target: int, original: CpuAllocation, settings: ResourceSettings
) -> CpuAllocation | Impossible:
    """Worked example: request 1000m, limit 2000m; at 400m its request is 400m too, and back at 1500m 1000m again."""
    has = managed.container.desired
    if has.limit_millicores is None and not settings.add_limits:
        return Impossible("it has no CPU limit; set resources.addLimits to give it one, which can never be removed")
    request = has.request_millicores
    if settings.lower_requests:
        request = min(target, max(request, original.request_millicores))
    if target < request:
        return Impossible(
            f"a limit cannot go below its request of {request}m; set resources.lowerRequests, or lower the request"
        )
    if target != request or not managed.pod.guaranteed_but_for_cpu_of(managed.container):
        return CpuAllocation(target, request)
    # Its QoS class may not become Guaranteed: 1m apart is enough, and has no effect.
    lowers = settings.lower_requests and request > 1
    return CpuAllocation(target, request - 1) if lowers else CpuAllocation(target + 1, request)


def _with_request(managed: ManagedPod, target: int) -> CpuAllocation | Impossible:
    limit = managed.container.desired.limit_millicores
    if managed.pod.qos_class == GUARANTEED:
        return Impossible("its pod is Guaranteed, so its request cannot move alone; use resources.control: limits")
    if limit is not None and target > limit:
        return Impossible(f"a request cannot go above its limit of {limit}m; raise the limit, or remove it")
    apart = int(target == limit and target > 1 and managed.pod.guaranteed_but_for_cpu_of(managed.container))
    return CpuAllocation(limit, target - apart)


def with_memory(managed: ManagedPod, resize: ResizeMemory) -> Resources | Impossible:
    """The container's CPU and memory after this change of memory.

    Worked example: request 512Mi, limit 1Gi, CPU 1 for both: a request of 1Gi would make the pod Guaranteed, so it is
    one byte less.
    """
    container, has = managed.container, managed.container.memory
    if managed.pod.qos_class != "Burstable":
        return Impossible(f"its pod is {managed.pod.qos_class}, and a resize may not change that")
    if has.of(resize.bound) is None:
        return Impossible(f"it has no memory {resize.bound}, and one that is added cannot be removed")
    to = has.altered(resize.bound, resize.to_bytes)
    if to.limit_bytes is not None and to.request_bytes is not None and to.request_bytes > to.limit_bytes:
        return Impossible(f"its memory request of {to.request_bytes} would be above its limit of {to.limit_bytes}")
    if to.request_bytes is not None and to.request_bytes == to.limit_bytes:
        apart = int(managed.pod.guaranteed_but_for_memory_of(container))
        to = to.altered("request", to.request_bytes - apart)
    return Resources(container.desired, to)


def patch_body(pod: PodRecord, container: ContainerRecord, to: Resources) -> Json:
    """The strategic-merge patch of `pods/resize`, with only what changes of the container's CPU and memory.

    uid and resourceVersion are preconditions: a pod of the same name, or one that another client has changed meanwhile,
    is answered with 409.
    """
    kind = "initContainers" if container.init else "containers"
    return {
        "metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version},
        "spec": {kind: [{"name": container.name, "resources": _changes(container, to)}]},
    }


def _changes(container: ContainerRecord, to: Resources) -> dict[str, Any]:
    cpu, has, memory, had = to.cpu, container.desired, to.memory, container.memory
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    if cpu.limit_millicores is not None and cpu.limit_millicores != has.limit_millicores:
        limits["cpu"] = cpu_quantity(cpu.limit_millicores)
    defaulted = "cpu" in limits and not container.has_request
    if defaulted or cpu.request_millicores != has.request_millicores:
        requests["cpu"] = cpu_quantity(cpu.request_millicores)
    if memory.limit_bytes is not None and memory.limit_bytes != had.limit_bytes:
        limits["memory"] = memory_quantity(memory.limit_bytes)
    if memory.request_bytes is not None and memory.request_bytes != had.request_bytes:
        requests["memory"] = memory_quantity(memory.request_bytes)
    return {side: values for side, values in (("limits", limits), ("requests", requests)) if values}


@dataclass(frozen=True, slots=True)
class RestoreGoal:
    """What a restore writes; `note` names what of the original cannot be restored."""

    resources: Resources
    note: str = ""

    def lowers_limit(self, managed: ManagedPod) -> bool:
        """Whether a memory limit would go down."""
        has, to = managed.container.memory.limit_bytes, self.resources.memory.limit_bytes
        return has is not None and to is not None and to < has

    def with_limit_of(self, managed: ManagedPod, why: str) -> RestoreGoal:
        """The same without a change of the memory limit, and a note with the reason."""
        memory = self.resources.memory.altered("limit", managed.container.memory.limit_bytes)
        note = f"its raised memory limit stays: {why}"
        return RestoreGoal(Resources(self.resources.cpu, memory), "; ".join(filter(None, (self.note, note))))

    def without_room(self, managed: ManagedPod) -> Resources:
        """The part that needs no room on the node: the limits, and the requests as far as they are in effect.

        While a request waits for room, nothing of its pod's resize is applied, also not the limit.
        """
        container, (cpu, memory) = managed.container, self.resources
        has, had = container.reported or container.desired, container.reported_memory or container.memory
        request = min(has.request_millicores, cpu.request_millicores)
        least = has if managed.pod.qos_class == GUARANTEED else CpuAllocation(cpu.limit_millicores, request)
        if memory.request_bytes is not None and had.request_bytes is not None:
            memory = memory.altered("request", min(had.request_bytes, memory.request_bytes))
        return Resources(least, memory)


def restored(
    managed: ManagedPod, original: CpuAllocation, memory: MemoryAllocation | None, settings: ResourceSettings
) -> RestoreGoal:
    """The container's original CPU, as far as it can be restored, and memory, of which a part that is None stays.

    A CPU limit that was added cannot be removed. It is raised to the ceiling, so that it has no effect, and above the
    request: at the same size a pod with equal memory would become Guaranteed, and Kubernetes would refuse it for good.
    """
    has, wanted = managed.container.memory, memory or MemoryAllocation()
    kept = MemoryAllocation(
        has.request_bytes if wanted.request_bytes is None else wanted.request_bytes,
        has.limit_bytes if wanted.limit_bytes is None else wanted.limit_bytes,
    )
    added = managed.container.desired.limit_millicores
    if original.limit_millicores is not None or added is None:
        return RestoreGoal(Resources(original, kept))
    ceiling = max(added, settings.cpu.max, original.request_millicores + 1)
    note = f"its limit was added by us and cannot be removed; it stays, at {ceiling}m"
    return RestoreGoal(Resources(CpuAllocation(ceiling, original.request_millicores), kept), note)


def left_by_other_control(managed: ManagedPod, original: CpuAllocation, settings: ResourceSettings) -> bool:
    """Whether it has CPU that was written under the other `control`, and that no resize under this one takes back.

    Under `requests` no limit is written; under `limits` a request is its original, or the limit where that is less.
    What others have written is left to them, as by a restore.
    """
    has = managed.container.desired
    if managed.pod.foreign_resizers:
        return False
    if settings.control == "requests":
        return has.limit_millicores != restored(managed, original, None, settings).resources.cpu.limit_millicores
    expected = min(original.request_millicores, has.limit_millicores or original.request_millicores)
    return managed.pod.qos_class != GUARANTEED and abs(has.request_millicores - expected) > 1
