"""Pins pods to one node by required node affinity. Pure.

`suspend/state_machine.py` pins the template of a suspended Job, `moves/scheduling_gate.py` a gated pod; the default
scheduler then has one node to choose from.

A pin only tightens: each term of the owner keeps its requirements and gets one more, because a gated pod accepts
nothing else, and the owner's own requirements must hold on the chosen node. Terms are ORed, so each of them needs it:
`gpu=yes OR zone=a`, pinned to node-b, is `(gpu=yes AND node-b) OR (zone=a AND node-b)`. The pin matches
`metadata.name`, since the label `kubernetes.io/hostname` may differ from it, or be missing.
"""

from __future__ import annotations

from typing import Any

from slopewise.adapters.kube.client.protocol import Json

_NODE_AFFINITY = "nodeAffinity"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


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
