"""Levels that are no numbers, which JSON cannot hold: taken out of a snapshot, and put back."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from slopewise.decision_record.lines import NotFinite
from slopewise.model import ClusterSnapshot, Job


def without_nan(snapshot: ClusterSnapshot) -> tuple[ClusterSnapshot, tuple[NotFinite, ...]]:
    """The snapshot with 0 for levels that are not finite, and which those were."""
    found = {job.uid: marks for job in snapshot.jobs if (marks := tuple(_of(job)))}
    if not found:
        return snapshot, ()
    zeros = {uid: [NotFinite(uid, "0", mark.point) for mark in marks] for uid, marks in found.items()}
    return _with_levels(snapshot, zeros), tuple(mark for marks in found.values() for mark in marks)


def with_nan(snapshot: ClusterSnapshot, not_finite: Sequence[NotFinite]) -> ClusterSnapshot:
    """The snapshot as it was."""
    if not not_finite:
        return snapshot
    by_job: defaultdict[str, list[NotFinite]] = defaultdict(list)
    for mark in not_finite:
        by_job[mark.job].append(mark)
    return _with_levels(snapshot, by_job)


def _of(job: Job) -> Iterator[NotFinite]:
    if job.evaluation is not None and not math.isfinite(job.evaluation.level):
        yield NotFinite(job.uid, str(job.evaluation.level))
    for index, point in enumerate(job.points):
        if not math.isfinite(point.level):
            yield NotFinite(job.uid, str(point.level), index)


def _with_levels(snapshot: ClusterSnapshot, levels: dict[str, list[NotFinite]]) -> ClusterSnapshot:
    return replace(snapshot, jobs=tuple(_with_level(job, levels.get(job.uid, ())) for job in snapshot.jobs))


def _with_level(job: Job, levels: Sequence[NotFinite]) -> Job:
    evaluation, points = job.evaluation, list(job.points)
    for mark in levels:
        level = float(mark.level)
        if mark.point is not None:
            points[mark.point] = points[mark.point]._replace(level=level)
        elif evaluation is not None:
            evaluation = replace(evaluation, level=level)
    return replace(job, evaluation=evaluation, points=tuple(points)) if levels else job
