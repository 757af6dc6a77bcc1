"""Originals, even shares and weights per CPU of jobs, by which guards of resizes judge; computed once a node."""

from __future__ import annotations

from typing import NamedTuple

from slopewise.allocation import even_share_millicores, original_millicores, weight_per_core_millicores
from slopewise.model import ClusterSnapshot, CpuControl, Job, MemoryState


class NodeShares(NamedTuple):
    """Of the jobs of one node, in the dimension of a resize."""

    even_millicores: int
    per_cpu: float
    """Millicores of that dimension for one of CPU: 1 for limits, the weight per CPU for requests."""


class Shares:
    """Of the jobs of one pass."""

    def __init__(self, snapshot: ClusterSnapshot, memory: MemoryState) -> None:
        self._jobs_on = snapshot.jobs_by_node()
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._remembered = memory.jobs
        self._known: dict[tuple[str, CpuControl], NodeShares] = {}

    def of_node(self, job: Job, control: CpuControl) -> NodeShares:
        """Those of the job's node; an ended job counts as running."""
        key = (job.node, control)
        if key not in self._known:
            jobs, node = self._jobs_on[job.node] or [job], self._nodes[job.node]
            even = even_share_millicores(jobs, self._remembered, node, control)
            weight = weight_per_core_millicores(jobs, self._remembered, node) if control == "requests" else 1000.0
            self._known[key] = NodeShares(even, weight / 1000)
        return self._known[key]

    def original_millicores(self, job: Job, control: CpuControl) -> int:
        """The job's CPU before the first change."""
        return original_millicores(job, self._remembered, self._nodes[job.node], control)
