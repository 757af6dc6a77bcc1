"""Decides whether a container may be resized. Pure.

`observer.py` puts the answers into `Job.ineligible_reason` and `Job.accepts` (`accepted_range.py`); the guards of those
names withhold or clamp. Each reason names the obstacle and the remedy. What only the node can detect (lack of room, an
unlabelled static CPU manager) appears later, as `Job.pending`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from slopewise.adapters.kube.cache.parsing import VPA_MARKS
from slopewise.adapters.kube.cache.records import BEST_EFFORT, GUARANTEED, ContainerRecord, NodeRecord, PodRecord
from slopewise.config.training_policy import ResourceSettings
from slopewise.model import CpuAllocation

KUEUE_LABEL = "kueue.x-k8s.io/queue-name"

_MANY_NAMES = 3


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


Reason = Callable[[Case], str | None]


def ineligible_reason(case: Case) -> str | None:
    """Why this container may not be resized; None: it may be, or it has ended."""
    return _first(_REASONS, case)


def memory_ineligible_reason(case: Case) -> str | None:
    """Why this container's memory may not be changed; None: it may be, or it has ended."""
    return _first(_MEMORY_REASONS, case)


def _first(reasons: Iterable[Reason], case: Case) -> str | None:
    if case.pod.ended:
        return None
    return next((reason for each in reasons if (reason := each(case)) is not None), None)


def _deleting(case: Case) -> str | None:
    return "the pod is being deleted" if case.pod.deleting else None


def _static_pod(case: Case) -> str | None:
    owner = case.pod.owner
    if owner is None or owner.kind != "Node":
        return None
    return "a static pod belongs to its node's kubelet and cannot be resized; run the training as a Job"


def _lost_node(case: Case) -> str | None:
    if case.node is None or case.node.ready:
        return None
    return f"node {case.node.name} is not ready; changes go on when it is"


def _extended_resources(case: Case) -> str | None:
    names = sorted({name for container in case.pod.containers for name in container.extended_resources})
    if not names:
        return None
    return f"it asks for {_listed(names)}, and CPU is not what such a job is short of; it is never changed"


def _accelerators(case: Case) -> str | None:
    """With consent only a device claim is in the way: kubelets reject a resize of such a pod."""
    if not case.by_accelerators:
        return _extended_resources(case)
    if not any(name.startswith("claim ") for container in case.pod.containers for name in container.extended_resources):
        return None
    return "it has a device claim (DRA), and kubelets refuse to resize such a pod; request the device as nvidia.com/gpu"


def _pod_level_resources(case: Case) -> str | None:
    if not case.pod.pod_level_resources:
        return None
    return "its resources are set for the whole pod (spec.resources); set them for the container instead"


def _best_effort(case: Case) -> str | None:
    if case.pod.qos_class != BEST_EFFORT:
        return None
    return "a BestEffort pod cannot be resized; give its container a CPU request and a CPU limit"


def _restart_policy(case: Case) -> str | None:
    if not case.container.resize_restarts:
        return None
    return "its resizePolicy restarts it when CPU changes; remove RestartContainer for cpu from the pod template"


def other_resizer(pod: PodRecord) -> str | None:
    """Who else resizes a pod; None: no other resizer is visible."""
    if pod.foreign_resizers:
        return _listed(pod.foreign_resizers)
    return "a VerticalPodAutoscaler" if any(mark in pod.annotations for mark in VPA_MARKS) else None


def _other_resizer(case: Case) -> str | None:
    who = other_resizer(case.pod)
    if case.pod.foreign_resizers:
        return f"{who} resizes it too; set slopewise.dev/managed to 'false', or stop the other one and replace the pod"
    return None if who is None else f"{who} sizes it; delete that for this workload and replace the pod"


def _autoscaled(case: Case) -> str | None:
    return _scaled(case.autoscaler, "CPU", "slopewise.dev/managed to 'false'")


def _autoscaled_by_memory(case: Case) -> str | None:
    return _scaled(case.memory_autoscaler, "memory", "spec.resources.memory: Ignore")


def _scaled(autoscaler: str | None, resource: str, instead: str) -> str | None:
    """What to do about an autoscaler that counts what a resize changes; None: there is none."""
    if autoscaler is None:
        return None
    return (
        f"HorizontalPodAutoscaler {autoscaler} scales it by {resource}, which a resize changes; scale it by another "
        f"metric, or set {instead}"
    )


def _static_cpu_manager(case: Case) -> str | None:
    if not case.guaranteed or case.node is None or not case.node.static_cpu_manager:
        return None
    return (
        f"it is Guaranteed on node {case.node.name}, whose static CPU manager pins cores and refuses every resize; "
        "make its limit larger than its request"
    )


def _guaranteed_memory(case: Case) -> str | None:
    """Of pods on a node with the static memory manager too: it pins the memory of Guaranteed pods alone."""
    if not case.guaranteed:
        return None
    return "it is Guaranteed, and another memory request would change its QoS class; make its memory limit larger"


def _no_memory_request(case: Case) -> str | None:
    if case.container.memory_request_bytes is not None:
        return None
    return "it has no memory request that could be lowered; set one"


def _memory_restart_policy(case: Case) -> str | None:
    if not case.container.memory_resize_restarts:
        return None
    return "its resizePolicy restarts it when memory changes; remove RestartContainer for memory from the pod template"


def _swap(case: Case) -> str | None:
    if case.node is None or not case.node.swap_bytes:
        return None
    unseen = "what is swapped out is not in its working set, and kubelets resize no memory there"
    return f"node {case.node.name} swaps: {unseen}"


def _other_memory_resizer(case: Case) -> str | None:
    if not case.pod.foreign_memory_resizers:
        return None
    return f"{_listed(case.pod.foreign_memory_resizers)} resizes its memory; it is left to that"


def _not_running(case: Case) -> str | None:
    container = case.container
    if container.running_since_seconds is None:
        ending = " after it was killed for memory" if container.oom_killed_at_seconds is not None else ""
        started = "is restarting" if container.restarts_total else "does not run yet"
        return f"container {container.name} {started}{ending}; it is changed when it runs and is ready"
    return None if container.ready else f"container {container.name} is not ready; it is changed when it is"


def _no_support(case: Case) -> str | None:
    if case.container.reported is not None:
        return None
    return "its node's kubelet does not report actual CPU, so it cannot resize; it needs Kubernetes 1.33 or later"


def _no_limit(case: Case) -> str | None:
    if not case.by_limits or case.container.desired.limit_millicores is not None or case.settings.add_limits:
        return None
    return (
        "it has no CPU limit, and one that is added cannot be removed; set one, or spec.resources.addLimits: true, or "
        "control: requests"
    )


def _no_request(case: Case) -> str | None:
    if case.by_limits or case.container.desired.request_millicores > 0:
        return None
    return "it has no CPU request to give shares by; set one, or spec.resources.control: limits"


def _init_request(case: Case) -> str | None:
    floor = case.init_millicores
    if case.by_limits or floor < max(1, case.container.desired.request_millicores):
        return None
    return (
        f"its init containers request {case.pod.start_millicores}m of CPU, and its pod keeps that weight, so a lower "
        "request of its container has no effect; lower theirs"
    )


def _pinned(case: Case) -> str | None:
    if not case.guaranteed:
        return None
    if case.by_accelerators:
        remedy = "it is Guaranteed, so its request is its limit; set spec.resources.control: limits"
        return None if case.by_limits else remedy
    if case.settings.lower_requests:
        return None
    return (
        "it is Guaranteed, so its request must stay equal to its limit; set spec.resources.lowerRequests: true to let "
        "both move, or make its limit larger than its request"
    )


_REASONS: tuple[Reason, ...] = (
    _deleting,
    _static_pod,
    _lost_node,
    _accelerators,
    _pod_level_resources,
    _best_effort,
    _restart_policy,
    _other_resizer,
    _autoscaled,
    _static_cpu_manager,
    _no_limit,
    _no_request,
    _init_request,
    _pinned,
    _not_running,
    _no_support,
)
"""Permanent obstacles first, then what the owner can change, then what passes: of several reasons the most useful is
shown."""


_MEMORY_REASONS: tuple[Reason, ...] = (
    _deleting,
    _static_pod,
    _lost_node,
    _extended_resources,
    _pod_level_resources,
    _best_effort,
    _guaranteed_memory,
    _no_memory_request,
    _memory_restart_policy,
    _other_resizer,
    _other_memory_resizer,
    _autoscaled,
    _autoscaled_by_memory,
    _swap,
    _not_running,
    _no_support,
)


def _listed(names: tuple[str, ...] | list[str]) -> str:
    """Names for a message, bounded in number."""
    more = f" and {len(names) - _MANY_NAMES} more" if len(names) > _MANY_NAMES else ""
    return ", ".join(names[:_MANY_NAMES]) + more
