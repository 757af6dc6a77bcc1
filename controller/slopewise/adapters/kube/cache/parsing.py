"""Parses pods, nodes and other objects of the API server: JSON to the records of `records.py`.

A `wire.Wire` struct names the fields that are read and their types. A missing field becomes the API's default. An
object that cannot be read raises ValueError with its name and the path of the field; the watch skips it and reports it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import wraps
from sys import intern
from typing import Literal, TypeVar

import msgspec

from slopewise.adapters.kube.cache import wire
from slopewise.adapters.kube.cache.records import (
    GROUP,
    MIGRATABLE,
    NO_ANNOTATIONS,
    PLACE_GATE,
    PLACED,
    ContainerRecord,
    NodeRecord,
    ObjectRecord,
    OtherPod,
    OwnerRef,
    PodPending,
    PodRecord,
)
from slopewise.adapters.kube.cache.scheduling_facts import scheduling_facts
from slopewise.adapters.kube.cache.wire import Quantity, cpu_millicores, memory_bytes
from slopewise.adapters.kube.client.protocol import FIELD_MANAGER, Json
from slopewise.model import CpuAllocation, MemoryAllocation

VPA_MARKS = ("vpaUpdates", "vpaObservedContainers")
"""What a VerticalPodAutoscaler writes on the pods that it sizes."""

STATIC_CPU_LABEL = f"{GROUP}/static-cpu-manager"
"""A node's label for its kubelet's CPU manager policy, which the API server does not expose."""

_Parsed = TypeVar("_Parsed")


def _reported_by_name(parse: Callable[[Json], _Parsed]) -> Callable[[Json], _Parsed]:
    """Turns any error of `parse` into one ValueError that names the object."""

    @wraps(parse)
    def parse_or_log(raw: Json) -> _Parsed:
        try:
            return parse(raw)
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # msgspec's are ValueErrors
            detail = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{_name_of(raw)} cannot be read: {detail}") from error

    return parse_or_log


_ORDINARY_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_PENDING_REASONS: Mapping[str | None, Literal["Deferred", "Infeasible"]] = {
    "Deferred": "Deferred",
    "Infeasible": "Infeasible",
}
_NO_RESOURCES = wire.Resources()
_NO_STATE = wire.State()
_RESTARTS_FOR_CPU = wire.ResizePolicy("cpu", "RestartContainer")
_RESTARTS_FOR_MEMORY = wire.ResizePolicy("memory", "RestartContainer")
_NO_CPU = CpuAllocation(None, 0)


@_reported_by_name
def parse_pod(raw: Json) -> PodRecord:
    """A pod. Of init containers only restartable ones are kept, because no others outlive the start."""
    pod = msgspec.convert(raw, wire.Pod)
    meta, spec, status = pod.metadata, pod.spec, pod.status or wire.PodStatus()
    gates = tuple([gate.name for gate in spec.scheduling_gates or ()])
    annotations = _ours(meta, VPA_MARKS)
    may_move = annotations.get(MIGRATABLE) == "true" or PLACE_GATE in gates or PLACED in annotations
    whole = spec.resources or _NO_RESOURCES
    # Kubelets before 1.34 do not say what they have seen: then the values alone are compared.
    unobserved = status.observed_generation is not None and status.observed_generation < meta.generation
    return PodRecord(
        uid=meta.uid,
        name=meta.name,
        namespace=meta.namespace,
        resource_version=meta.resource_version,
        created_at_seconds=meta.creation_timestamp.timestamp(),
        labels=meta.labels or {},
        annotations=annotations,
        owner=_controller_among(meta.owner_references),
        node=spec.node_name or None,
        phase=status.phase,
        qos_class=status.qos_class,
        containers=tuple(_containers(spec, status, meta)),
        accelerators=wire.devices(spec),
        deleting=meta.deletion_timestamp is not None,
        pod_level_resources=bool(whole.requests or whole.limits or whole.claims),
        pod_level=_cpu(whole),
        start_millicores=_start_millicores(spec),
        foreign_resizers=_foreign_resizers(meta.managed_fields or (), "f:cpu"),
        foreign_memory_resizers=_foreign_resizers(meta.managed_fields or (), "f:memory"),
        pending=None if unobserved else _pending(status.conditions or (), meta.generation),
        unobserved=unobserved,
        gates=gates,
        started_at_seconds=_seconds(status.start_time),
        unschedulable_since_seconds=_unschedulable_since(status.conditions or ()),
        scheduling=scheduling_facts(raw["metadata"], raw["spec"]) if may_move else None,
    )


@_reported_by_name
def parse_other_pod(raw: Json) -> OtherPod:
    """A pod that is not managed, on a node."""
    meta, spec = msgspec.convert(raw["metadata"], wire.ObjectMeta), msgspec.convert(raw["spec"], wire.PodSpec)
    return OtherPod(meta.namespace, meta.name, intern(spec.node_name or ""), _reserved_millicores(spec))


def _reserved_millicores(spec: wire.PodSpec) -> int:
    """The scheduler's sum (k8s.io/component-helpers, `PodRequests`): a start may take more than the run.

    Worked example: an init container of 500m, a sidecar of 50m that starts after it, and one container of 100m: 500m.
    """
    of_pod = None if spec.resources is None else _cpu(spec.resources)
    sidecars = sum(_requested(each) for each in spec.init_containers or () if each.restart_policy == "Always")
    run = sidecars + sum(_requested(each) for each in spec.containers)
    overhead = cpu_millicores((spec.overhead or {}).get("cpu", 0))
    return (max(_start_millicores(spec), run) if of_pod is None else of_pod.request_millicores) + overhead


def _start_millicores(spec: wire.PodSpec) -> int:
    """What the init containers that end before the run request at most, with the sidecars that run by then."""
    sidecars = start = 0
    for each in spec.init_containers or ():
        requested = _requested(each)
        if each.restart_policy == "Always":
            sidecars += requested
        elif requested:
            start = max(start, sidecars + requested)
    return start


def _requested(container: wire.Container) -> int:
    cpu = None if container.resources is None else _cpu(container.resources)
    return 0 if cpu is None else cpu.request_millicores


@_reported_by_name
def parse_node(raw: Json) -> NodeRecord:
    """A node; ValueError without allocatable resources."""
    node = msgspec.convert(raw, wire.Node)
    meta, spec, status = node.metadata, node.spec or wire.NodeSpec(), node.status
    labels = meta.labels or {}
    static = labels.get(STATIC_CPU_LABEL)
    return NodeRecord(
        name=meta.name,
        uid=meta.uid,
        labels=labels,
        allocatable_millicores=cpu_millicores(status.allocatable.cpu),
        allocatable_memory_bytes=memory_bytes(status.allocatable.memory),
        ready=any(each.type == "Ready" and each.status == "True" for each in status.conditions or ()),
        unschedulable=spec.unschedulable,
        static_cpu_manager=None if static is None else static == "true",
        taints=spec.taints or (),
        memory_pressure=any(
            each.type == "MemoryPressure" and each.status == "True" for each in status.conditions or ()
        ),
        swap_bytes=status.node_info.swap.capacity if status.node_info and status.node_info.swap else 0,
    )


@_reported_by_name
def parse_object(raw: Json) -> ObjectRecord:
    """An object of which only the metadata matters."""
    meta = msgspec.convert(raw, wire.Object).metadata
    return ObjectRecord(
        uid=meta.uid,
        name=meta.name,
        namespace=meta.namespace,
        labels=meta.labels or {},
        owner=_controller_among(meta.owner_references),
        annotations=_ours(meta) or NO_ANNOTATIONS,
        deleting=meta.deletion_timestamp is not None,
        generation=meta.generation,
    )


def controlling_owner(meta: Json) -> OwnerRef | None:
    """The owner that is marked as the controller in an object's `metadata`."""
    return _controller_among(msgspec.convert(meta.get("ownerReferences"), list[wire.Owner] | None))


def _controller_among(owners: Iterable[wire.Owner] | None) -> OwnerRef | None:
    for owner in owners or ():
        if owner.controller:
            return OwnerRef(owner.api_version, owner.kind, owner.name, owner.uid)
    return None


def _ours(meta: wire.ObjectMeta, besides: Iterable[str] = ()) -> dict[str, str]:
    """The annotations of `slopewise.dev/`, and those in `besides`."""
    annotations = meta.annotations or {}
    return {key: value for key, value in annotations.items() if key.startswith(f"{GROUP}/") or key in besides}


def _program(container: wire.Container, meta: wire.ObjectMeta) -> str:
    """A digest of what it runs. Submitters put the names of pods and owners into commands, and each run has others."""
    if not container.image:
        return ""
    names = (meta.name, *(owner.name for owner in meta.owner_references or ()))
    words = (*(container.command or ()), "--", *(container.args or ()))
    run = json.dumps([container.image, *(_without(names, word) for word in words)])
    return intern(hashlib.blake2b(run.encode(), digest_size=8).hexdigest())


def _without(names: Iterable[str], word: str) -> str:
    """The word without these names, where they stand alone in it. A pattern of each name took 0.1 ms to compile."""
    for name in filter(None, names):
        after = 0
        while (start := word.find(name, after)) >= 0:
            end, after = start + len(name), start + 1
            beside = word[max(0, start - 1) : start] + word[end : end + 1]
            if not any(each.isascii() and each.isalnum() for each in beside):
                word, after = f"{word[:start]}{{run}}{word[end:]}", start + len("{run}")
    return word


def _containers(spec: wire.PodSpec, status: wire.PodStatus, meta: wire.ObjectMeta) -> Iterator[ContainerRecord]:
    statuses = {each.name: each for each in status.container_statuses or ()}
    for container in spec.containers:
        yield _container(container, statuses.get(container.name), _program(container, meta), init=False)
    statuses = {each.name: each for each in status.init_container_statuses or ()}
    for container in spec.init_containers or ():
        if container.restart_policy == "Always":
            yield _container(container, statuses.get(container.name), _program(container, meta), init=True)


def _container(
    spec: wire.Container, found: wire.ContainerStatus | None, program: str, *, init: bool
) -> ContainerRecord:
    status, resources = found or wire.ContainerStatus(spec.name), spec.resources or _NO_RESOURCES
    state = status.state or _NO_STATE
    requests, limits, desired = resources.requests or {}, resources.limits or {}, _cpu(resources)
    claims = (f"claim {claim.name}" for claim in resources.claims or ())  # which no quantity shows
    return ContainerRecord(
        name=spec.name,
        desired=desired or _NO_CPU,
        has_request=desired is not None,
        reported=None if status.resources is None else _cpu(status.resources) or _NO_CPU,
        memory_request_bytes=_memory(resources).request_bytes,
        memory_limit_bytes=_memory(resources).limit_bytes,
        reported_memory=None if status.resources is None else _memory(status.resources),
        extended_resources=(*sorted({*requests, *limits} - _ORDINARY_RESOURCES), *claims),
        resize_restarts=_RESTARTS_FOR_CPU in (spec.resize_policy or ()),
        memory_resize_restarts=_RESTARTS_FOR_MEMORY in (spec.resize_policy or ()),
        ready=status.ready,
        running_since_seconds=_seconds(state.running.started_at) if state.running else None,
        restarts_total=status.restart_count,
        exit_code=state.terminated.exit_code if state.terminated else None,
        oom_killed_at_seconds=_oom_killed_at(state, status.last_state or _NO_STATE),
        program=program,
        init=init,
        is_rank=any(each.names_another_pod for each in spec.env or ()),
    )


def _cpu(resources: wire.Resources) -> CpuAllocation | None:
    """CPU of these resources; None: they state none."""
    limit, request = (resources.limits or {}).get("cpu"), (resources.requests or {}).get("cpu")
    if limit is None and request is None:
        return None
    most = None if limit is None else cpu_millicores(limit)
    return CpuAllocation(most, most or 0 if request is None else cpu_millicores(request))


def _memory(resources: wire.Resources) -> MemoryAllocation:
    """Memory of these resources; a missing request is the limit."""
    requests, limits = resources.requests or {}, resources.limits or {}
    return MemoryAllocation(_bytes(requests.get("memory", limits.get("memory"))), _bytes(limits.get("memory")))


def _oom_killed_at(*states: wire.State) -> float | None:
    """When the container was last killed for memory: its current state, or the one before its restart."""
    for state in states:
        if state.terminated is not None and state.terminated.reason == "OOMKilled":
            return _seconds(state.terminated.finished_at)
    return None


def _pending(conditions: Iterable[wire.Condition], generation: int) -> PodPending | None:
    """The pending resize of the pod's newest spec; a deferred or infeasible one comes before a failed attempt.

    A condition of an older generation does not apply. For a failed attempt the kubelet keeps the generation at which
    the attempt began, so it applies as long as the kubelet has seen the newest spec.
    """
    by_type = {each.type: each for each in conditions if each.status == "True"}
    waiting, at_work = by_type.get("PodResizePending"), by_type.get("PodResizeInProgress")
    if waiting is not None and waiting.observed_generation is not None and waiting.observed_generation < generation:
        waiting = None
    if waiting is not None and (kind := _PENDING_REASONS.get(waiting.reason)):
        return _pending_as(kind, waiting)
    if at_work is not None and at_work.reason == "Error":
        return _pending_as("Error", at_work)
    return None


def _pending_as(kind: Literal["Deferred", "Infeasible", "Error"], condition: wire.Condition) -> PodPending:
    since_seconds = _seconds(condition.last_transition_time)
    if since_seconds is None:
        raise ValueError(f"its condition {condition.type} has no lastTransitionTime")
    return PodPending(kind, since_seconds, condition.message)


def _foreign_resizers(entries: Iterable[wire.ManagedFields], resource: str) -> tuple[str, ...]:
    """Other field managers whose CPU (`f:cpu`) or memory is in effect.

    A value that is overwritten leaves its former writer's entry.
    """
    others = (each for each in entries if each.subresource == "resize" and each.manager != FIELD_MANAGER)
    return tuple(sorted({each.manager for each in others if _owns(each, resource)}))


def _owns(entry: wire.ManagedFields, resource: str) -> bool:
    spec = msgspec.convert((entry.fields_v1 or {}).get("f:spec") or {}, wire.WrittenSpec)
    containers = (*spec.containers.values(), *spec.init_containers.values())
    return any(resource in bounds for each in containers for bounds in each.resources.values())


def _unschedulable_since(conditions: Iterable[wire.Condition]) -> float | None:
    for each in conditions:
        if each.type == "PodScheduled" and each.status == "False" and each.reason == "Unschedulable":
            return _seconds(each.last_transition_time)
    return None


def _name_of(raw: object) -> str:
    meta = raw.get("metadata") if isinstance(raw, dict) else None
    if not isinstance(meta, dict):
        return "an object without metadata"
    return f"{meta.get('namespace', '')}/{meta.get('name', '?')}".lstrip("/")


def _seconds(timestamp: datetime | None) -> float | None:
    return None if timestamp is None else timestamp.timestamp()


def _bytes(quantity: Quantity | None) -> int | None:
    return None if quantity is None else memory_bytes(quantity)
