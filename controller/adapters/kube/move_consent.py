"""Whether the jobs of a namespace may be moved, by the label that whoever administers it has put on it. Pure.

`mobilities.py` asks before a move, and `gates.py` before a pod is tied to a node, since an eviction is what frees it.
The admission policies of manifests/components/moves ask the same label once more, of every eviction and every
suspension that begins a move.
"""

from __future__ import annotations

from controller.adapters.kube.contracts import Store
from controller.adapters.kube.records import MOVES_ALLOWED, MOVES_LABEL, ObjectRecord


def allows_moves(namespaces: Store[ObjectRecord] | None, name: str) -> bool:
    """Whether the namespace of this name opts in; True where namespaces may not be read: the API server will say."""
    if namespaces is None:
        return True
    namespace = namespaces.get("", name)
    return namespace is not None and namespace.labels.get(MOVES_LABEL) == MOVES_ALLOWED
