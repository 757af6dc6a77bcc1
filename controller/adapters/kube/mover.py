"""The `move` of a cluster's Actuator: who carries out a move, and what is said of it.

Before it: a pass, whose guards let the move through. After it: `gates.py` for a pod that arrives, `suspending.py` or
`evictions.py` for one that runs; `mobility.py` has said which of the two. A move is only begun here: what becomes of it
is seen by later passes (`ClusterSnapshot.moving`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from controller.adapters.kube.contracts import MayWrite, Roster
from controller.adapters.kube.records import ManagedPod
from controller.errors import ActuationError
from controller.model import Migrate, Mobility, Move, MoveOutcome, Place


class Begin(Protocol):
    """Begins a migration of a job and of all `members` of its workload (uids): by suspending, or by evictions."""

    def __call__(self, move: Migrate, managed: ManagedPod, policy: str, members: Sequence[str]) -> MoveOutcome: ...


@dataclass(frozen=True, slots=True)
class Ways:
    """How moves are carried out; shared by all policies."""

    place: Callable[[Place], MoveOutcome]
    suspend: Begin
    evict: Begin


class KubeMover:
    """The moves of one policy."""

    def __init__(
        self,
        policy: str,
        roster: Roster,
        mobility: Callable[[str], Mobility | None],
        ways: Ways,
        may_write: MayWrite,
    ) -> None:
        """`mobility`: of a job of the last snapshot, by uid; None where nothing is known of it."""
        self._policy = policy
        self._roster = roster
        self._mobility = mobility
        self._ways = ways
        self._may_write = may_write

    def move(self, move: Move) -> MoveOutcome:
        """Begin it; ActuationError when this replica does not lead."""
        if not self._may_write():
            raise ActuationError("this replica does not lead any more; nothing was sent")
        return self._ways.place(move) if isinstance(move, Place) else self._migrate(move)

    def _migrate(self, move: Migrate) -> MoveOutcome:
        managed = self._roster.find(move.job_uid)
        if managed is None:
            return MoveOutcome(move, "failed", "its pod is gone; there is nothing to move")
        mobility = self._mobility(move.job_uid)
        why_not = _why_not(move, managed, mobility)
        if why_not is not None or mobility is None:
            return MoveOutcome(move, "infeasible", why_not or "nothing is known of how it could be moved")
        begin = self._ways.suspend if mobility.way == "suspend" else self._ways.evict
        return begin(move, managed, self._policy, mobility.members)


def _why_not(move: Migrate, managed: ManagedPod, mobility: Mobility | None) -> str | None:
    """What the guards have asked already; asked again, because a pod that does not come back is a job that is lost."""
    if mobility is None:
        return "nothing is known of how it could be moved"
    if mobility.stays_because is not None or mobility.way is None:
        return mobility.stays_because or "there is no way to move it here"
    if not managed.pod.migratable:
        return "its pod does not say slopewise.dev/migratable any more"
    refused = mobility.refused_nodes.get(move.node)
    return None if refused is None else f"{move.node} would not take it: {refused}"
