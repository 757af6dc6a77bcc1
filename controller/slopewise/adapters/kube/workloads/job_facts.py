"""Facts about a job from its pod's own object: training container, annotations, eligibility, workload class. Pure.

`owners.py` finds the workload of the pod. `observer.py` keeps `JobFacts` until the pod, its node or its original
changes, and joins them with Prometheus readings.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from slopewise.adapters.kube.cache.records import ContainerRecord, ManagedPod, NodeRecord, PodRecord
from slopewise.adapters.kube.workloads.annotations import CONTAINER, Requested, read_annotations
from slopewise.adapters.kube.workloads.autoscalers import UNSCALED, ScaledBy
from slopewise.adapters.kube.workloads.eligibility import (
    Case,
    accepted_range,
    ineligible_reason,
    memory_ineligible_reason,
)
from slopewise.adapters.kube.workloads.owners import Identity, Trainer
from slopewise.config.training_policy import TrainingPolicySpec
from slopewise.model import AcceptedRange, CpuAllocation, MemoryAllocation


@dataclass(frozen=True, slots=True)
class JobFacts:
    """All facts about a job that need no Prometheus."""

    managed: ManagedPod
    node: NodeRecord | None
    original: CpuAllocation | None
    started_at_seconds: float
    requested: Requested
    ineligible_reason: str | None
    accepts: AcceptedRange
    memory_request_bytes: float | None
    scaled_by: ScaledBy
    """The HorizontalPodAutoscalers that scale its owner by CPU and by memory."""
    matches_spec: bool
    """Its accepted CPU is in effect, as its kubelet reports."""
    warnings: tuple[str, ...]
    workload_class: str = ""
    original_memory: MemoryAllocation | None = None
    memory_ineligible_reason: str | None = None
    request_follows_limit: bool = False
    """It is Guaranteed, and may reserve more than it came with (`Case.by_accelerators`)."""
    consent_withdrawn: bool = False
    """It was changed under a former `spec.resources.accelerators`, or when another of its containers was to be."""

    @property
    def is_given_up(self) -> bool:
        """Whether an autoscaler scales its owner by what was changed of it, or its CPU may not be changed any more."""
        by_memory = self.scaled_by.memory is not None and self.original_memory is not None
        return self.scaled_by.cpu is not None or by_memory or self.consent_withdrawn

    @property
    def memory_at_start_bytes(self) -> float | None:
        """What its next pod will request, where the request of its container was changed; None: the same as now."""
        original, now = self.original_memory, self.managed.container.memory_request_bytes
        if self.memory_request_bytes is None or original is None or original.request_bytes is None or now is None:
            return None
        return self.memory_request_bytes - now + original.request_bytes

    def still_holds(
        self,
        pod: PodRecord,
        node: NodeRecord | None,
        originals: tuple[CpuAllocation | None, MemoryAllocation | None],
        scaled_by: ScaledBy,
    ) -> bool:
        """Whether none of its inputs has changed."""
        if self.managed.pod is not pod or (self.scaled_by is not scaled_by and self.scaled_by != scaled_by):
            return False
        if (self.original, self.original_memory) != originals:
            return False
        return self.node is node or self.node == node  # nearly always the same; comparing takes labels and taints


def facts_of(
    identity: Identity,
    pod: PodRecord,
    node: NodeRecord | None,
    original: CpuAllocation | None,
    spec: TrainingPolicySpec,
    scaled: ScaledBy = UNSCALED,
    original_memory: MemoryAllocation | None = None,
    changed: str | None = None,
) -> JobFacts:
    """The facts of one pod under one policy; `original`: what it had before its first resize, if any.

    `changed`: the container whose original that is. It is restored before another one is changed.
    """
    started_at_seconds = pod.created_at_seconds if pod.started_at_seconds is None else pod.started_at_seconds
    requested = read_annotations(pod.annotations, started_at_seconds, spec.tenancy.max_weight)
    if identity.study:
        requested = replace(requested, objectives=replace(requested.objectives, study=identity.study))
    container, unclear = trainer(pod, spec.selector.container, requested.container)
    former = next((each for each in pod.containers if each.name == changed != container.name), None)
    if former is not None:
        unclear = f"container {former.name} was changed before, and is restored before {container.name} is changed"
        container = former
    cpu = original or container.desired
    case = Case(pod, container, node, spec.resources, cpu, scaled.cpu, scaled.memory)
    requests = [each.memory_request_bytes for each in pod.containers if each.memory_request_bytes is not None]
    return JobFacts(
        managed=ManagedPod(identity.job_uid, identity.workload, identity.slot, pod, container, identity.study),
        node=node,
        original=original,
        started_at_seconds=started_at_seconds,
        requested=requested,
        ineligible_reason=None if pod.ended else unclear or ineligible_reason(case),
        accepts=accepted_range(case),
        memory_request_bytes=float(sum(requests)) if requests else None,
        scaled_by=scaled,
        matches_spec=pod.matches_spec,
        warnings=(*identity.warnings, *requested.warnings),
        workload_class=workload_class(identity, pod.namespace, container, requested.workload_class),
        original_memory=original_memory,
        memory_ineligible_reason=None if pod.ended else unclear or memory_ineligible_reason(case),
        request_follows_limit=case.guaranteed and case.by_accelerators,
        consent_withdrawn=former is not None
        or (original is not None and pod.accelerators > 0 and not case.by_accelerators),
    )


def trainer_under(spec: TrainingPolicySpec) -> Trainer:
    """A function that finds the training container under this policy, or the one that was changed before."""
    return lambda identity, pod, changed: facts_of(identity, pod, None, None, spec, changed=changed).managed.container


def trainer(pod: PodRecord, by_policy: str | None, by_owner: str | None) -> tuple[ContainerRecord, str | None]:
    """The training container; or the first container, and why the training one is unknown.

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
    candidates = [container for container in pod.containers if not container.init]
    if len(candidates) == 1:
        return candidates[0], None
    return pod.containers[0], f"which container trains is not known; name one of {_listed(pod)} in {CONTAINER}"


def _listed(pod: PodRecord) -> str:
    return ", ".join(container.name for container in pod.containers)


_DIGEST_BYTES = 6


def workload_class(identity: Identity, namespace: str, container: ContainerRecord, stated: str | None) -> str:
    """`namespace/stated`, or `namespace/#digest` of the workload's kind and the container's program.

    `stated`: by the annotation `slopewise.dev/class`. Empty where the program is not known.
    """
    if stated is not None:
        return f"{namespace}/{stated}"
    if not container.program:
        return ""
    kind = f"{identity.workload.kind} {container.program}"
    return f"{namespace}/#{hashlib.blake2b(kind.encode(), digest_size=_DIGEST_BYTES).hexdigest()}"
