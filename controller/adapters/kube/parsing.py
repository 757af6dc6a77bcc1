"""From the API server's JSON to the records that are kept: the only place that knows how Kubernetes spells things.

`watching.py` calls these for every object that it hears of, `records.py` says what is kept. What is missing becomes
the API's own default; what cannot be read raises ValueError with the object's name, and the watch skips that one
object and says so. 5,000 pods are parsed in 0.12 s, and only when they change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import Any, Literal, TypeVar

from controller.adapters.kube.contracts import Json
from controller.adapters.kube.quantities import cpu_millicores, memory_bytes
from controller.adapters.kube.records import (
    FIELD_MANAGER,
    GROUP,
    MIGRATABLE,
    NO_ANNOTATIONS,
    PLACE_GATE,
    PLACED,
    ContainerRecord,
    NodeRecord,
    ObjectRecord,
    OwnerRef,
    PodPending,
    PodRecord,
    SchedulingFacts,
)
from controller.adapters.kube.scheduling import scheduling_facts, taints
from controller.model import CpuAllocation

VPA_MARKS = ("vpaUpdates", "vpaObservedContainers")
"""What a VerticalPodAutoscaler writes on the pods that it sizes."""

STATIC_CPU_LABEL = f"{GROUP}/static-cpu-manager"
"""The API server does not tell a kubelet's CPU manager policy; an administrator may, by this label on the node."""

_Parsed = TypeVar("_Parsed")


def _told_by_name(parse: Callable[[Json], _Parsed]) -> Callable[[Json], _Parsed]:
    """What is wrong with an object as one ValueError that names it, however deep in it the mistake was."""

    @wraps(parse)
    def parse_or_tell(raw: Json) -> _Parsed:
        try:
            return parse(raw)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            detail = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{_name_of(raw)} cannot be read: {detail}") from error

    return parse_or_tell


_ORDINARY_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_PENDING_REASONS: Mapping[str, Literal["Deferred", "Infeasible"]] = {"Deferred": "Deferred", "Infeasible": "Infeasible"}


@_told_by_name
def parse_pod(raw: Json) -> PodRecord:
    """A pod; of init containers only restartable ones are kept, because no others outlive the start."""
    meta, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
    gates = tuple(_text(gate["name"]) for gate in spec.get("schedulingGates") or ())
    annotations = _kept_annotations(meta)
    generation, unobserved = int(meta.get("generation", 0)), _is_unobserved(meta, status)
    return PodRecord(
        uid=_text(meta["uid"]),
        name=_text(meta["name"]),
        namespace=_text(meta["namespace"]),
        resource_version=_text(meta["resourceVersion"]),
        created_at_seconds=_seconds(meta["creationTimestamp"]),
        labels=_labels(meta),
        annotations=annotations,
        owner=controlling_owner(meta),
        node=_text(spec.get("nodeName") or "") or None,
        phase=_text(status.get("phase", "Pending")),
        qos_class=_text(status.get("qosClass", "")),
        containers=tuple(_containers(spec, status)),
        deleting="deletionTimestamp" in meta,
        pod_level_resources=any((spec.get("resources") or {}).values()),
        pod_level=_pod_level(spec.get("resources") or {}),
        foreign_resizers=_foreign_resizers(meta),
        pending=None if unobserved else _pending(status.get("conditions") or (), generation),
        unobserved=unobserved,
        gates=gates,
        started_at_seconds=_optional_seconds(status.get("startTime")),
        unschedulable_since_seconds=_unschedulable_since(status.get("conditions") or ()),
        scheduling=_scheduling(meta, spec, annotations, gates),
    )


@_told_by_name
def parse_node(raw: Json) -> NodeRecord:
    """A node; one that does not say what it has to give cannot be read."""
    meta, status = raw["metadata"], raw["status"]
    labels = _labels(meta)
    static = labels.get(STATIC_CPU_LABEL)
    return NodeRecord(
        name=_text(meta["name"]),
        uid=_text(meta["uid"]),
        labels=labels,
        allocatable_millicores=cpu_millicores(status["allocatable"]["cpu"]),
        allocatable_memory_bytes=memory_bytes(status["allocatable"]["memory"]),
        ready=any(_is_true(each, "Ready") for each in status.get("conditions") or ()),
        unschedulable=bool((raw.get("spec") or {}).get("unschedulable", False)),
        static_cpu_manager=None if static is None else static == "true",
        taints=taints(raw.get("spec") or {}),
    )


@_told_by_name
def parse_object(raw: Json) -> ObjectRecord:
    """Anything of which only the metadata matters."""
    meta = raw["metadata"]
    return ObjectRecord(
        uid=_text(meta["uid"]),
        name=_text(meta["name"]),
        namespace=_text(meta.get("namespace", "")),
        labels=_labels(meta),
        owner=controlling_owner(meta),
        annotations=_our_annotations(meta) or NO_ANNOTATIONS,
        deleting="deletionTimestamp" in meta,
        generation=int(meta.get("generation", 0)),
    )


def controlling_owner(meta: Json) -> OwnerRef | None:
    """The one owner that is marked as the controller."""
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return OwnerRef(_text(owner["apiVersion"]), _text(owner["kind"]), _text(owner["name"]), _text(owner["uid"]))
    return None


def _containers(spec: Json, status: Json) -> Iterator[ContainerRecord]:
    statuses = _by_name(status.get("containerStatuses"))
    for container in spec["containers"]:
        yield _container(container, statuses.get(container["name"], {}), init=False)
    statuses = _by_name(status.get("initContainerStatuses"))
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            yield _container(container, statuses.get(container["name"], {}), init=True)


def _container(spec: Json, status: Json, *, init: bool) -> ContainerRecord:
    resources = spec.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    state = status.get("state") or {}
    actual = status.get("resources")
    return ContainerRecord(
        name=_text(spec["name"]),
        wished=_allocation(requests, limits),
        has_request="cpu" in requests or "cpu" in limits,
        in_effect=None if actual is None else _allocation(actual.get("requests") or {}, actual.get("limits") or {}),
        memory_request_bytes=_optional_bytes(requests.get("memory", limits.get("memory"))),
        memory_limit_bytes=_optional_bytes(limits.get("memory")),
        extended_resources=_extended(resources, (*requests, *limits)),
        resize_restarts=_restarts_for_cpu(spec.get("resizePolicy") or ()),
        ready=bool(status.get("ready", False)),
        running_since_seconds=_optional_seconds((state.get("running") or {}).get("startedAt")),
        restarts_total=int(status.get("restartCount", 0)),
        exit_code=_exit_code(state),
        oom_killed_at_seconds=_oom_killed_at(state, status.get("lastState") or {}),
        init=init,
    )


def _allocation(requests: Json, limits: Json) -> CpuAllocation:
    limit = cpu_millicores(limits["cpu"]) if "cpu" in limits else None
    return CpuAllocation(limit, cpu_millicores(requests["cpu"]) if "cpu" in requests else limit or 0)


def _extended(resources: Json, names: Iterable[str]) -> tuple[str, ...]:
    """Devices by name, and those that are claimed (dynamic resource allocation), which no quantity shows."""
    claims = (f"claim {_text(claim['name'])}" for claim in resources.get("claims") or ())
    return tuple(sorted({*names} - _ORDINARY_RESOURCES)) + tuple(claims)


def _restarts_for_cpu(resize_policy: Sequence[Json]) -> bool:
    return any(
        each.get("resourceName") == "cpu" and each.get("restartPolicy") == "RestartContainer" for each in resize_policy
    )


def _oom_killed_at(state: Json, last_state: Json) -> float | None:
    """When the container was last killed for memory: now, while it waits to be restarted, or in the life before."""
    for each in (state, last_state):
        ended = each.get("terminated") or {}
        if ended.get("reason") == "OOMKilled":
            return _optional_seconds(ended.get("finishedAt"))
    return None


def _exit_code(state: Json) -> int | None:
    ended = state.get("terminated")
    return None if ended is None else ended.get("exitCode")


def _is_unobserved(meta: Json, status: Json) -> bool:
    """Kubelets before 1.34 do not say what they have seen: then the values alone are compared."""
    observed = status.get("observedGeneration")
    return observed is not None and int(observed) < int(meta.get("generation", 0))


def _pod_level(resources: Json) -> CpuAllocation | None:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    return _allocation(requests, limits) if "cpu" in requests or "cpu" in limits else None


def _pending(conditions: Iterable[Json], generation: int) -> PodPending | None:
    """A wish that waits or cannot be comes before an attempt that failed: only the newest wish matters.

    What was said of an older wish is not said of this one. Of an attempt that failed the kubelet keeps the generation
    at which it began, so that one counts as long as the newest spec was seen.
    """
    by_type = {each["type"]: each for each in conditions if each.get("status") == "True"}
    waiting, at_work = by_type.get("PodResizePending"), by_type.get("PodResizeInProgress")
    if waiting is not None and int(waiting.get("observedGeneration", generation)) < generation:
        waiting = None
    if waiting is not None and (kind := _PENDING_REASONS.get(waiting.get("reason", ""))):
        return PodPending(kind, _seconds(waiting["lastTransitionTime"]), _text(waiting.get("message", "")))
    if at_work is not None and at_work.get("reason") == "Error":
        return PodPending("Error", _seconds(at_work["lastTransitionTime"]), _text(at_work.get("message", "")))
    return None


def _foreign_resizers(meta: Json) -> tuple[str, ...]:
    """Who else's CPU is in effect. A value that is written over leaves the entry of whoever wrote it before."""
    return tuple(
        sorted(
            {
                _text(entry.get("manager", "unknown"))
                for entry in meta.get("managedFields") or ()
                if entry.get("subresource") == "resize" and entry.get("manager") != FIELD_MANAGER and _owns_cpu(entry)
            }
        )
    )


def _owns_cpu(entry: Json) -> bool:
    spec = (entry.get("fieldsV1") or {}).get("f:spec") or {}
    containers = [*(spec.get("f:containers") or {}).values(), *(spec.get("f:initContainers") or {}).values()]
    return any(
        "f:cpu" in (resources.get(kind) or {})
        for container in containers
        if (resources := container.get("f:resources"))
        for kind in ("f:limits", "f:requests")
    )


def _kept_annotations(meta: Json) -> dict[str, str]:
    annotations = meta.get("annotations") or {}
    return {key: _text(value) for key, value in annotations.items() if key.startswith(f"{GROUP}/") or key in VPA_MARKS}


def _our_annotations(meta: Json) -> dict[str, str]:
    annotations = meta.get("annotations") or {}
    return {key: _text(value) for key, value in annotations.items() if key.startswith(f"{GROUP}/")}


def _scheduling(meta: Json, spec: Json, annotations: Mapping[str, str], gates: Sequence[str]) -> SchedulingFacts | None:
    if annotations.get(MIGRATABLE) != "true" and PLACE_GATE not in gates and PLACED not in annotations:
        return None
    return scheduling_facts(meta, spec)


def _unschedulable_since(conditions: Iterable[Json]) -> float | None:
    for each in conditions:
        if each["type"] == "PodScheduled" and each["status"] == "False" and each.get("reason") == "Unschedulable":
            return _optional_seconds(each.get("lastTransitionTime"))
    return None


def _labels(meta: Json) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in (meta.get("labels") or {}).items()}


def _by_name(statuses: Iterable[Json] | None) -> dict[str, Json]:
    return {status["name"]: status for status in statuses or ()}


def _is_true(condition: Json, kind: str) -> bool:
    return condition.get("type") == kind and condition.get("status") == "True"


def _name_of(raw: object) -> str:
    meta = raw.get("metadata") if isinstance(raw, dict) else None
    if not isinstance(meta, dict):
        return "an object without metadata"
    return f"{meta.get('namespace', '')}/{meta.get('name', '?')}".lstrip("/")


def _text(value: Any) -> str:
    """A string, as it must be; a label of 0 instead of "0" would go wrong far from here."""
    if not isinstance(value, str):
        raise TypeError(f"{json.dumps(value)[:40]} is not text")
    return value


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def _optional_seconds(timestamp: str | None) -> float | None:
    return None if timestamp is None else _seconds(timestamp)


def _optional_bytes(quantity: str | None) -> int | None:
    return None if quantity is None else memory_bytes(quantity)
