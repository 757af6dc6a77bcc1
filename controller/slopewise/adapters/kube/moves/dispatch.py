"""The `move` of a cluster's Actuator: chooses how a move is carried out, and begins it.

`moves/gated_pods.py` places arriving pods; `suspend/begin.py` or `evict/controller.py` migrates running ones, as
`moves/movability.py` has decided. Later passes observe the result (`ClusterSnapshot.moving`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from slopewise.adapters.kube.cache.records import ManagedPod
from slopewise.adapters.kube.workloads.owners import JobIndex
from slopewise.model import Migrate, Movability, Move, Outcome, Place


class Begin(Protocol):
    """Begins a migration of a job and of all `members` of its workload (uids): by suspending, or by evictions."""

    def __call__(self, move: Migrate, managed: ManagedPod, policy: str, members: Sequence[str]) -> Outcome[Move]:
        """Begin the migration of one job."""
        ...


@dataclass(frozen=True, slots=True)
class Ways:
    """How moves are carried out; shared by all policies."""

    place: Callable[[Place], Outcome[Move]]
    suspend: Begin
    evict: Begin


class KubeMover:
    """The moves of one policy."""

    def __init__(
        self,
        policy: str,
        index: JobIndex,
        movability: Callable[[str], Movability | None],
        ways: Ways,
    ) -> None:
        """`movability`: of a job of the last snapshot, by uid; None for an unknown job."""
        self._policy = policy
        self._index = index
        self._movability = movability
        self._ways = ways

    def move(self, move: Move) -> Outcome[Move]:
        """Begin it; NotLeadingError without the lease."""
        if isinstance(move, Place):
            return self._ways.place(move)
        return self._migrate(move)

    def _migrate(self, move: Migrate) -> Outcome[Move]:
        managed = self._index.find(move.job_uid)
        if managed is None:
            return Outcome(move, "failed", "its pod is gone; there is nothing to move")
        movability = self._movability(move.job_uid)
        refusal = _refusal(move, managed, movability)
        if refusal is not None or movability is None:
            return Outcome(move, "infeasible", refusal or "nothing is known of how it could be moved")
        begin = self._ways.suspend if movability.way == "suspend" else self._ways.evict
        return begin(move, managed, self._policy, movability.members)


def _refusal(move: Migrate, managed: ManagedPod, movability: Movability | None) -> str | None:
    """The guards' checks, repeated: a pod that is not recreated would be a lost job."""
    if movability is None:
        return "nothing is known of how it could be moved"
    if movability.blocked_reason is not None or movability.way is None:
        return movability.blocked_reason or "there is no way to move it here"
    if not managed.pod.migratable:
        return "its pod does not say slopewise.dev/migratable any more"
    refused = movability.refused_nodes.get(move.node)
    return None if refused is None else f"{move.node} would not take it: {refused}"
