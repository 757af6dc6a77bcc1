"""The review of some decisions, as pairs: what may be carried out, and what is withheld."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from slopewise.guards.context import PassContext
from slopewise.guards.review import review
from slopewise.model import Bounds, ClusterSnapshot, MemoryState, Withheld
from slopewise.model.decisions import D


def reviewed(
    decided: Sequence[D], snapshot: ClusterSnapshot, memory: MemoryState, bounds: Bounds
) -> tuple[tuple[D, ...], tuple[Withheld[D], ...]]:
    """Those of one kind, or of kinds that belong together."""
    found = review(decided, PassContext(snapshot, memory, bounds))
    return cast("tuple[D, ...]", found.allowed), cast("tuple[Withheld[D], ...]", found.withheld)
