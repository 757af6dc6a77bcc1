"""What the guards of a pass see: what was observed and remembered, what the user allows, and what is allowed so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from slopewise.allocation import even_share_millicores, original_millicores, weight_per_core_millicores
from slopewise.feedback import move_tracking
from slopewise.guards.move_budgets import Ledger
from slopewise.model import (
    Bounds,
    ClusterSnapshot,
    CpuControl,
    Decision,
    Job,
    JobMemory,
    JobUid,
    MemoryState,
    Migrate,
    Move,
    Node,
    ResizeMemory,
    Stop,
)


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


UNKNOWN = JobMemory()


class PassContext:
    """Of one pass; `allow` counts a decision as allowed for those that are reviewed after it."""

    def __init__(
        self, snapshot: ClusterSnapshot, memory: MemoryState, bounds: Bounds, begun: Sequence[Move] = ()
    ) -> None:
        """`begun`: moves that this pass has begun already, which use up budgets."""
        self.snapshot = snapshot
        self.memory = memory
        self.bounds = bounds
        self.ending: set[str] = set()
        """The workloads that this pass stops."""
        self.leaving = {each.job_uid: each.node for each in snapshot.moving}
        """The node that each job goes to which leaves its own; empty: where it fits."""
        self.going: Mapping[str, str] = {}
        """The node of each job after this pass, if all moves under review are made, by uid."""
        self._begun = begun

    def after(self, begun: Sequence[Move]) -> PassContext:
        """The context of a second review, of moves that are tried in place of others; `begun`: those that count."""
        return PassContext(self.snapshot, self.memory, self.bounds, begun)

    def allow(self, decision: Decision) -> None:
        """Count a decision as allowed."""
        match decision:
            case Stop():
                self.ending.add(JobUid.of(decision.job_uid).workload)
            case Migrate():
                self.leaving[decision.job_uid] = decision.node
            case ResizeMemory():
                self.room_bytes[decision.node] -= max(0, decision.to_bytes - decision.from_bytes)
            case _:
                pass

    def places(self, decision: Decision) -> Iterable[tuple[str, ...]]:
        """The namespaces and nodes that a decision changes: of its job, of all pods that a stop ends together."""
        if isinstance(decision, Stop):
            return [(pod.namespace, pod.node) for pod in self.pods(decision.job_uid)]
        leaves = (decision.from_node,) if isinstance(decision, Migrate) else ()
        return [(self._namespaces.get(decision.job_uid, ""), decision.node, *leaves)]

    def known(self, job_uid: str) -> JobMemory:
        """What is remembered of a job."""
        return self.memory.jobs.get(job_uid, UNKNOWN)

    def pods(self, job_uid: str) -> tuple[Job, ...]:
        """All jobs of the workload that have not ended."""
        return self._workloads.get(JobUid.of(job_uid).workload, ())

    @cached_property
    def jobs(self) -> Mapping[str, Job]:
        """By uid."""
        return {job.uid: job for job in self.snapshot.jobs}

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """By name."""
        return {node.name: node for node in self.snapshot.nodes}

    @cached_property
    def refused(self) -> Mapping[str, Mapping[str, str]]:
        """The nodes that do not accept a job, running or arriving, with their reasons, by the job's uid."""
        refused = {job.uid: job.movability.refused_nodes for job in self.snapshot.jobs if job.movability is not None}
        return refused | {arrival.uid: arrival.refused_nodes for arrival in self.snapshot.waiting}

    @cached_property
    def under_way(self) -> Mapping[str, str]:
        """The target of every job that is being moved, by uid."""
        return move_tracking.under_way(self.memory, self.snapshot)

    @cached_property
    def ledger(self) -> Ledger:
        """What the allowed moves leave for the next ones."""
        ledger = Ledger(self.snapshot, self.memory, move_tracking.awaited(self.memory, self.snapshot))
        ledger.enter(self._begun)
        return ledger

    @cached_property
    def shares(self) -> Shares:
        """Originals and even shares."""
        return Shares(self.snapshot, self.memory)

    @cached_property
    def room_bytes(self) -> dict[str, float]:
        """Of each node, what its jobs neither request nor use, in bytes; below 0 where they use more than it has."""
        room = {node.name: float(node.memory_bytes) for node in self.snapshot.nodes}
        for job in self.snapshot.jobs:
            if not job.state.ended:
                use = self.known(job.uid).memory_use
                room[job.node] -= max(job.memory_request_bytes or 0.0, use.working_set_bytes if use else 0.0)
        return room

    @cached_property
    def _namespaces(self) -> Mapping[str, str]:
        """Of running and of arriving jobs, by uid."""
        there = {job.uid: job.namespace for job in self.snapshot.jobs}
        return there | {arrival.uid: arrival.namespace for arrival in self.snapshot.waiting}

    @cached_property
    def _workloads(self) -> Mapping[str, tuple[Job, ...]]:
        return workloads(self.snapshot)


def workloads(snapshot: ClusterSnapshot) -> dict[str, tuple[Job, ...]]:
    """The jobs that have not ended, by workload; workloads in the order of their uids."""
    by_workload = sorted(
        ((JobUid.of(job.uid).workload, number, job) for number, job in enumerate(snapshot.jobs) if not job.state.ended),
        key=itemgetter(0, 1),
    )
    return {uid: tuple(job for _, _, job in pods) for uid, pods in groupby(by_workload, key=itemgetter(0))}
