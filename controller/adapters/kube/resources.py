"""What a container's CPU is to be after a resize, within what `pods/resize` allows, and the patch that says so. Pure.

Before it: a `Resize` that passed the guards, or an original that is to come back. After it: `actuator.py`, which sends
the body. What Kubernetes refuses for good is found here, with a sentence, instead of by a call: a limit below its
request, another QoS class, a request above its limit. Seen on 1.36: a limit that is given to a container without a
request brings a request of the same size with it, so that one is written as 0; a limit, once there, stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from controller.adapters.kube.contracts import Json
from controller.adapters.kube.records import BEST_EFFORT, GUARANTEED, ContainerRecord, ManagedPod, PodRecord
from controller.model import CpuAllocation, Resize
from controller.settings import ResourceSettings, cpu_quantity


@dataclass(frozen=True, slots=True)
class Impossible:
    """No, and why; the reason says what would make it possible."""

    reason: str


@dataclass(frozen=True, slots=True)
class Goal:
    """What restoring a container leads to; `note` says what of the original cannot come back."""

    allocation: CpuAllocation
    note: str = ""


def resized(
    managed: ManagedPod, resize: Resize, original: CpuAllocation, settings: ResourceSettings
) -> CpuAllocation | Impossible:
    """The container's request and limit after this resize. `original` bounds how far a request comes back up."""
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
    """Guaranteed: request and limit are one, and stay one."""
    if not settings.lower_requests:
        return Impossible(
            "its pod is Guaranteed, so its request moves with its limit; set resources.lowerRequests to allow that"
        )
    highest = max(original.request_millicores, managed.container.wished.request_millicores)
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
    has = managed.container.wished
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
    # Its QoS class may not become Guaranteed: 1m apart is enough, and nobody notices it.
    lowers = settings.lower_requests and request > 1
    return CpuAllocation(target, request - 1) if lowers else CpuAllocation(target + 1, request)


def _with_request(managed: ManagedPod, target: int) -> CpuAllocation | Impossible:
    limit = managed.container.wished.limit_millicores
    if managed.pod.qos_class == GUARANTEED:
        return Impossible("its pod is Guaranteed, so its request cannot move alone; use resources.control: limits")
    if limit is not None and target > limit:
        return Impossible(f"a request cannot go above its limit of {limit}m; raise the limit, or remove it")
    apart = int(target == limit and target > 1 and managed.pod.guaranteed_but_for_cpu_of(managed.container))
    return CpuAllocation(limit, target - apart)


def restored(managed: ManagedPod, original: CpuAllocation, settings: ResourceSettings) -> Goal:
    """What the container had before our first change, as far as it can have it again.

    A limit that was added cannot be removed. It is raised to the ceiling, so that it stays without being felt.
    """
    added = managed.container.wished.limit_millicores
    if original.limit_millicores is not None or added is None:
        return Goal(original)
    limit = max(added, settings.cpu.max, original.request_millicores)
    return Goal(
        CpuAllocation(limit, original.request_millicores),
        f"its limit was added by us and cannot be removed; it stays, at {limit}m",
    )


def without_room(managed: ManagedPod, goal: CpuAllocation) -> CpuAllocation:
    """What of the goal needs no room on the node: the limit at once, the request as far as it is in effect.

    While a request waits for room, nothing of its pod's resize is applied, also not the limit.
    """
    in_effect = managed.container.in_effect or managed.container.wished
    if managed.pod.qos_class == GUARANTEED:
        return in_effect
    return CpuAllocation(goal.limit_millicores, min(in_effect.request_millicores, goal.request_millicores))


def patch_body(pod: PodRecord, container: ContainerRecord, to: CpuAllocation) -> Json:
    """The strategic-merge patch of `pods/resize`, with only what changes of the container's CPU.

    uid and resourceVersion are preconditions: a pod of the same name, or one that somebody has changed meanwhile, is
    answered with 409.
    """
    kind = "initContainers" if container.init else "containers"
    return {
        "metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version},
        "spec": {kind: [{"name": container.name, "resources": _changes(container, to)}]},
    }


def _changes(container: ContainerRecord, to: CpuAllocation) -> dict[str, Any]:
    has, changes = container.wished, {}
    if to.limit_millicores is not None and to.limit_millicores != has.limit_millicores:
        changes["limits"] = {"cpu": cpu_quantity(to.limit_millicores)}
    defaulted = "limits" in changes and not container.has_request
    if defaulted or to.request_millicores != has.request_millicores:
        changes["requests"] = {"cpu": cpu_quantity(to.request_millicores)}
    return changes
