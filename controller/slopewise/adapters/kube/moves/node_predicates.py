"""Computes which nodes would refuse a pod: taints, selectors, node affinity, volumes, reserved CPU. Pure.

The result is `Movability.refused_nodes`, which guards and policies read. It is checked again for one node when a Job is
suspended or resumed (`suspend/begin.py`), and when a replacement's gate is released (`moves/scheduling_gate.py`).

It follows the default scheduler (`TaintToleration`, `NodeAffinity`, `VolumeBinding`, `NodeResourcesFit`), as far as
nodes and watched pods show it. Unmanaged pods are not seen, so an accepted node may still be full. A pod that is pinned
to such a node is freed (`suspend/controller.py`, `moves/gated_pods.py`).

A pin ties the template of a suspended Job, or a gated pod, to one node by required node affinity; the default scheduler
then has one node to choose from. A pin only tightens: each term of the owner keeps its requirements and gets one more,
because a gated pod accepts nothing else. Terms are ORed, so each of them needs it: `gpu=yes OR zone=a`, pinned to
node-b, is `(gpu=yes AND node-b) OR (zone=a AND node-b)`. The pin matches `metadata.name`, since the label
`kubernetes.io/hostname` may differ from it, or be missing.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slopewise.adapters.kube.cache.records import NodeRecord, SchedulingFacts, Taint, Toleration
from slopewise.adapters.kube.client.protocol import Json, Store

FORBIDDING_EFFECTS = ("NoSchedule", "NoExecute")

_NODE_AFFINITY = "nodeAffinity"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""The scheduler's taint for `spec.unschedulable`; a pod may tolerate it."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a pod needs of a node. Hashable: pods with equal needs are evaluated once."""

    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity_json: str = ""
    """`spec.affinity`, as its owner wrote it."""
    volumes_json: tuple[str, ...] = ()
    """`spec.nodeAffinity.required` of each of its volumes."""


class NodeFit:
    """All nodes at one moment, and the requests of the managed pods on each."""

    def __init__(self, nodes: Sequence[NodeRecord]) -> None:
        self.nodes = nodes
        self._refused: dict[Needs, Mapping[str, str]] = {}
        """Those that the last pass asked for."""
        self._asked: dict[Needs, Mapping[str, str]] = {}
        """Those of this pass: most jobs have needs of their own, and nodes may stay as they are for weeks."""
        self._rooms: list[tuple[int, str]] = []
        self._short: dict[int, Mapping[str, str]] = {}
        self._both: dict[tuple[Needs, int], Mapping[str, str]] = {}

    def set_requests(self, millicores_on: Mapping[str, int]) -> None:
        """Begin a pass. The sum of the requests of the pods on each node, by its name."""
        rooms = sorted(
            (node.allocatable_millicores - millicores_on.get(node.name, 0), node.name) for node in self.nodes
        )
        if rooms != self._rooms or self._asked.keys() != self._refused.keys():
            self._rooms, self._short, self._both = rooms, {}, {}
        self._refused, self._asked = self._asked, {}

    def refused(self, needs: Needs, request_millicores: int) -> Mapping[str, str]:
        """The nodes that would refuse it, by name, with the reason; a shared mapping: do not change it.

        Worked example: 500 jobs of one template on 200 nodes need 200 evaluations, not 100,000.
        """
        unfit = self._asked.get(needs)
        if unfit is None:
            if (unfit := self._refused.get(needs)) is None:
                found = ((node.name, _refusal(node, needs)) for node in self.nodes)
                unfit = {name: reason for name, reason in found if reason is not None}
            self._asked[needs] = unfit
        short = self._without_room(request_millicores)
        if not short:
            return unfit
        question = (needs, request_millicores)
        if question not in self._both:
            self._both[question] = {**short, **unfit}
        return self._both[question]

    def _without_room(self, millicores: int) -> Mapping[str, str]:
        known = self._short.get(millicores)
        if known is None:
            few = self._rooms[: bisect_left(self._rooms, (millicores, ""))]
            known = self._short[millicores] = {
                name: f"it requests {millicores}m, and {max(0, room)}m are not reserved by managed pods"
                for room, name in few
            }
        return known


def refusal_by(nodes: Store[NodeRecord] | None, name: str, facts: SchedulingFacts) -> str | None:
    """Why a pod with these facts could not run on that node now; None: it could, as far as is known."""
    if nodes is None or not nodes.synced:
        return None
    node = nodes.get("", name)
    if node is None:
        return "there is no such node"
    return _refusal(node, Needs(facts.node_selector, facts.tolerations, facts.affinity_json))


def _refusal(node: NodeRecord, needs: Needs) -> str | None:
    """The first obstacle."""
    if not node.ready:
        return "it is not ready"
    taints = (*node.taints, UNSCHEDULABLE) if node.unschedulable else node.taints
    if (taint := _untolerated(taints, needs.tolerations)) is not None:
        return f"its taint {taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect} is not tolerated"
    for key, value in needs.node_selector:
        if node.labels.get(key) != value:
            return f"it has no label {key}={value}, which the pod's nodeSelector asks for"
    if not matches_any(required_terms(needs.affinity_json), node):
        return "the pod's required node affinity excludes it"
    if not all(matches_any(_terms(json.loads(each)), node) for each in needs.volumes_json):
        return "a volume of the pod cannot be reached from it"
    return None


def _untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    for taint in taints:
        if taint.effect in FORBIDDING_EFFECTS and not any(each.tolerates(taint) for each in tolerations):
            return taint
    return None


def required_terms(affinity_json: str) -> Sequence[Json] | None:
    """The terms of required node affinity; None: it has none, and every node fits."""
    affinity = json.loads(affinity_json) if affinity_json else {}
    node_affinity = affinity.get(_NODE_AFFINITY) or {}
    return _terms(node_affinity.get(_REQUIRED))


def _terms(selector: Json | None) -> Sequence[Json] | None:
    return None if not selector else selector.get("nodeSelectorTerms") or ()


def matches_any(terms: Sequence[Json] | None, node: NodeRecord) -> bool:
    """Terms are ORed, what is in one is ANDed; a term without requirements matches no node."""
    return terms is None or any(_matches(term, node) for term in terms)


def _matches(term: Json, node: NodeRecord) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_meets(each, node.labels) for each in expressions) and all(
        _meets(each, {"metadata.name": node.name}) for each in fields
    )


def _meets(requirement: Json, labels: Mapping[str, str]) -> bool:
    """One `{key, operator, values}` against a node's labels (or its one field)."""
    value, values = labels.get(requirement["key"]), list(requirement.get("values") or ())
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _is_number(value, values) and int(value or 0) > int(values[0])
        case "Lt":
            return _is_number(value, values) and int(value or 0) < int(values[0])
    return False


def _is_number(value: str | None, values: Sequence[str]) -> bool:
    """As in the scheduler: what is no whole number matches neither Gt nor Lt."""
    texts = [value or "", *values[:1]]
    return len(texts) == 2 and all(text.removeprefix("-").isdecimal() for text in texts)


def pinned(affinity: Json | None, node: str) -> Json:
    """`affinity` (a PodSpec's, or None), tightened so that only `node` is left; what comes in is not changed.

    Pinning twice to one node is the same as once; to two nodes it leaves none. Worked example:

    >>> pinned(None, "b")["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    [{'matchFields': [{'key': 'metadata.name', 'operator': 'In', 'values': ['b']}]}]
    """
    affinity = affinity or {}
    node_affinity = affinity.get(_NODE_AFFINITY) or {}
    required = node_affinity.get(_REQUIRED) or {}
    terms = required.get("nodeSelectorTerms") or [None]
    pinned_terms = [_pinned_term(term, node) for term in terms]
    return {
        **affinity,
        _NODE_AFFINITY: {**node_affinity, _REQUIRED: {**required, "nodeSelectorTerms": pinned_terms}},
    }


def is_pinned_to(affinity: Json | None, node: str) -> bool:
    """Whether required node affinity leaves only `node`, in the form that `pinned` writes."""
    required = ((affinity or {}).get(_NODE_AFFINITY) or {}).get(_REQUIRED) or {}
    # A term without requirements matches no node at all, so it adds no node to the pin.
    terms = [term for term in required.get("nodeSelectorTerms") or [] if not _is_empty(term)]
    return bool(terms) and all(_requirement(node) in (term.get("matchFields") or []) for term in terms)


def _pinned_term(term: Json | None, node: str) -> Json:
    """None: the owner wrote no term, and everything matched."""
    if term is None:
        return {"matchFields": [_requirement(node)]}
    fields = term.get("matchFields") or []
    if _is_empty(term) or _requirement(node) in fields:
        return term  # an empty term that got a requirement would match where it matched nothing before
    return {**term, "matchFields": [*fields, _requirement(node)]}


def _is_empty(term: Json) -> bool:
    return not (term.get("matchExpressions") or term.get("matchFields"))


def _requirement(node: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": [node]}
