"""SpeCon's moves: Algorithm 4 (where a slow job goes) and Algorithm 5 (idle nodes take jobs), on one plan.

Comes after Algorithm 3 (`specon`), which has put every job into a category. A `Plan` starts as the cluster is and is
changed by every move that is decided, so that the next one sees it. Arrays are over the nodes in order of name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controller.model import ClusterSnapshot, Job, JobMemory, MemoryState, Migrate
from controller.policies._placement import can_move, cpu_use_cores, refused_nodes

Floats = NDArray[np.float64]

PROGRESSING, WATCHING, CONVERGED = CATEGORIES = ("PC", "WC", "CC")

MIGRATED, REBALANCED = "migrated", "rebalanced"
"""Marks of a job: Algorithm 4 has settled where it is (moved or not); Algorithm 5 has moved it."""

ASKED = "asked:"
"""How a mark begins that says how many moves a job had made when one was asked for: `asked:0`. Whether it was made is
known at the next look at which the job is there, which need not be the next one: it may be between two nodes then."""

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
    room_bytes: Floats
    """Memory that no job of the node has requested, shape (nodes,)."""
    silent: NDArray[np.int64]
    """Jobs of PC and WC that report no loss, shape (nodes,): they count as load, and nobody knows whether they grow."""
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
        self.room_bytes[ends] += np.array([1.0, -1.0]) * (job.memory_request_bytes or 0.0)
        self.moves.append(Migrate(job.uid, job.node, self.names[target], reason))
        self.marks[job.uid] = frozenset({mark, f"{ASKED}{known.moves_total}"})
        self.reasons[job.uid] = reason


def plan_from(
    snapshot: ClusterSnapshot, memory: MemoryState, categories: Mapping[str, str], silent: Collection[str] = ()
) -> Plan:
    """The cluster before any move; `categories` of the running jobs, by uid, as Algorithm 3 has left them.

    `silent` are the uids of those that report no loss.
    A job that is on no node, because an earlier move of it is under way, counts on its target already: else the next
    look would find that node idle, and send another job there.
    """
    names = sorted(node.name for node in snapshot.nodes)
    index = {name: position for position, name in enumerate(names)}
    counts = np.zeros((len(names), len(CATEGORIES)), dtype=np.int64)
    unheard = np.zeros(len(names), dtype=np.int64)
    for job in snapshot.jobs:
        if job.uid in categories:
            counts[index[job.node], CATEGORIES.index(categories[job.uid])] += 1
            unheard[index[job.node]] += job.uid in silent and categories[job.uid] != CONVERGED
    here = {job.uid for job in snapshot.jobs}
    for moving in snapshot.moving:
        if moving.job_uid not in here and moving.node in index:
            counts[index[moving.node], _CONVERGED_COLUMN] += 1
    used, room = cpu_use_cores(snapshot, memory), snapshot.memory_room_bytes()
    return Plan(
        names, index, counts, _array(used[name] for name in names), _array(room[name] for name in names), unheard
    )


def _array(figures: Iterable[float]) -> Floats:
    return np.fromiter(figures, dtype=np.float64)


def with_outcome(known: JobMemory) -> JobMemory:
    """The job's memory once it is known what became of the move that was asked for, if one was.

    A move that a guard withheld, or that failed, has not used up the one move that a job has: its mark is taken back.
    """
    asked = next((mark for mark in known.marks if mark.startswith(ASKED)), None)
    if asked is None:
        return known
    asked_for = REBALANCED if REBALANCED in known.marks else MIGRATED
    moved = known.moves_total > int(asked.removeprefix(ASKED))
    return known.altered(marks=known.marks - ({asked} if moved else {asked, asked_for}))


def reallocate(plan: Plan, job: Job, known: JobMemory, weights: Floats, why: str) -> None:
    """Algorithm 4: move a job to the node of least score and, of several, least CPU use; or let it stay for good.

    `weights` of PC, WC and CC, shape (categories,). The job counts on its own host. Worked example: 3 PC, 1 PC + 1 WC,
    2 PC, and a host with 5 PC and the job score 6, 3.5, 4 and 11: it goes to the second node.
    """
    here = plan.index[job.node]
    fits = plan.room_bytes >= (job.memory_request_bytes or 0.0)
    fits[[plan.index[name] for name in refused_nodes(job) if name in plan.index]] = False
    fits[here] = True
    scores = np.where(fits, plan.counts @ weights, np.inf)
    least = scores == scores.min()
    if least[here]:
        plan.marks[job.uid] = frozenset({MIGRATED})
        plan.reasons[job.uid] = f"{why}; stays for good, no node's score is below its {scores[here]:.3g}"
        return
    target = int(np.where(least, plan.cpu_cores, np.inf).argmin())
    figures = f"score {scores[target]:.3g} on {plan.names[target]}, {scores[here]:.3g} on {job.node}"
    plan.move(job, known, target, MIGRATED, f"slow move: {figures}; {why}")


def rebalance(plan: Plan, jobs: Sequence[Job], memory: MemoryState, now_seconds: float) -> None:
    """Algorithm 5: every idle node, or if there is none every one short of jobs, takes the latest to converge.

    `jobs` are all that run, `memory` is that before this look: what Algorithm 4 has just settled is left alone.
    Worked example: 3, 3, 3 and 1 jobs: bf = ceil(10 / 4) = 3 and 1 < bf - 1, so the last node takes one job.
    """
    if not jobs:
        return
    loads: list[int] = plan.counts.sum(axis=1).tolist()
    enough = math.ceil(len(jobs) / len(loads)) - 1
    idle = [node for node, load in enumerate(loads) if load == 0]
    # Fewest jobs first: a donor that has too few for one target has too few for all that follow.
    targets = idle or sorted((node for node, load in enumerate(loads) if load < enough), key=lambda node: loads[node])
    candidates = _latest_converged_first(jobs, memory, {plan.names[target] for target in targets})
    for target in targets:
        for job in candidates:
            donor, name = plan.index[job.node], plan.names[target]
            fits = (job.memory_request_bytes or 0.0) <= plan.room_bytes[target] and name not in refused_nodes(job)
            if loads[donor] > loads[target] + 1 and fits:
                known = memory.jobs[job.uid]
                seconds = now_seconds - _converged_at_seconds(known)
                figures = f"{loads[target]} jobs on {name}, {loads[donor]} on {job.node}"
                why = f"rebalance: {figures}; converged {seconds:.0f} s ago, the latest there"
                plan.move(job, known, target, REBALANCED, why)
                loads[donor] -= 1
                loads[target] += 1
                candidates.remove(job)
                break


def _latest_converged_first(jobs: Sequence[Job], memory: MemoryState, taking: set[str]) -> list[Job]:
    """The jobs that Algorithm 5 may move, smallest converged duration first; none from a node that takes jobs."""
    candidates = [job for job in jobs if job.node not in taking and can_move(job) and _is_settled(memory.jobs[job.uid])]
    return sorted(candidates, key=lambda job: (-_converged_at_seconds(memory.jobs[job.uid]), job.uid))


def _is_settled(known: JobMemory) -> bool:
    """Algorithm 4 has dealt with it, and Algorithm 5 has not."""
    return known.job_class == CONVERGED and MIGRATED in known.marks and REBALANCED not in known.marks


def _converged_at_seconds(known: JobMemory) -> float:
    """When the job entered CC, which is the last category that a marked job ever enters."""
    return known.class_since_seconds or 0.0
