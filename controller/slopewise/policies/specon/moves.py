"""SpeCon's moves: Algorithm 4 (where a slow job goes) and Algorithm 5 (idle nodes take jobs), on one plan.

Algorithm 3 (`__init__.py`) has put every job into a category before. A `Plan` starts as the observed cluster and is
updated by every decided move. Arrays are over the nodes in order of name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slopewise.model import ClusterSnapshot, Job, JobMemory, MemoryState, Migrate
from slopewise.policies.shared.placement import can_move, cpu_use_cores, refused_nodes

Floats = NDArray[np.float64]

PROGRESSING, WATCHING, CONVERGED = CATEGORIES = ("PC", "WC", "CC")

MIGRATED, REBALANCED = "migrated", "rebalanced"
"""Marks of a job: Algorithm 4 has settled where it is (moved or not); Algorithm 5 has moved it."""

ASKED = "asked:"
"""How a mark begins that says which move was asked for, and how many moves the job had made then:
`asked:migrated:0`. Whether it was made is known at the next evaluation at which the job is on a node; it may be between
two nodes at the next one."""

_CONVERGED_COLUMN = CATEGORIES.index(CONVERGED)


@dataclass(slots=True)
class Plan:
    """The nodes as they will be after the moves decided so far, and what was decided, by uid."""

    names: list[str]
    index: dict[str, int]
    counts: NDArray[np.int64]
    """Running jobs, shape (nodes, categories)."""
    cpu_cores: Floats
    """Measured CPU use of each node's jobs, shape (nodes,)."""
    capacity_cores: Floats
    """Cores of each node, shape (nodes,)."""
    room_bytes: Floats
    """Memory that no job of the node has requested, shape (nodes,)."""
    silent: NDArray[np.int64]
    """Jobs of PC and WC that report no loss, shape (nodes,): they count as load, and whether they grow is unknown."""
    moves: list[Migrate] = field(default_factory=list)
    marks: dict[str, frozenset[str]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def growing(self, name: str) -> int:
        """|PC| + |WC| of a node, of the jobs that report a loss."""
        at = self.index[name]
        return int(self.counts[at].sum() - self.counts[at, _CONVERGED_COLUMN] - self.silent[at])

    def move(self, job: Job, known: JobMemory, target: int, mark: str, reason: str) -> None:
        """Ask for a move, and count the job (a converged one, as all that move) on its target from now on."""
        ends = [self.index[job.node], target]
        cores = known.growth.cpu_cores if known.growth else None
        self.counts[ends, _CONVERGED_COLUMN] += [-1, 1]
        self.cpu_cores[ends] += np.array([-1.0, 1.0]) * (cores or 0.0)
        self.room_bytes[ends] += np.array([job.memory_request_bytes or 0.0, -(job.memory_to_move_bytes or 0.0)])
        self.moves.append(Migrate(job.uid, job.node, self.names[target], reason))
        self.marks[job.uid] = frozenset({mark, f"{ASKED}{mark}:{known.moves_total}"})
        self.reasons[job.uid] = reason


def plan_from(
    snapshot: ClusterSnapshot, memory: MemoryState, categories: Mapping[str, str], silent: Collection[str] = ()
) -> Plan:
    """The cluster before any move; `categories` of the running jobs, by uid, as Algorithm 3 has left them.

    `silent` are the uids of those that report no loss.
    A job that is on no node, because an earlier move of it is under way, counts on its target already: else the next
    evaluation would take that node for idle.
    """
    names = sorted(node.name for node in snapshot.nodes)
    index = {name: position for position, name in enumerate(names)}
    counts = np.zeros((len(names), len(CATEGORIES)), dtype=np.int64)
    unreachable = np.zeros(len(names), dtype=np.int64)
    for job in snapshot.jobs:
        if job.uid in categories:
            counts[index[job.node], CATEGORIES.index(categories[job.uid])] += 1
            unreachable[index[job.node]] += job.uid in silent and categories[job.uid] != CONVERGED
    here = {job.uid for job in snapshot.jobs}
    for moving in snapshot.moving:
        if moving.job_uid not in here and moving.node in index:
            counts[index[moving.node], _CONVERGED_COLUMN] += 1
    used, room = cpu_use_cores(snapshot, memory), snapshot.memory_room_bytes()
    cores = {node.name: node.cpu_cores for node in snapshot.nodes}
    in_use, capacity, left = (_array(figure[name] for name in names) for figure in (used, cores, room))
    return Plan(names, index, counts, in_use, capacity, left, unreachable)


def _array(figures: Iterable[float]) -> Floats:
    return np.fromiter(figures, dtype=np.float64)


def with_outcome(known: JobMemory) -> JobMemory:
    """The job's memory once the outcome of the move that was asked for is known, if one was.

    A move that a guard withheld, or that failed, has not used up the one move that a job has: its mark is removed.
    """
    asked = next((mark for mark in known.decided.marks if mark.startswith(ASKED)), None)
    if asked is None:
        return known
    asked_for, _, moves_before = asked.removeprefix(ASKED).rpartition(":")
    # Stored before a mark named what was asked for: `asked:0`.
    asked_for = asked_for or (REBALANCED if REBALANCED in known.decided.marks else MIGRATED)
    moved = known.moves_total > int(moves_before)
    return known.with_decided(marks=known.decided.marks - ({asked} if moved else {asked, asked_for}))


def reallocate(plan: Plan, job: Job, known: JobMemory, weights: Floats, because: str) -> None:
    """Algorithm 4: move a job to the node of least score and, of several, least CPU use; or let it stay for good.

    CPU use is a fraction of the node's cores: 2 cores are half of a node of 4 and an eighth of one of 16.

    `weights` of PC, WC and CC, shape (categories,). The job counts on its own host. Worked example: 3 PC, 1 PC + 1 WC,
    2 PC, and a host with 5 PC and the job score 6, 3.5, 4 and 11: it goes to the second node.
    """
    here = plan.index[job.node]
    fits = plan.room_bytes >= (job.memory_to_move_bytes or 0.0)
    fits[[plan.index[name] for name in refused_nodes(job) if name in plan.index]] = False
    fits[here] = True
    scores = np.where(fits, (plan.counts * weights).sum(axis=1), np.inf)
    least = scores == scores.min()
    if least[here]:
        plan.marks[job.uid] = frozenset({MIGRATED})
        plan.reasons[job.uid] = f"{because}; stays for good, no node's score is below its {scores[here]:.3g}"
        return
    target = int(np.where(least, plan.cpu_cores / plan.capacity_cores, np.inf).argmin())
    figures = f"score {scores[target]:.3g} on {plan.names[target]}, {scores[here]:.3g} on {job.node}"
    plan.move(job, known, target, MIGRATED, f"slow move: {figures}; {because}")


def rebalance(
    plan: Plan, jobs: Sequence[Job], memory: MemoryState, categories: Mapping[str, str], now_seconds: float
) -> None:
    """Algorithm 5: every idle node, or if there is none every one short of jobs, takes the latest to converge.

    `jobs` are all that run, `memory` is that before this evaluation, `categories` are those after it, by uid. Worked
    example: 3, 3, 3 and 1 jobs: bf = ceil(10 / 4) = 3 and 1 < bf - 1, so the last node takes one job.
    """
    if not jobs:
        return
    loads: list[int] = plan.counts.sum(axis=1).tolist()
    enough = math.ceil(len(jobs) / len(loads)) - 1
    idle = [node for node, load in enumerate(loads) if load == 0]
    # Fewest jobs first: a donor that has too few for one target has too few for all that follow.
    targets = idle or sorted((node for node, load in enumerate(loads) if load < enough), key=lambda node: loads[node])
    taking = {plan.names[target] for target in targets}
    since = _converged_since_seconds(plan, jobs, memory, categories, now_seconds)
    candidates = [job for job in jobs if job.uid in since and job.node not in taking and can_move(job)]
    candidates.sort(key=lambda job: (-since[job.uid], job.uid))
    for target in targets:
        for job in candidates:
            donor, name = plan.index[job.node], plan.names[target]
            fits = (job.memory_to_move_bytes or 0.0) <= plan.room_bytes[target] and name not in refused_nodes(job)
            if loads[donor] > loads[target] + 1 and fits:
                figures = f"{loads[target]} jobs on {name}, {loads[donor]} on {job.node}"
                seconds = now_seconds - since[job.uid]
                because = f"rebalance: {figures}; converged {seconds:.0f} s ago, the latest there"
                plan.move(job, memory.jobs[job.uid], target, REBALANCED, because)
                loads[donor] -= 1
                loads[target] += 1
                candidates.remove(job)
                break


def _converged_since_seconds(
    plan: Plan, jobs: Sequence[Job], memory: MemoryState, categories: Mapping[str, str], now_seconds: float
) -> dict[str, float]:
    """When each job entered CC that Algorithm 5 may move, by uid: all of CC that it has not moved before.

    Jobs that Algorithm 4 has settled at this evaluation are none of them; a job may have entered CC at it.
    """
    since = {}
    for job in jobs:
        known = memory.jobs[job.uid]
        if categories[job.uid] != CONVERGED or REBALANCED in known.decided.marks or job.uid in plan.marks:
            continue
        entered = now_seconds if known.decided.job_class != CONVERGED else known.decided.class_since_seconds
        since[job.uid] = entered or 0.0
    return since
