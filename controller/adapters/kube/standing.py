"""What a pod's own object says of its job: who it is, which container trains, what its owner asks, what may be changed.

`owners.py` says whose pod it is; `observer.py` keeps a `Standing` until the pod, its node or its original changes, and
joins it with what Prometheus knows. Nothing here talks to anyone.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.adapters.kube.annotations import CONTAINER, Asked, read_annotations
from controller.adapters.kube.eligibility import Case, accepted_range, hands_off
from controller.adapters.kube.owners import Identity
from controller.adapters.kube.records import ContainerRecord, ManagedPod, NodeRecord, PodRecord
from controller.model import AcceptedRange, CpuAllocation
from controller.settings import TrainingPolicySpec


@dataclass(frozen=True, slots=True)
class Standing:
    """All that is known of a job without asking Prometheus."""

    managed: ManagedPod
    node: NodeRecord | None
    original: CpuAllocation | None
    started_at_seconds: float
    asked: Asked
    hands_off: str | None
    accepts: AcceptedRange
    memory_request_bytes: float | None
    autoscaler: str | None
    """The HorizontalPodAutoscaler that scales its owner by CPU."""
    is_in_effect: bool
    """What was accepted of its CPU is in effect, as its kubelet reports."""
    warnings: tuple[str, ...]

    def still_holds(
        self, pod: PodRecord, node: NodeRecord | None, original: CpuAllocation | None, autoscaler: str | None
    ) -> bool:
        """Whether nothing has changed that it was made from."""
        if self.managed.pod is not pod or self.original != original or self.autoscaler != autoscaler:
            return False
        return self.node is node or self.node == node  # nearly always the same; comparing takes labels and taints


def standing(
    identity: Identity,
    pod: PodRecord,
    node: NodeRecord | None,
    original: CpuAllocation | None,
    spec: TrainingPolicySpec,
    autoscaler: str | None = None,
) -> Standing:
    """What is known of one pod under one policy; `original` is what it had before our first change, if that was."""
    started_at_seconds = pod.created_at_seconds if pod.started_at_seconds is None else pod.started_at_seconds
    asked = read_annotations(pod.annotations, started_at_seconds, spec.tenancy.max_weight)
    container, unclear = trainer(pod, spec.selector.container, asked.container)
    case = Case(pod, container, node, spec.resources, original or container.wished, autoscaler)
    requests = [each.memory_request_bytes for each in pod.containers if each.memory_request_bytes is not None]
    return Standing(
        managed=ManagedPod(identity.job_uid, identity.workload, identity.slot, pod, container),
        node=node,
        original=original,
        started_at_seconds=started_at_seconds,
        asked=asked,
        hands_off=None if pod.ended else unclear or hands_off(case),
        accepts=accepted_range(case),
        memory_request_bytes=float(sum(requests)) if requests else None,
        autoscaler=autoscaler,
        is_in_effect=pod.is_in_effect,
        warnings=(*identity.warnings, *asked.warnings),
    )


def trainer(pod: PodRecord, by_policy: str | None, by_owner: str | None) -> tuple[ContainerRecord, str | None]:
    """The container that trains, or the first one and why that is not known.

    The policy's container where the pod has one of that name, else the one that the pod's annotation names, else the
    only one beside sidecars.
    """
    by_name = {container.name: container for container in pod.containers}
    if by_policy in by_name:
        return by_name[by_policy], None
    if by_owner is not None:
        if by_owner in by_name:
            return by_name[by_owner], None
        return pod.containers[0], f"annotation {CONTAINER} names {by_owner!r}, and the pod has {_listed(pod)}"
    alone = [container for container in pod.containers if not container.init]
    if len(alone) == 1:
        return alone[0], None
    return pod.containers[0], f"which container trains is not known; name one of {_listed(pod)} in {CONTAINER}"


def _listed(pod: PodRecord) -> str:
    return ", ".join(container.name for container in pod.containers)
