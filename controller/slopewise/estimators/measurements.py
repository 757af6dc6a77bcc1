"""All that a pass measures before a policy decides, from its snapshot and the memory of earlier passes. Pure."""

from __future__ import annotations

from dataclasses import replace

from slopewise.estimators import gpu_need, growth, objectives, pace, raw_points, step_cost, targets, workload_classes
from slopewise.model import DEPARTED_KEPT, ClusterSnapshot, Departed, MemoryState


def measure(snapshot: ClusterSnapshot, remembered: MemoryState, settings: growth.Measuring) -> MemoryState:
    """The memory with each job's growth, pace, step cost, targets, objectives, raw points, and class records."""
    with_growth = growth.measure(snapshot, remembered, settings)
    with_pace = pace.measure(snapshot, with_growth, settings.interval_seconds)
    with_pace = pace.with_arrivals(snapshot, with_pace, remembered)
    with_cost = step_cost.measure(snapshot, with_pace, remembered)
    with_cost = gpu_need.measure(snapshot, with_cost, remembered)
    with_hits = targets.count(snapshot.jobs, with_cost, remembered, settings.target_hits)
    with_statuses = objectives.confirm(snapshot, with_hits, settings.interval_seconds)
    with_points = raw_points.measure(snapshot, with_statuses, from_evaluations=settings.reads_points)
    with_departed = _with_departed(snapshot, with_points, remembered)
    return workload_classes.measure(snapshot, with_departed, remembered)


def _with_departed(snapshot: ClusterSnapshot, memory: MemoryState, remembered: MemoryState) -> MemoryState:
    """The memory with what the policy keeps of jobs that have left, until it drops it, or they come back.

    One whose state the policy drops (empty) is kept as long as it is remembered, and so does not leave once more.
    """
    here = {job.uid for job in snapshot.jobs}
    states = {each.job_uid: each.state for each in remembered.departed}
    left = {
        uid: known.decided.state
        for uid, known in sorted(remembered.jobs.items())
        if known.decided.state and uid not in here and uid not in memory.jobs and uid not in states
    }
    back = {uid: state for uid, state in states.items() if uid in memory.jobs and not memory.jobs[uid].decided.state}
    if not (left or states):
        return memory
    jobs = {**memory.jobs, **{uid: memory.jobs[uid].with_decided(state=state) for uid, state in back.items()}}
    gone = {uid: state for uid, state in states.items() if uid not in memory.jobs and (state or uid in remembered.jobs)}
    gone |= left
    departed = [Departed(uid, state) for uid, state in gone.items()]
    return replace(memory, jobs=jobs, departed=tuple(departed[-DEPARTED_KEPT:]))
