"""All that a pass measures before a policy decides, from its snapshot and the memory of earlier passes. Pure."""

from __future__ import annotations

from slopewise.estimators import growth, pace, promises, raw_points, targets, virtual_shares, workload_classes
from slopewise.model import ClusterSnapshot, MemoryState


def measure(snapshot: ClusterSnapshot, remembered: MemoryState, settings: growth.Measuring) -> MemoryState:
    """The memory with each job's growth, pace, targets, promises and raw points, and the records of classes."""
    with_growth = growth.measure(snapshot, remembered, settings)
    with_pace = pace.measure(snapshot, with_growth, settings.interval_seconds)
    with_pace = pace.with_arrivals(snapshot, with_pace, remembered)
    with_hits = targets.count(snapshot.jobs, with_pace, remembered, settings.target_hits)
    with_promises = promises.confirm(snapshot, with_hits, settings.interval_seconds)
    with_points = raw_points.measure(snapshot, with_promises, from_evaluations=settings.reads_points)
    with_departed = virtual_shares.with_departed(snapshot, with_points, remembered)
    return workload_classes.measure(snapshot, with_departed, remembered)
