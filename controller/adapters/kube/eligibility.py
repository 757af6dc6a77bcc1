"""Whether a container may be resized at all, and between which bounds Kubernetes takes a target.

`observer.py` asks for every pod that has changed and puts the answers into `Job.hands_off` and `Job.accepts`; the
guards of those names withhold or clamp. Each reason says what is in the way and what would allow it. Nothing here
talks to anyone. What only the node knows (room, a CPU manager that nobody told of) shows later, as `Job.pending`.

Two rules of Kubernetes shape the bounds: a limit is never below its request, and a resize never changes the QoS
class. Worked example: request 500m, limit 2, memory 1Gi for both, `lowerRequests: false`: the limit may go down to
501m, because at 500m the pod would become Guaranteed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controller.adapters.kube.parsing import VPA_MARKS
from controller.adapters.kube.records import BEST_EFFORT, GUARANTEED, ContainerRecord, NodeRecord, PodRecord
from controller.model import AcceptedRange, CpuAllocation
from controller.settings import ResourceSettings

KUEUE_LABEL = "kueue.x-k8s.io/queue-name"

_MANY_NAMES = 3


@dataclass(frozen=True, slots=True)
class Case:
    """One container, with all that decides on it. `original`: what it had before our first change."""

    pod: PodRecord
    container: ContainerRecord
    node: NodeRecord | None
    settings: ResourceSettings
    original: CpuAllocation
    autoscaler: str | None = None
    """The HorizontalPodAutoscaler that scales its owner by CPU."""

    @property
    def by_limits(self) -> bool:
        """Whether hard limits are what is changed."""
        return self.settings.control == "limits"

    @property
    def guaranteed(self) -> bool:
        """Whether request and limit must stay equal."""
        return self.pod.qos_class == GUARANTEED

    @property
    def must_stay_apart(self) -> bool:
        """Whether request = limit here would make a Burstable pod Guaranteed."""
        return self.pod.guaranteed_but_for_cpu_of(self.container)


Reason = Callable[[Case], str | None]


def hands_off(case: Case) -> str | None:
    """Why this container is not to be changed, in words; None: it may be, or it has ended and needs no reason."""
    if case.pod.ended:
        return None
    return next((reason for each in _REASONS if (reason := each(case)) is not None), None)


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
    """Who else resizes a pod; None: nobody that can be seen."""
    if pod.foreign_resizers:
        return _listed(pod.foreign_resizers)
    return "a VerticalPodAutoscaler" if any(mark in pod.annotations for mark in VPA_MARKS) else None


def _other_resizer(case: Case) -> str | None:
    who = other_resizer(case.pod)
    if case.pod.foreign_resizers:
        return f"{who} resizes it too; set slopewise.dev/managed to 'false', or stop the other one and replace the pod"
    return None if who is None else f"{who} sizes it; delete that for this workload and replace the pod"


def _autoscaled(case: Case) -> str | None:
    if case.autoscaler is None:
        return None
    return (
        f"HorizontalPodAutoscaler {case.autoscaler} scales it by CPU, which a resize changes; scale it by another "
        "metric, or set slopewise.dev/managed to 'false'"
    )


def _static_cpu_manager(case: Case) -> str | None:
    if not case.guaranteed or case.node is None or not case.node.static_cpu_manager:
        return None
    return (
        f"it is Guaranteed on node {case.node.name}, whose static CPU manager pins cores and refuses every resize; "
        "make its limit larger than its request"
    )


def _not_running(case: Case) -> str | None:
    container = case.container
    if container.running_since_seconds is None:
        ending = " after it was killed for memory" if container.oom_killed_at_seconds is not None else ""
        started = "is restarting" if container.restarts_total else "does not run yet"
        return f"container {container.name} {started}{ending}; it is changed when it runs and is ready"
    return None if container.ready else f"container {container.name} is not ready; it is changed when it is"


def _no_support(case: Case) -> str | None:
    if case.container.in_effect is not None:
        return None
    return "its node's kubelet does not tell what is in effect, so it cannot resize; it needs Kubernetes 1.33 or later"


def _no_limit(case: Case) -> str | None:
    if not case.by_limits or case.container.wished.limit_millicores is not None or case.settings.add_limits:
        return None
    return (
        "it has no CPU limit, and one that is added cannot be removed; set one, or spec.resources.addLimits: true, or "
        "control: requests"
    )


def _no_request(case: Case) -> str | None:
    if case.by_limits or case.container.wished.request_millicores > 0:
        return None
    return "it has no CPU request to give shares by; set one, or spec.resources.control: limits"


def _pinned(case: Case) -> str | None:
    if not case.guaranteed or case.settings.lower_requests:
        return None
    return (
        "it is Guaranteed, so its request must stay equal to its limit; set spec.resources.lowerRequests: true to let "
        "both move, or make its limit larger than its request"
    )


_REASONS: tuple[Reason, ...] = (
    _deleting,
    _static_pod,
    _lost_node,
    _extended_resources,
    _pod_level_resources,
    _best_effort,
    _restart_policy,
    _other_resizer,
    _autoscaled,
    _static_cpu_manager,
    _no_limit,
    _no_request,
    _pinned,
    _not_running,
    _no_support,
)
"""First what ends or is nobody's choice, then what its owner can change, last what passes by itself: of several reasons
the one that somebody can act on is told."""


def accepted_range(case: Case) -> AcceptedRange:
    """Between which targets the API server takes a change, in the dimension that is controlled."""
    if case.guaranteed:
        return _guaranteed_range(case)
    return _limits_range(case) if case.by_limits else _requests_range(case)


def _guaranteed_range(case: Case) -> AcceptedRange:
    """Request and limit move together: below the original and back, never above it, which nobody reserved."""
    most = case.original.request_millicores
    return AcceptedRange(1, most, f"it is Guaranteed and reserved {most}m")


def _limits_range(case: Case) -> AcceptedRange:
    """A limit may rise freely, and fall to its request, or below where the request may follow it down."""
    request = case.container.wished.request_millicores
    apart = case.must_stay_apart
    if case.settings.lower_requests:
        # At a limit of 1m the request would have to be 0 to stay apart, and a request cannot be taken away.
        return AcceptedRange(2 if apart else 1, None, "its QoS class must stay Burstable" if apart else "")
    remedy = "spec.resources.lowerRequests: true allows less"
    if apart:
        return AcceptedRange(request + 1, None, f"request {request}m, and it must stay Burstable; {remedy}")
    return AcceptedRange(max(1, request), None, f"request {request}m; {remedy}")


def _requests_range(case: Case) -> AcceptedRange:
    """A request may rise to its limit. Kueue does not see resizes: what it admitted is the most that its pods hold."""
    limit = case.container.wished.limit_millicores
    bounds: list[tuple[int, str]] = []
    if limit is not None:
        apart = case.must_stay_apart
        why = f"limit {limit}m, and it must stay Burstable" if apart else f"limit {limit}m"
        bounds.append((limit - apart, why))
    if KUEUE_LABEL in case.pod.labels:
        admitted = case.original.request_millicores
        bounds.append((admitted, f"Kueue admitted it with {admitted}m"))
    most, why = min(bounds, default=(None, ""))
    return AcceptedRange(1, most, why)


def _listed(names: tuple[str, ...] | list[str]) -> str:
    """Names in a sentence, not all of a hostile number of them."""
    more = f" and {len(names) - _MANY_NAMES} more" if len(names) > _MANY_NAMES else ""
    return ", ".join(names[:_MANY_NAMES]) + more
