"""What policies with one regular look per node share: when a node is due, and what a whole pass yields.

A policy hands `decide_by_node` a function that looks at one node and says what each job's limit, class and reason
are; between two looks it is not asked, and what was decided and is not there yet is asked for again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from controller.control import given_texts, resizes, targets_millicores
from controller.growth import EARLY_RATIO
from controller.model import (
    ClusterSnapshot,
    CpuControl,
    Decisions,
    Job,
    JobMemory,
    MemoryState,
    Move,
    Node,
    NodeMemory,
    Resize,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a look decides on one job. `limit_cores=None`: it keeps what was wanted before, or is left alone."""

    limit_cores: float | None
    job_class: str
    reason: str
    streak: int = 0
    marks: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Look:
    """One look at one node: a verdict for each of its jobs by uid, and seconds until the next look."""

    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    interval_seconds: float = 60.0


LookAt = Callable[[Node, Sequence[Job], NodeMemory | None], Look]


def is_due(last: NodeMemory | None, jobs: Sequence[Job], now_seconds: float) -> bool:
    """True when the node was never looked at, its set of jobs changed, or its interval is over."""
    if last is None or {job.uid for job in jobs} != last.job_uids:
        return True
    # A tick may come a little early, as with growth's own intervals.
    return now_seconds >= last.looked_at_seconds + EARLY_RATIO * last.interval_seconds


def decide_by_node(
    policy: str,
    snapshot: ClusterSnapshot,
    memory: MemoryState,
    control: CpuControl,
    look_at: LookAt,
    moves: Sequence[Move] = (),
) -> Decisions:
    """Look at every node that is due; jobs are handed over in order of uid, so that no order of theirs matters."""
    now = snapshot.taken_at_seconds
    jobs_on = snapshot.jobs_by_node()
    changes: list[Resize] = []
    reasons: dict[str, str] = {}
    jobs_memory, nodes = dict(memory.jobs), {}
    for node in snapshot.nodes:
        jobs = sorted(jobs_on[node.name], key=lambda job: job.uid)
        last = memory.nodes.get(node.name)
        if last is not None and not is_due(last, jobs, now):
            nodes[node.name] = last
            reasons |= {job.uid: _waiting(jobs_memory[job.uid], last, now) for job in jobs}
        else:
            look = look_at(node, jobs, last)
            nodes[node.name] = NodeMemory(frozenset(job.uid for job in jobs), now, look.interval_seconds)
            reasons |= {job.uid: look.verdicts[job.uid].reason for job in jobs}
            jobs_memory |= {job.uid: _decided(jobs_memory[job.uid], look.verdicts[job.uid], now) for job in jobs}
        changes += _changes(jobs, reasons, jobs_memory, node, control)
    return Decisions(policy, tuple(changes), reasons, MemoryState(jobs_memory, nodes), tuple(moves))


def _waiting(known: JobMemory, last: NodeMemory, now_seconds: float) -> str:
    left = max(0.0, last.look_at_seconds - now_seconds)
    return f"{known.job_class or 'not looked at yet'}: next look in {left:.0f} s"


def _decided(known: JobMemory, verdict: Verdict, now_seconds: float) -> JobMemory:
    limit = known.wanted_cores if verdict.limit_cores is None else verdict.limit_cores
    decided = known.with_decision(verdict.job_class, limit, now_seconds)
    if verdict.streak == known.streak and verdict.marks <= known.marks:
        return decided
    return decided.altered(streak=verdict.streak, marks=known.marks | verdict.marks)


def _changes(
    jobs: Sequence[Job], reasons: dict[str, str], memory: Mapping[str, JobMemory], node: Node, control: CpuControl
) -> list[Resize]:
    """The resizes that are still to be done, and `reasons` with what is given; a job without a limit is left alone.

    Shares are weights beside each other, so that with `requests` even it needs one: as if it wanted the whole node. A
    limit that was decided on for a job on a larger node, before it moved, is cut to this one.
    """
    wanted = {job.uid: memory[job.uid].wanted_cores for job in jobs}
    limited = [job for job in jobs if wanted[job.uid] is not None]
    if not limited:
        return []
    concerned = limited if control == "limits" else jobs
    limits = [min(node.cpu_cores, math.inf if (cores := wanted[job.uid]) is None else cores) for job in concerned]
    targets = targets_millicores(concerned, limits, memory, node, control)
    for job, given in zip(concerned, given_texts(limits, targets, node, control), strict=True):
        if wanted[job.uid] is not None:
            reasons[job.uid] = f"{reasons[job.uid]}, {given}"
    return resizes(concerned, targets, reasons, node, control)
