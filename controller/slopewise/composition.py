"""Composes two policies into one: the first decides CPU (`spec.policy`), the second nodes (`spec.placement`).

`CpuRestored` adds to a policy that decides no CPU the restores of what the policy before it changed.

FlowCon on each node under SpeCon's moves is the thesis' "local optimisation" within its "global optimisation". Neither
policy depends on the other. Each gets a view of the memory in which the fields that policies write are its own (class,
marks, wanted cores, the evaluations of nodes); measurements are common to both. The resizes are those of the first, the
moves those of the second. Where both change one job, the guards decide which is carried out
(`guards/moves.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slopewise.allocation import accepted_millicores, original_millicores
from slopewise.model import (
    ClusterSnapshot,
    CpuControl,
    Decisions,
    Job,
    JobMemory,
    MemoryState,
    Node,
    PolicyMemory,
    Resize,
)
from slopewise.policies import PolicyProtocol

_UNDECIDED = PolicyMemory()


def composed_name(policy: str, placement: str | None) -> str:
    """How a choice of policies is named in tables, log lines and metrics, e.g. `flowcon+specon`."""
    return policy if placement is None else f"{policy}+{placement}"


def parts_of(name: str) -> tuple[str, ...]:
    """The policies of such a name: that of CPU, then that of nodes if there are two."""
    return tuple(name.split("+"))


class Composed:
    """One policy for CPU and one for nodes, as a single policy."""

    def __init__(self, name: str, placement_name: str, cpu: PolicyProtocol, placement: PolicyProtocol) -> None:
        """`placement_name` stands before the second policy's reasons."""
        self._name = name
        self._placement_name = placement_name
        self._cpu = cpu
        self._placement = placement

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """The first policy's resizes, the second one's moves, and the reasons and the memory of both."""
        for_cpu = {
            uid: known.altered(placement=None) if known.placement else known for uid, known in memory.jobs.items()
        }
        for_placement = {uid: _placement_view(known) for uid, known in memory.jobs.items()}
        of_cpu = self._cpu.decide(snapshot, replace(memory, jobs=for_cpu, placement_nodes={}))
        of_nodes = self._placement.decide(
            snapshot, replace(memory, jobs=for_placement, nodes=memory.placement_nodes, placement_nodes={})
        )
        jobs = {
            uid: known
            if (cpu := of_cpu.memory.jobs[uid]) is for_cpu[uid] and of_nodes.memory.jobs[uid] is for_placement[uid]
            else _merged(cpu, of_nodes.memory.jobs[uid])
            for uid, known in memory.jobs.items()
        }
        return Decisions(
            self._name,
            of_cpu.resizes,
            self._reasons(of_cpu.reasons, of_nodes.reasons),
            MemoryState(
                jobs,
                of_cpu.memory.nodes,
                of_nodes.memory.nodes,
                departed=of_cpu.memory.departed or of_nodes.memory.departed,
            ),
            of_nodes.moves,
        )

    def _reasons(self, of_cpu: Mapping[str, str], of_nodes: Mapping[str, str]) -> dict[str, str]:
        """Both reasons of each job, in the order of what is carried out."""
        return {uid: f"{reason}; {self._placement_name}: {of_nodes[uid]}" for uid, reason in of_cpu.items()}


def _placement_view(known: JobMemory) -> JobMemory:
    """The job with what the second policy decided of it in place of what the first one did."""
    return known.altered(decided=known.placement or _UNDECIDED, placement=None)


def _merged(cpu: JobMemory, placement: JobMemory) -> JobMemory:
    return cpu.altered(placement=None if placement.decided == _UNDECIDED else placement.decided)


_EITHER: tuple[CpuControl, ...] = ("limits", "requests")
"""A limit first: a request may not rise above it."""


class CpuRestored:
    """A policy that decides no CPU, with the restores of jobs that the policy before it has changed."""

    def __init__(self, policy: PolicyProtocol) -> None:
        self._policy = policy

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """The policy's decisions; a job whose CPU is not its original is restored, and its reason says so."""
        decided = self._policy.decide(snapshot, memory)
        nodes = {node.name: node for node in snapshot.nodes}
        due = {
            job.uid: resize
            for job in snapshot.jobs
            if not job.state.ended and (resize := _restoring(job, nodes[job.node], memory)) is not None
        }
        if not due:
            return decided
        reasons = {**decided.reasons, **{uid: resize.reason for uid, resize in due.items()}}
        return replace(decided, resizes=(*decided.resizes, *due.values()), reasons=reasons)


def _restoring(job: Job, node: Node, memory: MemoryState) -> Resize | None:
    """The change that brings a job to its original; None: it has that, or was never changed."""
    known = memory.jobs.get(job.uid)
    if known is None or known.original is None or known.original == job.allocation:
        return None
    for control in _EITHER:
        has, original = accepted_millicores(job, node, control), original_millicores(job, memory.jobs, node, control)
        if has != original:
            reason = f"restores its {control[:-1]} of {original}m, which another policy changed"
            return Resize(job.uid, job.node, control, has, original, reason, is_rollback=True)
    return None
