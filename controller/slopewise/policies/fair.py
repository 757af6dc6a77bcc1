"""Fair sharing: no job is changed. The baseline of every comparison.

The kernel shares CPU evenly between containers of equal weight, which is what the papers call NA.
"""

from __future__ import annotations

from slopewise.model import ClusterSnapshot, Decisions, MemoryState, NodeMemory
from slopewise.policies import PolicyParameters, Setting

PURPOSE = "the baseline: no job is changed"
ACTIONS = ()


class Parameters(PolicyParameters):
    """None: there is nothing to choose."""


class Policy:
    """Evaluates at the regular interval, so that growth is measured and shown, and changes nothing."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._interval_seconds = setting.interval_seconds

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """No resize, the same reason for every job."""
        now = snapshot.taken_at_seconds
        nodes = {
            name: NodeMemory(frozenset(job.uid for job in jobs), now, self._interval_seconds)
            for name, jobs in snapshot.jobs_by_node().items()
        }
        reasons = {job.uid: "fair sharing: unchanged" for job in snapshot.jobs if not job.state.ended}
        return Decisions("fair", (), reasons, MemoryState(memory.jobs, nodes))
