"""The moves and stops of a cluster's Actuator: chooses how one is carried out, and begins it.

`moves/gated_pods.py` places arriving pods; `suspend/begin.py` or `evict/controller.py` migrates running ones, as
`moves/movability.py` has decided; `suspend/stop.py` stops a job at its target. Later passes observe the result
(`ClusterSnapshot.moving`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slopewise.adapters.kube.cache.records import ManagedPod
from slopewise.adapters.kube.workloads.owners import JobIndex
from slopewise.model import Decision, Migrate, Movability, Move, Outcome, Place, Stop

Begin = Callable[[Migrate, ManagedPod, str, Sequence[str]], Outcome[Move]]
"""Begins a migration of a job, for a policy, and of all members of its workload (uids)."""


@dataclass(frozen=True, slots=True)
class KubeMover:
    """The moves and stops of one policy; how they are carried out is shared by all policies."""

    policy: str
    index: JobIndex
    movability: Callable[[str], Movability | None]
    """Of a job of the last snapshot, by uid; None for an unknown job."""
    place: Callable[[Place], Outcome[Move]]
    suspend: Begin
    evict: Begin
    stop: Callable[[Stop, ManagedPod, str], Outcome[Stop]]
    """`suspend/stop.JobStopper.stop`."""

    def begin(self, decision: Move | Stop) -> Outcome[Decision]:
        """Begin it; NotLeadingError without the lease."""
        if isinstance(decision, Place):
            return self.place(decision)
        managed, verb = self.index.find(decision.job_uid), "stop" if isinstance(decision, Stop) else "move"
        if managed is None:
            return Outcome(decision, "failed", f"its pod is gone; there is nothing to {verb}")
        if isinstance(decision, Stop):
            return self.stop(decision, managed, self.policy)
        return self._migrate(decision, managed)

    def _migrate(self, move: Migrate, managed: ManagedPod) -> Outcome[Move]:
        """The guards' checks are repeated: a pod that is not recreated would be a lost job."""
        movability = self.movability(move.job_uid)
        if movability is None:
            return Outcome(move, "infeasible", "nothing is known of how it could be moved")
        if movability.blocked_reason is not None or movability.way is None:
            return Outcome(move, "infeasible", movability.blocked_reason or "there is no way to move it here")
        if not managed.pod.migratable:
            return Outcome(move, "infeasible", "its pod does not say slopewise.dev/migratable any more")
        if (refused := movability.refused_nodes.get(move.node)) is not None:
            return Outcome(move, "infeasible", f"{move.node} would not take it: {refused}")
        begin = self.suspend if movability.way == "suspend" else self.evict
        return begin(move, managed, self.policy, movability.members)
