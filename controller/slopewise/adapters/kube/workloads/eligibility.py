"""Decides whether a container may be resized, and within which range of targets. Pure.

`observer.py` puts the answers into `Job.ineligible_reason` and `Job.accepts`; the guards of those names withhold or
clamp. Each reason names the obstacle and the remedy. What only the node can detect (lack of room, an unlabelled static
CPU manager) appears later, as `Job.pending`.

Two rules of Kubernetes shape the range: a limit is never below its request, and a resize never changes the QoS class.
Worked example: request 500m, limit 2, memory 1Gi for both, `lowerRequests: false`: the limit may go down to 501m,
because at 500m the pod would become Guaranteed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from slopewise.adapters.kube.cache.parsing import VPA_MARKS
from slopewise.adapters.kube.cache.records import BEST_EFFORT, GUARANTEED, ContainerRecord, NodeRecord, PodRecord
from slopewise.config.training_policy import ResourceSettings
from slopewise.model import AcceptedRange, CpuAllocation

KUEUE_LABEL = "kueue.x-k8s.io/queue-name"

_MANY_NAMES = 3
_UNMANAGE = "slopewise.dev/managed to 'false'"


@dataclass(frozen=True, slots=True)
class Case:
    """One container and the facts that decide. `original`: what it had before its first resize."""

    pod: PodRecord
    container: ContainerRecord
    node: NodeRecord | None
    settings: ResourceSettings
    original: CpuAllocation
    autoscaler: str | None = None
    """The HorizontalPodAutoscaler that scales its owner by CPU."""
    memory_autoscaler: str | None = None
    """The one that scales its owner by memory."""

    @property
    def by_limits(self) -> bool:
        """Whether the policy resizes hard limits."""
        return self.settings.control == "limits"

    @property
    def guaranteed(self) -> bool:
        """Whether request and limit must stay equal."""
        return self.pod.qos_class == GUARANTEED

    @property
    def by_accelerators(self) -> bool:
        """Whether the policy changes the CPU of jobs with accelerators, and this is one."""
        return self.settings.accelerators != "Ignore" and self.pod.accelerators > 0

    @property
    def init_millicores(self) -> int:
        """The request below which the pod's cgroup keeps the weight of its init containers.

        Worked example: an init container of 500m, a sidecar of 50m: below 450m the container's own request has no
        effect.
        """
        others = (each.desired.request_millicores for each in self.pod.containers if each is not self.container)
        return self.pod.start_millicores - sum(others)

    @property
    def queued(self) -> bool:
        """Whether Kueue admitted it, which does not account for resizes."""
        return KUEUE_LABEL in self.pod.labels

    @property
    def must_stay_burstable(self) -> bool:
        """Whether request = limit here would make a Burstable pod Guaranteed."""
        return self.pod.guaranteed_but_for_cpu_of(self.container)


def ineligible_reason(case: Case) -> str | None:
    """Why this container may not be resized; None: it may be, or it has ended."""
    return None if case.pod.ended else next(_reasons(case), None)


def memory_ineligible_reason(case: Case) -> str | None:
    """Why this container's memory may not be changed; None: it may be, or it has ended."""
    return None if case.pod.ended else next(_memory_reasons(case), None)


def _reasons(case: Case) -> Iterator[str]:
    """Permanent obstacles first, then what the owner can change, then what passes: the most useful one is shown."""
    yield from _of_the_pod(case, _accelerators(case))
    if case.container.resize_restarts:
        yield "its resizePolicy restarts it when CPU changes; remove RestartContainer for cpu from the pod template"
    yield from _of_other_resizers(case)
    if case.autoscaler is not None:
        yield _scaled(case.autoscaler, "CPU", _UNMANAGE)
    yield from _of_the_policy(case)
    yield from _passing(case)


def _memory_reasons(case: Case) -> Iterator[str]:
    container, pod = case.container, case.pod
    yield from _of_the_pod(case, _extended_resources(case))
    if case.guaranteed:  # also on a node with the static memory manager, which pins the memory of such pods alone
        yield "it is Guaranteed, and another memory request would change its QoS class; make its memory limit larger"
    if container.memory_request_bytes is None:
        yield "it has no memory request that could be lowered; set one"
    if container.memory_resize_restarts:
        yield (
            "its resizePolicy restarts it when memory changes; remove RestartContainer for memory from the pod template"
        )
    yield from _of_other_resizers(case)
    if pod.foreign_memory_resizers:
        yield f"{_listed(pod.foreign_memory_resizers)} resizes its memory; it is left to that"
    if case.autoscaler is not None:
        yield _scaled(case.autoscaler, "CPU", _UNMANAGE)
    if case.memory_autoscaler is not None:
        yield _scaled(case.memory_autoscaler, "memory", "spec.resources.memory: Ignore")
    if case.node is not None and case.node.swap_bytes:
        unseen = "what is swapped out is not in its working set, and kubelets resize no memory there"
        yield f"node {case.node.name} swaps: {unseen}"
    yield from _passing(case)


def _of_the_pod(case: Case, devices: str | None) -> Iterator[str]:
    """What no resource of this pod may be changed for; `devices`: what its devices forbid."""
    pod, node = case.pod, case.node
    if pod.deleting:
        yield "the pod is being deleted"
    if pod.owner is not None and pod.owner.kind == "Node":
        yield "a static pod belongs to its node's kubelet and cannot be resized; run the training as a Job"
    if node is not None and not node.ready:
        yield f"node {node.name} is not ready; changes go on when it is"
    if devices is not None:
        yield devices
    if pod.pod_level_resources:
        yield "its resources are set for the whole pod (spec.resources); set them for the container instead"
    if pod.qos_class == BEST_EFFORT:
        yield "a BestEffort pod cannot be resized; give its container a CPU request and a CPU limit"


def _extended_resource_names(case: Case) -> str:
    return _listed(sorted({name for container in case.pod.containers for name in container.extended_resources}))


def _extended_resources(case: Case) -> str | None:
    names = _extended_resource_names(case)
    return f"it asks for {names}, and such a pod is never changed" if names else None


def _accelerators(case: Case) -> str | None:
    """With consent only a device claim is in the way: kubelets reject a resize of such a pod."""
    if not case.by_accelerators:
        if not case.pod.accelerators:
            return _extended_resources(case)
        names = _extended_resource_names(case)
        return f"it asks for {names}; only spec.resources.accelerators: Raise or Share changes its CPU"
    if not any(name.startswith("claim ") for container in case.pod.containers for name in container.extended_resources):
        return None
    return "it has a device claim (DRA), and kubelets refuse to resize such a pod; request the device as nvidia.com/gpu"


def other_resizer(pod: PodRecord) -> str | None:
    """Who else resizes a pod; None: no other resizer is visible."""
    if pod.foreign_resizers:
        return _listed(pod.foreign_resizers)
    return "a VerticalPodAutoscaler" if any(mark in pod.annotations for mark in VPA_MARKS) else None


def _of_other_resizers(case: Case) -> Iterator[str]:
    who = other_resizer(case.pod)
    if case.pod.foreign_resizers:
        yield f"{who} resizes it too; set {_UNMANAGE}, or stop the other one and replace the pod"
    elif who is not None:
        yield f"{who} sizes it; delete that for this workload and replace the pod"


def _scaled(autoscaler: str, resource: str, instead: str) -> str:
    """What to do about an autoscaler that counts what a resize changes."""
    return (
        f"HorizontalPodAutoscaler {autoscaler} scales it by {resource}, which a resize changes; scale it by another "
        f"metric, or set {instead}"
    )


def _of_the_policy(case: Case) -> Iterator[str]:
    """What another setting of the policy, or another request or limit, would allow."""
    cpu, node = case.container.desired, case.node
    if case.guaranteed and node is not None and node.static_cpu_manager:
        yield (
            f"it is Guaranteed on node {node.name}, whose static CPU manager pins cores and refuses every resize; "
            "make its limit larger than its request"
        )
    if case.by_limits and cpu.limit_millicores is None and not case.settings.add_limits:
        yield (
            "it has no CPU limit, and one that is added cannot be removed; set one, or spec.resources.addLimits: true, "
            "or control: requests"
        )
    if not case.by_limits and cpu.request_millicores <= 0:
        yield "it has no CPU request to give shares by; set one, or spec.resources.control: limits"
    if not case.by_limits and case.init_millicores >= max(1, cpu.request_millicores):
        yield (
            f"its init containers request {case.pod.start_millicores}m of CPU, and its pod keeps that weight, so a "
            "lower request of its container has no effect; lower theirs"
        )
    if case.guaranteed and case.by_accelerators and not case.by_limits:
        yield "it is Guaranteed, so its request is its limit; set spec.resources.control: limits"
    if case.guaranteed and not case.by_accelerators and not case.settings.lower_requests:
        yield (
            "it is Guaranteed, so its request must stay equal to its limit; set spec.resources.lowerRequests: true to "
            "let both move, or make its limit larger than its request"
        )


def _passing(case: Case) -> Iterator[str]:
    """Obstacles that end by themselves, and a kubelet that is too old to say so."""
    container = case.container
    if container.running_since_seconds is None:
        ending = " after it was killed for memory" if container.oom_killed_at_seconds is not None else ""
        started = "is restarting" if container.restarts_total else "does not run yet"
        yield f"container {container.name} {started}{ending}; it is changed when it runs and is ready"
    elif not container.ready:
        yield f"container {container.name} is not ready; it is changed when it is"
    if container.reported is None:
        yield "its node's kubelet does not report actual CPU, so it cannot resize; it needs Kubernetes 1.35 or later"


def _listed(names: tuple[str, ...] | list[str]) -> str:
    """Names for a message, bounded in number."""
    more = f" and {len(names) - _MANY_NAMES} more" if len(names) > _MANY_NAMES else ""
    return ", ".join(names[:_MANY_NAMES]) + more


def accepted_range(case: Case) -> AcceptedRange:
    """The targets that the API server accepts, in the controlled dimension."""
    if case.guaranteed:
        return _guaranteed_range(case)
    return _limits_range(case) if case.by_limits else _requests_range(case)


def _guaranteed_range(case: Case) -> AcceptedRange:
    """Request and limit move together: below the original and back, never above the reserved amount.

    A job with accelerators may reserve more, as far as its node has room (`node_capacity`), unless Kueue admitted it.
    """
    if case.by_accelerators and not case.queued:
        return AcceptedRange(1)
    most = case.original.request_millicores
    return AcceptedRange(1, most, f"it is Guaranteed and reserved {most}m")


def _limits_range(case: Case) -> AcceptedRange:
    """A limit may rise freely, and fall to its request, or lower where the request may follow."""
    request = case.container.desired.request_millicores
    apart = case.must_stay_burstable
    if case.settings.lower_requests:
        # At a limit of 1m the request would have to be 0 to stay apart, and a request cannot be taken away.
        return AcceptedRange(2 if apart else 1, None, "its QoS class must stay Burstable" if apart else "")
    remedy = "spec.resources.lowerRequests: true allows less"
    if apart:
        return AcceptedRange(request + 1, None, f"request {request}m, and it must stay Burstable; {remedy}")
    return AcceptedRange(max(1, request), None, f"request {request}m; {remedy}")


def _requests_range(case: Case) -> AcceptedRange:
    """A request may rise to its limit. Kueue does not account for resizes, so its admitted amount is the bound."""
    limit = case.container.desired.limit_millicores
    bounds: list[tuple[int, str]] = []
    if limit is not None:
        apart = case.must_stay_burstable
        reason = f"limit {limit}m, and it must stay Burstable" if apart else f"limit {limit}m"
        bounds.append((limit - apart, reason))
    if case.queued:
        admitted = case.original.request_millicores
        bounds.append((admitted, f"Kueue admitted it with {admitted}m"))
    most, reason = min(bounds, default=(None, ""))
    least = max(1, case.init_millicores)
    if least > 1:
        reason = "; ".join(filter(None, (reason, f"its init containers request {case.pod.start_millicores}m")))
    return AcceptedRange(least, most, reason)
