"""SpeCon: moves jobs that stopped learning to the least loaded node, so that those beside them get their CPU.

Source: SpeCon (arXiv 2010.11307) and chapters 4.2, 5.2 and 6.2 of the thesis, Algorithms 3, 4 and 5. One evaluation of
the whole cluster every interval (published: 30 s). It moves running jobs, resizes none, and leaves arriving ones to the
default scheduler. Where the print is silent or ambiguous, this is the reading chosen:

- Growth is the change of the evaluation per second times the interval, so that a late evaluation does not count for
  more. It is signed, as in Eq. 5.1, where Algorithm 3 prints its absolute value: a job that gets worse grows less than
  one that stands still, so that a job which only jitters converges too, and one that diverges does not go back to PC.
- A loss that stands still, growth 0 twice, slows down too: as printed, 0 is not below 0, and a job whose loss is
  exactly constant would progress for good. So does one that was not evaluated again for that long.
- A job that has never reported a loss, or none for long, stays where it is: it is load, but no growing job, and all can
  have converged without it.
- Lines 10 to 12 of Algorithm 3 repeat PC -> WC; the prose makes it WC -> CC. Growth of alpha itself counts as growing.
- A job changes its category only when it was measured since the evaluation before, and steps down only when there is an
  earlier growth to compare with. One whose growth is unknown (restarted, stale, diverged) stays where it is.
- All jobs are categorised before any request is weighed. Requests are handled longest converged first.
- A job is reallocated at most once, as the thesis says, which a move that was withheld or failed does not use up: the
  job may ask again at the next evaluation. One that may not be moved (or not now) asks for nothing, and is not marked.
- A node without the memory for a job, or that would not take it, is no candidate (ours).
- Algorithm 5 moves any job in CC that it has not moved before. Line 1 of it says "marked as migrated", the prose "as
  converged": with the former the example of 5.2.3 does nothing, because none of its jobs ever requests a move.
- Algorithm 5: bf is rounded up; a donor has at least two jobs more than the node that takes; a job is rebalanced at
  most once. As printed, each candidate takes one job an evaluation; a node that is short of more gets them at the next.
- "All converged" means that every running job is in CC. Being marked as migrated cannot be meant: the last jobs to
  converge have no growing job beside them, and never request.

Here are the categories (Algorithm 3) and the order of an evaluation; the moves are in `moves.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slopewise.estimators.growth import EARLY_RATIO, is_usable
from slopewise.model import ClusterSnapshot, Decisions, Job, JobMemory, MemoryState, NodeMemory
from slopewise.model.learning import meaning_of
from slopewise.policies import PolicyParameters, Setting, parameter
from slopewise.policies.shared.placement import blocked_reason_on
from slopewise.policies.shared.silence import silent_jobs, without_a_loss
from slopewise.policies.specon.moves import (
    CATEGORIES,
    CONVERGED,
    MIGRATED,
    PROGRESSING,
    WATCHING,
    Plan,
    plan_from,
    reallocate,
    rebalance,
    with_outcome,
)
from slopewise.text import duration

PURPOSE = "several nodes, and jobs that checkpoint: converged ones make room"
ACTIONS = ("migrate",)

_ONE_STEP_DOWN = {PROGRESSING: WATCHING, WATCHING: CONVERGED, CONVERGED: CONVERGED}


class Parameters(PolicyParameters):
    """SpeCon's parameters; its interval is the setting's."""

    alpha: float = parameter(
        0.01,
        gt=0,
        le=1,
        unit="ratio of the evaluation's range, per interval",
        source="thesis 6.2.2 (0.01 to 0.1)",
        description="growth below which a job slows down",
    )
    weight_progressing: float = parameter(
        2.0, gt=0, le=1000, unit="ratio", source="thesis 6.2.1", description="what a job in PC adds to its node's score"
    )
    weight_watching: float = parameter(
        1.5, gt=0, le=1000, unit="ratio", source="thesis 6.2.1", description="what a job in WC adds to its node's score"
    )
    weight_converged: float = parameter(
        1.0, gt=0, le=1000, unit="ratio", source="thesis 6.2.1", description="what a job in CC adds to its node's score"
    )
    require_all_converged: bool = parameter(
        True,
        unit="true or false",
        source="thesis 5.2.3 and 6.2.3",
        description="rebalance only when every running job is in CC",
    )


@dataclass(frozen=True, slots=True)
class _Watched:
    """What Algorithm 3 finds of one job."""

    category: str
    reason: str
    requests: bool = False
    """It was in CC before this evaluation, and still slows down."""


class Policy:
    """Algorithms 3 (categories), 4 (slow moves) and 5 (rebalance), in this order, at every evaluation."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._alpha = parameters.alpha
        self._weights = np.array(
            [parameters.weight_progressing, parameters.weight_watching, parameters.weight_converged]
        )
        self._require_all_converged = parameters.require_all_converged
        self._interval_seconds = setting.interval_seconds

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Decide on the whole cluster when the interval is over; events in between change nothing."""
        evaluations = [
            memory.nodes[node.name].evaluated_at_seconds for node in snapshot.nodes if node.name in memory.nodes
        ]
        evaluated_at = max(evaluations, default=-math.inf)
        jobs = sorted((job for job in snapshot.jobs if not job.state.ended), key=lambda job: job.uid)
        if snapshot.taken_at_seconds < evaluated_at + EARLY_RATIO * self._interval_seconds:
            return self._wait(snapshot, jobs, memory, evaluated_at)
        return self._decide_all(snapshot, jobs, memory, evaluated_at)

    def _decide_all(
        self, snapshot: ClusterSnapshot, jobs: Sequence[Job], memory: MemoryState, evaluated_at: float
    ) -> Decisions:
        now = snapshot.taken_at_seconds
        memory = replace(memory, jobs={uid: with_outcome(known) for uid, known in memory.jobs.items()})
        silent = silent_jobs(jobs, memory.jobs, without_a_loss(snapshot))
        watched = {job.uid: self._watch(job, memory.jobs[job.uid], snapshot, evaluated_at) for job in jobs}
        watched |= {uid: _unchanged(memory.jobs[uid], because) for uid, because in silent.items()}
        categories = {uid: seen.category for uid, seen in watched.items()}
        planned = plan_from(snapshot, memory, categories, silent.keys())
        self._answer_requests(planned, jobs, watched, memory)
        converged = all(category == CONVERGED for uid, category in categories.items() if uid not in silent)
        if not self._require_all_converged or converged:
            rebalance(planned, jobs, memory, categories, now)
        known = {
            uid: _remembered(memory.jobs[uid], seen.category, now, planned.marks.get(uid, frozenset()))
            for uid, seen in watched.items()
        }
        reasons = {uid: seen.reason for uid, seen in watched.items()} | planned.reasons
        return Decisions(
            "specon",
            (),
            reasons,
            MemoryState({**memory.jobs, **known}, self._evaluated(snapshot, now)),
            tuple(planned.moves),
        )

    def _wait(
        self, snapshot: ClusterSnapshot, jobs: Sequence[Job], memory: MemoryState, evaluated_at: float
    ) -> Decisions:
        """Between two evaluations a newcomer enters PC, and a node waits with the others.

        Such a node has just joined, or another policy, from before the user changed policies, has evaluated it at
        another time.
        """
        now = snapshot.taken_at_seconds
        left = max(0.0, evaluated_at + self._interval_seconds - now)
        reasons, known = {}, {}
        for job in jobs:
            category = _category(memory.jobs[job.uid])
            reasons[job.uid] = f"{meaning_of(category)}: whether it moves is decided again in {duration(left)}"
            known[job.uid] = _remembered(memory.jobs[job.uid], category, now)
        nodes = self._evaluated(snapshot, evaluated_at)
        return Decisions("specon", (), reasons, MemoryState({**memory.jobs, **known}, nodes))

    def _evaluated(self, snapshot: ClusterSnapshot, at_seconds: float) -> dict[str, NodeMemory]:
        """The memory of all nodes after a look at that time: they are always looked at together."""
        return {
            name: NodeMemory(frozenset(job.uid for job in jobs), at_seconds, self._interval_seconds)
            for name, jobs in snapshot.jobs_by_node().items()
        }

    def _watch(self, job: Job, known: JobMemory, snapshot: ClusterSnapshot, evaluated_at: float) -> _Watched:
        """Algorithm 3: the category of one job after this look, and whether it requests reallocation."""
        category = _category(known)
        means = meaning_of(category)
        if MIGRATED in known.decided.marks:
            return _Watched(category, f"{means}: whether it moves is settled, and it is watched no longer")
        if known.growth is None or not is_usable(job, snapshot):
            return _Watched(category, f"{means}: how fast it improves is not known now")
        if known.growth.at_seconds <= evaluated_at:
            return _Watched(category, f"{means}: not measured since that was last decided")
        growth = known.growth.change_per_second * self._interval_seconds
        improves = f"improves by {growth:.3g} per interval"
        if growth >= self._alpha:
            return _Watched(PROGRESSING, f"{meaning_of(PROGRESSING)}: {improves} (≥ alpha {self._alpha:g})")
        slow = f"{improves} (< alpha {self._alpha:g})"
        if known.previous_growth is None:
            return _Watched(category, f"{means}: {slow}, with no figure before it")
        before = known.previous_growth.change_per_second * self._interval_seconds
        if growth > before or growth == before > 0:
            return _Watched(category, f"{means}: {slow}, but no less than {before:.3g} before")
        listed = _ONE_STEP_DOWN[category]
        falls = "no more than before" if growth == before else f"less than {before:.3g} before"
        return _Watched(listed, f"{meaning_of(listed)}: {slow}, {falls}", requests=category == CONVERGED)

    def _answer_requests(
        self, planned: Plan, jobs: Sequence[Job], watched: Mapping[str, _Watched], memory: MemoryState
    ) -> None:
        """The requests of Algorithm 3, longest converged first; each sees what those before it have changed."""
        slow = [job for job in jobs if watched[job.uid].requests]
        for job in sorted(slow, key=lambda job: (memory.jobs[job.uid].decided.class_since_seconds or 0.0, job.uid)):
            because, growing = watched[job.uid].reason, planned.growing(job.node)
            if growing <= 1:
                planned.reasons[job.uid] = f"{because}; no move, of the jobs beside it {growing} grow"
            elif (stays := blocked_reason_on(job)) is not None:
                planned.reasons[job.uid] = f"{because}; no move, {stays}"
            else:
                reallocate(planned, job, memory.jobs[job.uid], self._weights, because)


def _unchanged(known: JobMemory, because: str) -> _Watched:
    category = _category(known)
    return _Watched(category, f"{meaning_of(category)}: {because}, unchanged")


def _category(known: JobMemory) -> str:
    """The job's category; PC for one that has none, or another policy's."""
    return known.decided.job_class if known.decided.job_class in CATEGORIES else PROGRESSING


def _remembered(known: JobMemory, category: str, now_seconds: float, marks: frozenset[str] = frozenset()) -> JobMemory:
    """The job's memory with its category, since when it is in it, and the marks that were set."""
    if known.decided.job_class == category and marks <= known.decided.marks:
        return known
    return known.with_decision(category, known.decided.wanted_cores, now_seconds, marks=known.decided.marks | marks)
