"""Runs a policy's decision on each node that is due, and turns its limits into resizes.

`decide_by_node` calls the policy's function for each due node, with the jobs that report, and takes limit, class and
reason of each job from it. Between two evaluations of a node it requests again what was decided and is not yet done.
Silent jobs (`silence.py`) keep their original CPU and are left out; the node is as large as what they leave.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from slopewise.allocation import allotment_texts, resizes, targets_millicores
from slopewise.errors import PolicyError
from slopewise.estimators.growth import EARLY_RATIO
from slopewise.model import (
    ClusterSnapshot,
    CpuControl,
    Decisions,
    Ends,
    Job,
    JobMemory,
    MemoryState,
    Move,
    Node,
    NodeMemory,
    Resize,
    Unmet,
)
from slopewise.model.learning import meaning_of
from slopewise.policies.shared.silence import JobsOfNode, Silence, is_new, reason, without_a_loss, without_decision
from slopewise.text import duration


class Verdict(msgspec.Struct, gc=False):
    """The decision on one job. `limit_cores=None`: it keeps its former limit, or is unchanged."""

    limit_cores: float | None
    job_class: str
    reason: str
    marks: frozenset[str] = frozenset()
    unmet: bool = False
    """The node cannot keep the job's objective; `PolicyMemory.unmet` counts the evaluations in a row."""
    ends: Ends | None = None
    """When it is expected to end."""
    state: str | None = None
    """What the policy keeps of it (`PolicyMemory.state`); None: what it kept before."""
    chance: float | None = None
    """Of a trial, to be the best of its study."""


@dataclass(frozen=True, slots=True)
class NodeDecision:
    """The decision on one node: a verdict for each of its jobs by uid, and seconds until the next evaluation."""

    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    interval_seconds: float = 60.0


DecideNode = Callable[[Node, Sequence[Job], NodeMemory | None], NodeDecision]


def is_due(last: NodeMemory | None, jobs: Sequence[Job], now_seconds: float) -> bool:
    """True when the node was never evaluated, its set of jobs changed, or its interval is over."""
    if last is None or {job.uid for job in jobs} != last.job_uids:
        return True
    # A tick may come a little early, as with growth's own intervals.
    return now_seconds >= last.evaluated_at_seconds + EARLY_RATIO * last.interval_seconds


def decide_by_node(
    policy: str,
    snapshot: ClusterSnapshot,
    memory: MemoryState,
    control: CpuControl,
    decide_node: DecideNode,
    moves: Sequence[Move] = (),
    *,
    silence: Silence | None = None,
    reserves: bool = False,
    longest_seconds: float = math.inf,
) -> Decisions:
    """Decide on every node that is due; jobs are passed in order of uid, so that their order does not matter.

    `silence`: which jobs count as silent; default: those that report no loss. `reserves`: the policy guarantees CPU, so
    that also under hard limits the node is only what silent jobs leave. `longest_seconds`: between two evaluations of
    this policy; what the one before it, or a longer interval of its own, has left of a node's interval is cut to it.
    """
    now = snapshot.taken_at_seconds
    jobs_on = snapshot.jobs_by_node()
    changes: list[Resize] = []
    reasons: dict[str, str] = {}
    jobs_memory, nodes = dict(memory.jobs), {}
    for node in snapshot.nodes:
        here = JobsOfNode.of(jobs_on[node.name], jobs_memory, silence or without_a_loss(snapshot))
        jobs, silent, reporting = here.everyone, here.silent, here.reporting
        new = {job.uid for job in reporting if is_new(jobs_memory[job.uid])}
        node_reasons = {uid: reason(why) for uid, why in silent.items()}
        jobs_memory |= {uid: without_decision(jobs_memory[uid]) for uid in silent}
        last = memory.nodes.get(node.name)
        if last is not None and last.interval_seconds > longest_seconds:
            last = replace(last, interval_seconds=longest_seconds)
        if last is not None and not new and not is_due(last, jobs, now):
            nodes[node.name] = last
            node_reasons |= {job.uid: _waiting(jobs_memory[job.uid], last, now) for job in reporting}
        else:
            left = here.left_on(node, jobs_memory, control, reserves=reserves)
            decision = decide_node(
                left, reporting, last and replace(last, job_uids=last.job_uids - silent.keys() - new)
            )
            if without := [job.uid for job in reporting if job.uid not in decision.verdicts]:
                raise PolicyError(f"no verdict for {without[0]} on {node.name}; give one for each job of `decide_node`")
            nodes[node.name] = NodeMemory(frozenset(job.uid for job in jobs), now, decision.interval_seconds)
            node_reasons |= {job.uid: decision.verdicts[job.uid].reason for job in reporting}
            jobs_memory |= {
                job.uid: _decided(jobs_memory[job.uid], decision.verdicts[job.uid], nodes[node.name], node.name)
                for job in reporting
            }
        changes += _changes(jobs, node_reasons, jobs_memory, node, control)
        reasons |= node_reasons
    return Decisions(policy, tuple(changes), reasons, MemoryState(jobs_memory, nodes), tuple(moves))


def _waiting(known: JobMemory, last: NodeMemory, now_seconds: float) -> str:
    left = duration(max(0.0, last.requeue_at_seconds - now_seconds))
    if known.decided.job_class is None:
        return f"its CPU is first decided in {left}"
    return f"{meaning_of(known.decided.job_class)}: its CPU is decided again in {left}"


def _decided(known: JobMemory, verdict: Verdict, evaluation: NodeMemory, node: str) -> JobMemory:
    before = known.decided
    return known.with_decision(
        verdict.job_class,
        before.wanted_cores if verdict.limit_cores is None else verdict.limit_cores,
        evaluation.evaluated_at_seconds,
        marks=before.marks | verdict.marks if verdict.marks else before.marks,
        unmet=_counted(before.unmet, evaluation, node) if verdict.unmet else None,
        state=before.state if verdict.state is None else verdict.state,
        ends=verdict.ends,
        chance=verdict.chance,
    )


def _counted(before: Unmet | None, evaluation: NodeMemory, node: str) -> Unmet:
    """One evaluation more, unless the last one that counted was less than an interval ago.

    Several arrivals trigger as many evaluations within seconds.
    """
    now = evaluation.evaluated_at_seconds
    if before is None or before.node != node:
        return Unmet(node, 1, now)
    if now - before.at_seconds < EARLY_RATIO * evaluation.interval_seconds:
        return before
    return Unmet(node, before.evaluations + 1, now)


def _changes(
    jobs: Sequence[Job], reasons: dict[str, str], memory: Mapping[str, JobMemory], node: Node, control: CpuControl
) -> list[Resize]:
    """The resizes that are not yet done; adds the allotment to `reasons`.

    A job without a limit keeps its original, or is restored to it. A limit from a larger node is cut to this one.
    """
    wanted = [memory[job.uid].decided.wanted_cores for job in jobs]
    limits = [None if cores is None else min(node.cpu_cores, cores) for cores in wanted]
    targets = targets_millicores(jobs, limits, memory, node, control)
    for job, given in zip(jobs, allotment_texts(limits, targets, node, control), strict=True):
        if given:
            reasons[job.uid] = f"{reasons[job.uid]}, {given}"
    return resizes(jobs, limits, targets, reasons, node, control)
