"""What policies with one regular look per node share: when a node is due, and what a whole pass yields.

A policy hands `decide_by_node` a function that looks at one node and says what each job's limit, class and reason
are; between two looks it is not asked, and what was decided and is not there yet is asked for again. Silent jobs
(`_silence`) are not shown to it: they keep what they came with, and its node is as large as what they leave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from controller.control import resizes
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
from controller.policies._silence import (
    Silence,
    left_alone,
    node_without,
    reason,
    silent_and_new,
    without_a_loss,
)


@dataclass(slots=True)  # not frozen, which takes three times as long to make, and 10,000 are made in a pass
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
    *,
    silence: Silence | None = None,
    reserves: bool = False,
) -> Decisions:
    """Look at every node that is due; jobs are handed over in order of uid, so that no order of theirs matters.

    `silence`: which jobs the policy knows too little of; without it those that report no loss. `reserves`: it keeps
    promises, so that also under hard limits it is only handed what silent jobs leave.
    """
    now = snapshot.taken_at_seconds
    jobs_on = snapshot.jobs_by_node()
    changes: list[Resize] = []
    reasons: dict[str, str] = {}
    jobs_memory, nodes = dict(memory.jobs), {}
    for node in snapshot.nodes:
        jobs = sorted(jobs_on[node.name], key=_by_uid)
        silent, new = silent_and_new(jobs, jobs_memory, silence or without_a_loss(snapshot))
        heard = [job for job in jobs if job.uid not in silent] if silent else jobs
        told = {uid: reason(why) for uid, why in silent.items()}
        jobs_memory |= {uid: left_alone(jobs_memory[uid]) for uid in silent}
        last = memory.nodes.get(node.name)
        if last is not None and not new and not is_due(last, jobs, now):
            nodes[node.name] = last
            told |= {job.uid: _waiting(jobs_memory[job.uid], last, now) for job in heard}
        else:
            left = node_without(silent, jobs, jobs_memory, node, control, reserves=reserves)
            look = look_at(left, heard, last and replace(last, job_uids=last.job_uids - silent.keys() - new))
            nodes[node.name] = NodeMemory(frozenset(job.uid for job in jobs), now, look.interval_seconds)
            told |= {job.uid: look.verdicts[job.uid].reason for job in heard}
            jobs_memory |= {job.uid: _decided(jobs_memory[job.uid], look.verdicts[job.uid], now) for job in heard}
        changes += _changes(jobs, told, jobs_memory, node, control)
        reasons |= told
    return Decisions(policy, tuple(changes), reasons, MemoryState(jobs_memory, nodes), tuple(moves))


_by_uid = attrgetter("uid")


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
    jobs: Sequence[Job], reasons: Mapping[str, str], memory: Mapping[str, JobMemory], node: Node, control: CpuControl
) -> list[Resize]:
    """The resizes that are still to be done; a job without a limit has, or gets back, what it came with.

    A limit that was decided on for a job on a larger node, before it moved, is cut to this one.
    """
    wanted = [memory[job.uid].wanted_cores for job in jobs]
    limits = [None if cores is None else min(node.cpu_cores, cores) for cores in wanted]
    return resizes(jobs, limits, reasons, memory, node, control)
