"""Takes our gate off one pod, with a node for it or without: one PATCH, and what its answer means.

`gates.py` opens for arriving pods, `evictions.py` for the replacements of pods that it evicted, `cluster/sweep.py` for
both when no controller is there. A gated pod's affinity can only be tightened, and only while it is gated: so affinity
and gate go in one PATCH, which holds for the pod as it was read (uid and resourceVersion) and for no other.

A node is a pin (required affinity) or a wish (preferred, with the greatest weight). A pin can strand a pod: its node
may fill up meanwhile, and the affinity of a pod cannot be widened again. So only a pod that comes back when it is
evicted is pinned, and says so in its annotation `slopewise.dev/placed`, by which `gates.py` finds it. On clusters of
more than 100 nodes the scheduler does not look at all of them, and may pass over a node that is only wished for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.contracts import STRATEGIC_MERGE_PATCH, Api, Json, MayWrite, Store
from controller.adapters.kube.evicting import COMPONENT
from controller.adapters.kube.node_fit import Needs, NodeFit
from controller.adapters.kube.parsing import parse_pod
from controller.adapters.kube.paths import path_of
from controller.adapters.kube.pinning import pinned
from controller.adapters.kube.records import FIELD_MANAGER, PLACE_GATE, PLACED, NodeRecord, PodRecord, SchedulingFacts
from controller.errors import ActuationError
from controller.model import OutcomeResult

WISH_WEIGHT = 100
"""The most that Kubernetes takes; the scheduler counts it twice, more than free CPU and memory together."""

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_ALREADY_OPEN = "its gate is off already, and the scheduler places it"


@dataclass(frozen=True, slots=True)
class Aim:
    """Where an opened pod is to go."""

    node: str
    pin: bool
    """False: only a wish."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What became of it; `over`: there is nothing to open any more, be it open, gone or replaced."""

    result: OutcomeResult
    detail: str = ""
    over: bool = False


def open_patch(pod: PodRecord, aim: Aim | None) -> Json:
    """The strategic-merge patch that takes the gate off; with an aim, the pod's node affinity comes with it."""
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
    wish = {"weight": WISH_WEIGHT, "preference": {"matchFields": [field]}}
    return {**node_affinity, _PREFERRED: [*(node_affinity.get(_PREFERRED) or []), wish]}


def would_refuse(pod: PodRecord, node: str, nodes: Store[NodeRecord] | None) -> str | None:
    """Why a gated pod could not run on that node as it is now; None: it could, as far as is known."""
    if nodes is None or not nodes.synced:
        return None
    record = nodes.get("", node)
    if record is None:
        return "there is no such node any more"
    facts = pod.scheduling or SchedulingFacts()
    needs = Needs(facts.node_selector, facts.tolerations, facts.affinity_json)
    return NodeFit([record]).refused(needs, 0).get(node)


class Opener:
    """Opens gated pods, one at a time. Safe from any thread."""

    def __init__(self, api: Api, may_write: MayWrite, on_written: Callable[[Json], None] = lambda _: None) -> None:
        """`on_written` is handed each pod that was read or written here, so that the stores need not wait for it."""
        self._api = api
        self._may_write = may_write
        self._on_written = on_written

    def open(self, pod: PodRecord, aim: Aim | None = None) -> Opened:
        """Take the gate off; `applied` once it is off. ActuationError when this replica may not write."""
        opened = self._patch(pod, aim)
        if opened is not None:
            return opened
        fresh = self._read(pod)
        if isinstance(fresh, Opened):
            return fresh
        return self._patch(fresh, aim) or Opened("failed", "it changes faster than it can be read; tried again soon")

    def _patch(self, pod: PodRecord, aim: Aim | None) -> Opened | None:
        """None: a conflict, and nothing was changed."""
        if not self._may_write():
            raise ActuationError("this replica does not lead any more; nothing was sent")
        try:
            answer = self._api.patch(
                _path(pod), open_patch(pod, aim), STRATEGIC_MERGE_PATCH, {"fieldManager": FIELD_MANAGER}
            )
        except ApiError as error:
            return None if error.is_conflict else _meaning(error)
        self._on_written(answer)
        return Opened("applied", "" if aim is None else _told(aim), over=True)

    def _read(self, pod: PodRecord) -> PodRecord | Opened:
        """The same pod as it is now, if it still waits."""
        try:
            raw = self._api.get(_path(pod))
            fresh = parse_pod(raw)
        except ApiError as error:
            return _meaning(error)
        except ValueError as error:
            return Opened("failed", str(error))
        self._on_written(raw)
        if fresh.uid != pod.uid or fresh.deleting:
            return Opened("failed", "its pod is being deleted, or another one has its name", over=True)
        return fresh if fresh.waits_for_us else Opened("failed", _ALREADY_OPEN, over=True)


def _told(aim: Aim) -> str:
    return f"may run on {aim.node} only" if aim.pin else f"goes to {aim.node} if that takes it"


def _path(pod: PodRecord) -> str:
    return path_of("v1", "pods", pod.namespace, pod.name)


def _meaning(error: ApiError) -> Opened:
    if error.is_gone:
        return Opened("failed", "its pod is gone", over=True)
    if error.is_denied:
        return Opened("infeasible", error.denial)
    if error.is_forbidden:
        return Opened("infeasible", f"our account may not open its gate; {COMPONENT} ({error.message})")
    if error.is_invalid or error.status == 400:
        return Opened("infeasible", f"Kubernetes does not take it ({error.message})")
    if error.is_throttled:
        return Opened("deferred", f"the API server has too much to do ({error.message})")
    return Opened("failed", f"not known whether its gate is off ({error.message}); looked at again soon")
