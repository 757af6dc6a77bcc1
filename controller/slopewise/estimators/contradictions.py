"""Finds promises that contradict each other, or what was measured: sentences for the owner. Pure.

`adapters/kube/workloads/annotations.py` and `config/jobs_file.py` refuse what can be seen in one value alone. What
takes two of them, or a measurement (the direction of the metric, the first evaluation, the planned steps), is found
here in every pass, and reported once: in the log, as an event, and in the condition `Warned`. Nothing is changed by it.
"""

from __future__ import annotations

from collections.abc import Iterator

from slopewise.model import NO_OBJECTIVES, Evaluation, Job, JobMemory, Objectives, reaches


def warnings_of(job: Job, known: JobMemory | None) -> tuple[str, ...]:
    """What was observed of a job that its owner should know, and the contradictions in what its owner states."""
    if job.objectives is NO_OBJECTIVES or job.objectives == NO_OBJECTIVES or job.state.ended:
        return job.warnings
    return (*job.warnings, *contradictions(job, known))


def contradictions(job: Job, known: JobMemory | None) -> Iterator[str]:
    """One sentence for each contradiction, with both figures; the same in every pass, so that each is reported once."""
    objectives = job.objectives
    if objectives.deliverable_level is not None and objectives.target_level is None:
        yield (
            f"its deliverable loss {objectives.deliverable_level:g} has no target loss beside it, so it is never done; "
            "state a target loss, too"
        )
    if job.evaluation is not None:
        yield from _on_the_wrong_side(objectives, job.evaluation, known)
    yield from _too_slow_for_its_deadline(job, known)


def _on_the_wrong_side(objectives: Objectives, evaluation: Evaluation, known: JobMemory | None) -> Iterator[str]:
    deliverable, target = objectives.deliverable_level, objectives.target_level
    better = "higher" if evaluation.objective == "max" else "lower"
    if (
        deliverable is not None
        and target is not None
        and deliverable != target
        and reaches(deliverable, target, evaluation.objective)
    ):
        yield (
            f"its deliverable loss {deliverable:g} is harder to reach than its target loss {target:g} "
            f"({better} is better); they are taken the other way round"
        )
    first = None if known is None else known.first_level
    stated = target if target is not None else deliverable
    if first is not None and stated is not None and reaches(first, stated, evaluation.objective):
        # Without the evaluation itself, which is corrected while its first levels are few: one warning, not several.
        yield (
            f"its first evaluation reached its target {stated:g} already ({better} is better); "
            "is the target on the right side?"
        )


def _too_slow_for_its_deadline(job: Job, known: JobMemory | None) -> Iterator[str]:
    """A training that is exactly as fast as its objective asks, and late. A moved job has fewer steps left."""
    asked, deadline_at = job.objectives.qoe_seconds, job.objectives.deadline_at_seconds
    if asked is None or deadline_at is None or not job.steps_planned or job.responses is not None:
        return
    given, takes = deadline_at - job.started_at_seconds, asked * job.steps_planned
    if (known is not None and known.moves) or given <= 0 or takes <= given:
        return
    yield (
        f"its objective and its deadline contradict each other: {job.steps_planned:g} planned steps of {asked:g} s "
        f"take {takes:.4g} s, and the deadline is {given:.4g} s after its start; an objective of "
        f"{given / job.steps_planned:.3g} s would meet both"
    )
