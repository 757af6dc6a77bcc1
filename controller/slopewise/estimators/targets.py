"""Targets: which of the evaluations that a job's owner asks for it has reached, counted once a growth measurement.

`count` runs between `growth.measure` and `decide`, under every policy. TRADL decides by `ObjectiveMemory.targets`.

A target counts as reached after `target_hits` measurements in a row that reach it, and as lost after as many that
miss it (a reconstruction: of TRADL, Source: thesis chapter 2, only an account is at hand). Targets are passed one after
another. A lone final target is both of them, passed at once; a lone deliverable one never releases. An evaluation that
is not known now (young, stale, diverged, an outlier) closes no measurement, and counts for nothing.

Worked example, three hits: levels 0.3, 0.3, 0.5, 0.3, 0.3, 0.3 reach the target 0.4 at the sixth.
"""

from __future__ import annotations

from collections.abc import Sequence

from slopewise.model import Evaluation, Job, JobMemory, MemoryState, TargetHits

UNCOUNTED = TargetHits()
"""Of a job whose targets no measurement has been counted for yet."""


def count(jobs: Sequence[Job], measured: MemoryState, before: MemoryState, target_hits: int) -> MemoryState:
    """The memory with the targets of all jobs counted; `before` is the memory of the last pass.

    Worked example: a pass that measured no growth of a job leaves its count as it is.
    """
    changed = {}
    for job in jobs:
        known = measured.jobs[job.uid]
        targets = _counted(job, known, before.jobs.get(job.uid), target_hits)
        if targets != known.objectives.targets:
            changed[job.uid] = known.altered(objectives=known.objectives.altered(targets=targets))
    return measured.with_jobs(changed)


def _counted(job: Job, known: JobMemory, before: JobMemory | None, target_hits: int) -> TargetHits | None:
    objectives = job.objectives
    if objectives.deliverable_level is None and objectives.target_level is None:
        return None
    hits, evaluation = known.objectives.targets or UNCOUNTED, job.evaluation
    is_new = known.growth is not None and (before is None or known.growth != before.growth)
    if evaluation is None or not is_new:
        return hits
    return after_measurement(hits, evaluation, levels(job), target_hits)


def after_measurement(
    hits: TargetHits, evaluation: Evaluation, stated: Sequence[float], target_hits: int
) -> TargetHits:
    """The count after one more measurement; `stated` are the targets in the order in which they are passed."""
    reached = reached_by(evaluation, stated)
    before = min(hits.reached, len(stated))
    step = (reached > before) - (reached < before)
    streak = hits.streak + step if step * hits.streak > 0 else step
    if abs(streak) < target_hits:
        return TargetHits(streak, before)
    between_equals = before + step == 1 and len(stated) == 2 and stated[0] == stated[1]
    return TargetHits(0, reached if between_equals else before + step)


def levels(job: Job) -> tuple[float, ...]:
    """The targets in the order in which they are passed, also where they were stated the other way round."""
    objectives = job.objectives
    final = objectives.target_level
    first = final if objectives.deliverable_level is None else objectives.deliverable_level
    falls = job.evaluation is None or job.evaluation.objective == "min"
    return tuple(sorted((level for level in (first, final) if level is not None), reverse=falls))


def reached_by(evaluation: Evaluation, stated: Sequence[float]) -> int:
    """How many targets this one evaluation reaches."""
    return sum(evaluation.reaches(level) for level in stated)


def distance(evaluation: Evaluation, level: float) -> float:
    """How much worse than `level` the evaluation is, in the metric's own unit; 0 or less: it is reached."""
    return (level - evaluation.level) if evaluation.objective == "max" else (evaluation.level - level)
