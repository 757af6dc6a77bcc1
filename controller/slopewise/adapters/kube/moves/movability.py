"""Computes whether and how a running pod can be moved, and which nodes would refuse it: `Job.movability`. Pure.

`moves/movability_inputs.py` provides the pod's `SchedulingFacts`, its owner and volumes (`moves/owner_cache.py`) and
node fit (`moves/node_predicates.py`). Guards of moves weigh the result, and `moves/dispatch.py` takes the way that it
names. Only pods with `slopewise.dev/migratable: "true"` are evaluated.

Each reason names the obstacle and the remedy. What only the scheduler can decide (strict topology spread, required pod
affinity, devices) blocks a move: a useless move costs more than it gains.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slopewise.adapters.kube.cache.records import MOVES_ALLOWED, MOVES_LABEL, ManagedPod, ObjectRecord, SchedulingFacts
from slopewise.adapters.kube.moves.node_predicates import Needs, NodeFit
from slopewise.adapters.kube.moves.owner_cache import Disk, OwnerTemplate
from slopewise.adapters.kube.workloads.eligibility import KUEUE_LABEL
from slopewise.model import CpuAllocation, Movability, MoveWay

SUSPEND_RESTART_SECONDS = 2.0
"""From the old pod's end to the new one's start; 0.7 to 1.2 s were measured."""

EVICT_RESTART_SECONDS = 12.0
"""The Job controller waits 10 s before it replaces an evicted pod, and twice as long each further time."""

MAX_RECREATION_BACKOFF_SECONDS = 600.0
STATEFUL_RESTART_SECONDS = 2.0

_NETWORK_VOLUMES = frozenset({
    "nfs", "cephfs", "glusterfs", "azureFile", "rbd", "iscsi", "fc", "quobyte", "storageos", "portworxVolume",
    "awsElasticBlockStore", "gcePersistentDisk", "azureDisk", "cinder", "vsphereVolume", "scaleIO",
})  # fmt: skip
"""Volume sources that another node can read, at the same time or after the first one has released it."""

NO_DISKS: Mapping[str, Disk] = {}

_KUEUE = KUEUE_LABEL.partition("/")[0] + "/"


@dataclass(frozen=True, slots=True)
class MoveCase:
    """One pod that may be moved, and the facts that decide."""

    managed: ManagedPod
    original: CpuAllocation
    """What its trainer had before its first resize, and will have again after a move."""
    scheduling: SchedulingFacts
    owner_record: ObjectRecord | None
    """Its Job, from the watch; None: its direct owner is no Job, or unknown."""
    owner_affinity_json: str
    """Of its owner's template, without our pin."""
    template: OwnerTemplate
    disks: Mapping[str, Disk]
    """By the name of the claim."""
    members: tuple[ManagedPod, ...]
    """All running pods of its workload, itself among them."""
    can_suspend: bool | None
    """The API server is new enough (`SUSPENDS_FROM`); None: its version is unknown yet."""
    moves_made: int = 0
    moves_allowed: bool = True
    """Its namespace opts in to moves (`moves/movability_inputs.py`)."""


def movability(case: MoveCase, fit: NodeFit | None) -> Movability:
    """How it could be moved. `fit` is None where nodes may not be read."""
    stays = next(_reasons(case, fit), None)
    way = _way(case)
    if stays is None:
        template = case.template
        stays = template.not_suspendable_reason if way == "suspend" else template.not_evictable_reason
    needs = needs_of(case.scheduling, case.owner_affinity_json, case.disks)
    request = sum(_request_millicores(each, case) for each in case.members)
    return Movability(
        way=None if stays else way,
        blocked_reason=stays,
        refused_nodes={} if stays or fit is None else fit.refused(needs, request),
        grace_seconds=case.scheduling.grace_seconds,
        restart_seconds=_restart_seconds(case, way),
        members=tuple(each.job_uid for each in case.members),
    )


def _way(case: MoveCase) -> MoveWay:
    """Suspending has no back-off and needs no gate; a Job's own controller would resume it, so it is evicted."""
    owner, record = case.managed.pod.owner, case.owner_record
    free = owner is not None and owner.kind == "Job" and record is not None and record.owner is None
    return "suspend" if free and case.can_suspend else "evict"


def _reasons(case: MoveCase, fit: NodeFit | None) -> Iterator[str]:
    """First what its owner can never change, last what passes by itself."""
    pod, facts = case.managed.pod, case.scheduling
    if pod.owner is None:
        yield "a bare pod is not recreated; run it as a Job"
    if _is_kueues(case):
        yield "Kueue manages it, and what it has admitted stays where it is"
    if facts.do_not_disrupt:
        yield f"its annotation {facts.do_not_disrupt} forbids to disrupt it"
    yield from _beyond_knowing(case)
    yield from volume_reasons(case.scheduling, case.disks)
    if not case.moves_allowed:
        yield f"its namespace {pod.namespace} does not opt in to moves; label it {MOVES_LABEL}={MOVES_ALLOWED}"
    if fit is None:
        yield "nodes may not be read, so it is unknown which would accept it; grant the right to read nodes"
    if case.can_suspend is None:
        yield "the API server has not reported its version yet"
    if case.template.blocked_reason:
        yield case.template.blocked_reason
    yield from _apart(case)


def _is_kueues(case: MoveCase) -> bool:
    """By its pod, which Kueue labels for the owners that it manages, or by its Job's queue."""
    labels = [*case.managed.pod.labels, *(case.owner_record.labels if case.owner_record else ())]
    return any(label.startswith(_KUEUE) for label in (*labels, *case.managed.pod.gates))


def _beyond_knowing(case: MoveCase) -> Iterator[str]:
    facts = case.scheduling
    extended = {name for each in case.managed.pod.containers for name in each.extended_resources}
    if extended or facts.claims_devices:
        what = min(extended, default="a device claim")
        yield f"it asks for {what}, and where another one is free only the scheduler knows"
    if facts.spreads_strictly:
        yield "a topology spread constraint says DoNotSchedule; with ScheduleAnyway it could be moved"
    affinity = json.loads(case.owner_affinity_json) if case.owner_affinity_json else {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution"):
            yield f"its {kind} is required, and where that holds only the scheduler knows; make it preferred"


def volume_reasons(scheduling: SchedulingFacts, disks: Mapping[str, Disk] = NO_DISKS) -> Iterator[str]:
    """Why another node could not read a pod's checkpoints; `disks`: of its claims, as far as they are known.

    A checkpoint on one node would be lost: training would start again, and at first unnoticed.
    """
    if scheduling.needs_no_volume:
        return
    for volume in scheduling.volumes:
        if volume.kind == "hostPath":
            yield f"its volume {volume.name} is a directory of its node; keep checkpoints on a claim"
    for disk in disks.values():
        if disk.blocked_reason:
            yield disk.blocked_reason
    if not any(volume.claim or volume.kind in _NETWORK_VOLUMES for volume in scheduling.volumes):
        yield (
            "it has no volume that another node can read, so its checkpoints would stay behind; mount a claim, or set "
            "slopewise.dev/checkpoints: external where they go to an object store, none where a served model makes none"
        )


def _apart(case: MoveCase) -> Iterator[str]:
    """Whether its workload's pods can be moved together, and identified afterwards."""
    others = [each.pod for each in case.members if each.job_uid != case.managed.job_uid]
    if others and case.managed.slot == case.managed.pod.name:
        yield "its owner has several pods that are alike; make the Job Indexed, so that each is known after a move"
    if (fixed := next((pod for pod in others if not pod.migratable), None)) is not None:
        yield f"pod {fixed.name} of its workload is not migratable, and its pods move together or not at all"
    if case.managed.pod.deleting:
        yield "the pod is being deleted"
    record = case.owner_record
    if record is not None and record.deleting:
        yield f"its Job {record.name} is being deleted"


def needs_of(scheduling: SchedulingFacts, affinity_json: str, disks: Mapping[str, Disk]) -> Needs:
    """What a pod needs of a node, with its owner's affinity instead of its own, which may hold our pin."""
    behind = (disks[volume.claim] for volume in scheduling.volumes if volume.claim)
    return Needs(
        node_selector=scheduling.node_selector,
        tolerations=scheduling.tolerations,
        affinity_json=affinity_json,
        volumes_json=tuple(disk.node_affinity_json for disk in behind if disk.node_affinity_json),
    )


def _request_millicores(member: ManagedPod, case: MoveCase) -> int:
    """What the new pod of a member will reserve: its requests, with the original of the resized container.

    Of other members the original is not read: they are resized alike, and the node's room is an estimate.
    """
    containers = member.pod.containers
    has = sum(each.desired.request_millicores for each in containers)
    if member.job_uid != case.managed.job_uid:
        return has
    return has - member.container.desired.request_millicores + case.original.request_millicores


def _restart_seconds(case: MoveCase, way: MoveWay) -> float:
    """Worked example: the third eviction of a Job's pod waits 40 s, and its start 2 s more."""
    if way == "suspend":
        return SUSPEND_RESTART_SECONDS
    owner = case.managed.pod.owner
    if owner is not None and owner.kind == "StatefulSet":
        return STATEFUL_RESTART_SECONDS
    back_off = (EVICT_RESTART_SECONDS - SUSPEND_RESTART_SECONDS) * 2.0 ** min(case.moves_made, 10)
    return min(MAX_RECREATION_BACKOFF_SECONDS, back_off) + SUSPEND_RESTART_SECONDS
