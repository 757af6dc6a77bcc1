"""DRAPS-style: jobs go where the resource they need most is free, and leave a node that runs out of it.

Source: DRAPS (IPCCC 2017), of which only the abstract is at hand: this is a reconstruction, not the paper's own text.
Resources are CPU and memory; block and network I/O have no stated capacity.

- A job's dominant resource is the one of which it uses the largest fraction: argmax use/capacity.
- An arriving job goes to the node with the largest free fraction of its dominant resource (memory must fit).
- When a node's use of a resource passes 80 %, its largest user of it moves to the node with most of it free.

Worked example: 1.5 of 2 cores and 4 of 32 GiB is CPU-dominant; with free CPU of 0.4, 0.6 and 0.5 it goes to the
second node.

Our readings, where nothing is said:

- Use is what was measured; before that, of CPU what the job is allotted, up to its useful parallelism, and of memory
  its request. An arriving job's is its useful parallelism (or else its CPU request) and its memory request, as
  fractions of the whole cluster; CPU where nothing is known.
- Past 80 % a measured CPU use no longer distinguishes nodes: three jobs use all of a core, and so do two. Among nodes
  as full as that an arriving job goes to the one with the fewest jobs a core.
- A node is full by what runs there, not by what is only just placed there. One move a node and evaluation, from the
  fullest node on, the counts updated in between; only of a job that may be moved, trains, and was measured since the
  last evaluation, so that the effect of a move shows before the next. Others are passed over.
- No move without gain: with it, the target must be less full than the node is now. So a job that fills any node by
  itself stays, and none goes back and forth on the same figures.
- CPU is not resized: within a node the kernel shares it evenly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from slopewise.allocation import allotted_cores
from slopewise.model import (
    Arrival,
    ClusterSnapshot,
    CpuControl,
    Decisions,
    Job,
    MemoryState,
    Migrate,
    Node,
    NodeMemory,
    Place,
)
from slopewise.policies import PolicyParameters, Setting, parameter
from slopewise.policies.shared.node_passes import NodeDecision, Verdict, decide_by_node, is_due
from slopewise.policies.shared.placement import can_move, place_each, refused_nodes
from slopewise.policies.shared.shares import useful_cores
from slopewise.policies.shared.silence import none_is_silent

PURPOSE = "several nodes, and jobs that need CPU and memory unevenly"
ACTIONS = ("place", "migrate")

Resource = Literal["cpu", "memory"]
RESOURCES: tuple[Resource, ...] = ("cpu", "memory")


class Parameters(PolicyParameters):
    """When a node counts as full."""

    full_ratio: float = parameter(
        0.8,
        gt=0,
        lt=1,
        unit="ratio of the node's capacity",
        source="reconstruction",
        description="use of a resource past which the node's largest user of it is to move",
    )


Use = Mapping[Resource, float]
"""Cores and bytes that one job, or all of a node, uses or has."""


def _dominant(use: Use, capacity: Use) -> Resource:
    """The resource of which it is the largest fraction; CPU when both are equal, or not known."""
    return max(RESOURCES, key=lambda resource: use[resource] / capacity[resource])


def _sum(uses: Sequence[Use]) -> Use:
    """All of them together; fsum, so that their order makes no difference."""
    return {resource: math.fsum(use[resource] for use in uses) for resource in RESOURCES}


class _Loads:
    """How full each node is: as it was found, and with what is placed and moved in this pass."""

    def __init__(self, snapshot: ClusterSnapshot, uses: Mapping[str, Use]) -> None:
        jobs_on = snapshot.jobs_by_node()
        self.uses, self.room = uses, snapshot.memory_room_bytes()
        self.jobs = {name: len(jobs) for name, jobs in jobs_on.items()}
        self.capacity: dict[str, Use] = {
            node.name: {"cpu": node.cpu_cores, "memory": float(node.memory_bytes)} for node in snapshot.nodes
        }
        self._used = {name: _sum([uses[job.uid] for job in jobs]) for name, jobs in jobs_on.items()}
        self.found = {name: self._fullest(name) for name in self.capacity}
        """The resource of which each node had least left before anything was placed, and its used part."""

    def ratio(self, resource: Resource, node: str, more: float = 0.0) -> float:
        """The part of the node's resource that is used, with `more` on top."""
        return (self._used[node][resource] + more) / self.capacity[node][resource]

    def add(self, node: str, use: Use, jobs: int = 1) -> None:
        """Count a job there, or with `jobs=-1` no longer."""
        self._used[node] = {each: used + jobs * use[each] for each, used in self._used[node].items()}
        self.jobs[node] += jobs

    def move_off(self, node: str, may_go: Sequence[Job]) -> Migrate | None:
        """Move the largest user of what the node has least of; None when no job may go, or there is no gain."""
        used, resource = self.found[node]
        if not may_go:
            return None
        largest = max(may_go, key=lambda job: (self.uses[job.uid][resource], job.uid))
        target, use = self._target(largest, resource), self.uses[largest.uid]
        if target is None or self.ratio(resource, target, use[resource]) >= used:
            return None
        free = 1 - self.ratio(resource, target)
        reason = (
            f"largest user of {resource} on {node}, of which {used:.0%} is used; {target} has most free ({free:.0%})"
        )
        self.add(node, use, -1)
        self.add(target, use)
        self.room[node] += largest.memory_request_bytes or 0.0
        self.room[target] -= largest.memory_to_move_bytes or 0.0
        return Migrate(largest.uid, node, target, reason, relieves=None if resource == "cpu" else resource)

    def _target(self, job: Job, resource: Resource) -> str | None:
        """The other node that would take the job, with most of the resource free; ties go to the first name."""
        needed, refused = job.memory_to_move_bytes or 0.0, refused_nodes(job)
        others = [name for name in self.capacity if name != job.node and name not in refused]
        fitting = [name for name in others if self.room[name] >= needed]
        return min(fitting, key=lambda name: (self.ratio(resource, name), name), default=None)

    def _fullest(self, node: str) -> tuple[float, Resource]:
        ratios = {resource: self.ratio(resource, node) for resource in RESOURCES}
        resource = max(RESOURCES, key=ratios.__getitem__)
        return ratios[resource], resource


class Policy:
    """Placement by dominant resource, and moves away from full nodes."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._full_ratio = parameters.full_ratio
        self._setting = setting

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Place every arriving job, then relieve the full nodes that are due; no resize."""
        loads = _Loads(snapshot, _uses(snapshot, memory, self._setting.control))
        places = self._places(snapshot, memory, loads)
        moves = self._migrations(snapshot, memory, loads)
        leaving = {move.job_uid: move.reason for move in moves}

        def decide_node(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> NodeDecision:
            used, resource = loads.found[node.name]
            verdicts = {}
            for job in jobs:
                dominant = _dominant(loads.uses[job.uid], loads.capacity[node.name])
                stays = f"not moved: needs most {dominant}; {resource} of {node.name} is {used:.0%} used"
                verdicts[job.uid] = Verdict(None, dominant, leaving.get(job.uid, stays))
            return NodeDecision(verdicts, self._setting.interval_seconds)

        decisions = decide_by_node(
            "draps", snapshot, memory, self._setting.control, decide_node, (*places, *moves), silence=none_is_silent
        )
        return replace(decisions, resizes=())  # nor what another policy, which was followed before, wanted of them

    def _places(self, snapshot: ClusterSnapshot, memory: MemoryState, loads: _Loads) -> tuple[Place, ...]:
        wanted = {arrival.uid: _expected_use(arrival) for arrival in snapshot.waiting}
        cluster = _sum(list(loads.capacity.values()))
        dominant = {uid: _dominant(use, cluster) for uid, use in wanted.items()} if snapshot.nodes else {}

        def cost(arrival: Arrival, node: Node) -> float:
            used = loads.ratio(dominant[arrival.uid], node.name)
            return used if used < self._full_ratio else self._full_ratio + loads.jobs[node.name] / node.cpu_cores

        def placed(arrival: Arrival, node: Node) -> str:
            used = loads.ratio(dominant[arrival.uid], node.name)
            loads.add(node.name, wanted[arrival.uid])
            loads.room[node.name] -= arrival.memory_request_bytes or 0.0
            return f"needs most {dominant[arrival.uid]}, of which {node.name} has most free ({used:.0%} used)"

        return place_each(snapshot, memory, cost, placed)

    def _migrations(self, snapshot: ClusterSnapshot, memory: MemoryState, loads: _Loads) -> list[Migrate]:
        """At most one job off each full node that is due, the fullest node first."""
        now, jobs_on = snapshot.taken_at_seconds, snapshot.jobs_by_node()
        full = [
            name
            for name, jobs in jobs_on.items()
            if loads.found[name][0] > self._full_ratio and is_due(memory.nodes.get(name), jobs, now)
        ]
        moves = []
        for name in sorted(full, key=lambda each: (-loads.found[each][0], each)):
            move = loads.move_off(name, [job for job in jobs_on[name] if _may_go(job, memory)])
            if move is not None:
                moves.append(move)
        return moves


def _uses(snapshot: ClusterSnapshot, memory: MemoryState, control: CpuControl) -> dict[str, Use]:
    """What every job that has not ended uses, measured where it can be."""
    allotted = allotted_cores(snapshot, control)
    nodes = {node.name: node for node in snapshot.nodes}
    uses: dict[str, Use] = {}
    for job in snapshot.jobs:
        if job.state.ended:
            continue
        growth = memory.jobs[job.uid].growth
        cores = growth.cpu_cores if growth else None
        if cores is None:
            cores = min(allotted[job.uid], useful_cores(job, nodes[job.node]))
        measured = job.usage.memory_bytes if job.usage else None
        uses[job.uid] = {"cpu": cores, "memory": (job.memory_request_bytes or 0.0) if measured is None else measured}
    return uses


def _expected_use(arrival: Arrival) -> Use:
    """What an arriving job will use, as far as it says."""
    cores = arrival.useful_parallelism_cores or arrival.request_millicores / 1000
    return {"cpu": cores, "memory": arrival.memory_request_bytes or 0.0}


def _may_go(job: Job, memory: MemoryState) -> bool:
    """It can be moved now, and was measured since its node's last evaluation."""
    growth, last = memory.jobs[job.uid].growth, memory.nodes.get(job.node)
    measured = growth is not None and (last is None or growth.at_seconds > last.evaluated_at_seconds)
    return can_move(job) and measured
