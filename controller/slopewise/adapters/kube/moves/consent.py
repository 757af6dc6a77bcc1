"""Reads a namespace's consent to moves from its label, which its administrator sets. Pure.

`moves/movability_inputs.py` checks it before a move, and `moves/gated_pods.py` before a pod is pinned, since only an
eviction frees that. The admission policies of manifests/components/moves check the same label for every eviction and
every suspension that begins a move.
"""

from __future__ import annotations

from slopewise.adapters.kube.cache.records import MOVES_ALLOWED, MOVES_LABEL, ObjectRecord
from slopewise.adapters.kube.client.protocol import Store


def allows_moves(namespaces: Store[ObjectRecord] | None, name: str) -> bool:
    """Whether this namespace opts in; True where namespaces may not be read: the API server decides then."""
    if namespaces is None:
        return True
    namespace = namespaces.get("", name)
    return namespace is not None and namespace.labels.get(MOVES_LABEL) == MOVES_ALLOWED
