"""Releases one pod's scheduling gate, with or without a node, in one PATCH.

`moves/gated_pods.py` releases arriving pods, `evict/controller.py` the replacements of evicted pods, `operate/sweep.py`
both where no controller runs. A gated pod's affinity can only be tightened, and only while it is gated: so affinity and
gate go in one PATCH, with the pod's uid and resourceVersion as preconditions.

A node is a pin (required affinity) or a preference (with the greatest weight). A pin can strand a pod: its node may
fill up meanwhile, and the affinity of a pod cannot be widened again. So only a pod that is recreated after an eviction
is pinned, and carries the annotation `slopewise.dev/placed`, by which `moves/gated_pods.py` finds it. On clusters of
more than 100 nodes the scheduler samples nodes, and may pass over a preferred one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from slopewise.adapters.kube.cache.parsing import parse_pod
from slopewise.adapters.kube.cache.records import PLACE_GATE, PLACED, PodRecord
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.meanings import explain
from slopewise.adapters.kube.client.protocol import PARAMS, STRATEGIC_MERGE_PATCH, Api, Json, path_of
from slopewise.adapters.kube.client.retry import update
from slopewise.adapters.kube.moves.node_predicates import pinned
from slopewise.model import OutcomeResult

PREFERENCE_WEIGHT = 100
"""Kubernetes' maximum; the scheduler counts it twice, more than free CPU and memory together."""

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_ALREADY_RELEASED = "its gate is off already, and the scheduler places it"


@dataclass(frozen=True, slots=True)
class Aim:
    """The target of a released pod."""

    node: str
    pin: bool
    """False: only a preference."""


@dataclass(frozen=True, slots=True)
class GateRelease:
    """The result; `over`: nothing is left to release, be it released, deleted or replaced."""

    result: OutcomeResult
    detail: str = ""
    over: bool = False


def release_patch(pod: PodRecord, aim: Aim | None) -> Json:
    """The strategic-merge patch that removes the gate; with an aim, it sets the pod's node affinity too."""
    meta: Json = {"uid": pod.uid, "resourceVersion": pod.resource_version}
    spec: Json = {"schedulingGates": [{"$patch": "delete", "name": PLACE_GATE}]}
    if aim is not None:
        spec["affinity"] = {"nodeAffinity": _node_affinity(pod, aim)}
        if aim.pin:
            meta["annotations"] = {PLACED: aim.node}
    return {"metadata": meta, "spec": spec}


def _node_affinity(pod: PodRecord, aim: Aim) -> Json:
    affinity = None if pod.scheduling is None else pod.scheduling.affinity
    if aim.pin:
        found: Json = pinned(affinity, aim.node)["nodeAffinity"]
        return found
    node_affinity: Json = (affinity or {}).get("nodeAffinity") or {}
    field = {"key": "metadata.name", "operator": "In", "values": [aim.node]}
    preference = {"weight": PREFERENCE_WEIGHT, "preference": {"matchFields": [field]}}
    return {**node_affinity, _PREFERRED: [*(node_affinity.get(_PREFERRED) or []), preference]}


class GateReleaser:
    """Releases gated pods, one at a time. Safe from any thread."""

    def __init__(self, api: Api, on_written: Callable[[Json], None] = lambda _: None) -> None:
        """`on_written` gets each pod that was read or written here, so that the stores need not wait for the watch."""
        self._api = api
        self._on_written = on_written

    def release(self, pod: PodRecord, aim: Aim | None = None) -> GateRelease:
        """Remove the gate; `applied` once it is removed. NotLeadingError without the lease."""
        try:
            return update(partial(self._patch, aim=aim), partial(self._read, pod), pod)
        except ApiError as error:
            refused = explain(error, "release")
            return GateRelease(refused.result, refused.detail, over=refused.gone)

    def _patch(self, pod: PodRecord | GateRelease, aim: Aim | None) -> GateRelease:
        if isinstance(pod, GateRelease):
            return pod
        answer = self._api.patch(_path(pod), release_patch(pod, aim), STRATEGIC_MERGE_PATCH, PARAMS)
        self._on_written(answer)
        if aim is None:
            return GateRelease("applied", over=True)
        where = f"may run on {aim.node} only" if aim.pin else f"goes to {aim.node} if that takes it"
        return GateRelease("applied", where, over=True)

    def _read(self, pod: PodRecord) -> PodRecord | GateRelease:
        """The same pod as it is now, if it still waits."""
        raw = self._api.get(_path(pod))
        try:
            fresh = parse_pod(raw)
        except ValueError as error:
            return GateRelease("failed", str(error))
        self._on_written(raw)
        if fresh.uid != pod.uid or fresh.deleting:
            return GateRelease("failed", "its pod is being deleted, or another one has its name", over=True)
        return fresh if fresh.waits_for_us else GateRelease("failed", _ALREADY_RELEASED, over=True)


def _path(pod: PodRecord) -> str:
    return path_of("v1", "pods", pod.namespace, pod.name)
