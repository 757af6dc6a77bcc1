"""Stores the CPU and memory that a job had before its first resize, and its measurements before the last one.

Each original is a write, so `in_turn` bounds how many workloads a pass resizes for the first time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from slopewise.model import (
    Change,
    ClusterSnapshot,
    ContainerHealth,
    Decision,
    Job,
    JobMemory,
    JobUid,
    MemoryState,
    Outcome,
    Resize,
    ResizeMemory,
)

R = TypeVar("R", Resize, ResizeMemory)


def in_turn(resizes: Sequence[R], memory: MemoryState, most: int | None) -> tuple[list[R], list[Outcome[R]]]:
    """Resizes that may be made now, and deferred outcomes of the rest: `most` workloads may have their first one.

    Decreases come before increases, so that a node is never overcommitted; otherwise the order stays.
    """
    ordered = sorted(resizes, key=attrgetter("raises"))
    if most is None:
        return ordered, []
    due: list[R] = []
    waiting: list[Outcome[R]] = []
    first: set[str] = set()
    reason = f"no more than {most} workloads are changed for the first time in one pass; its turn comes in a later one"
    for resize in ordered:
        known = memory.jobs.get(resize.job_uid)
        if known is None or known.original is None:
            workload = JobUid.of(resize.job_uid).workload
            if workload not in first and len(first) == most:
                waiting.append(Outcome(resize, "deferred", reason))
                continue
            first.add(workload)
        due.append(resize)
    return due, waiting


def remember_originals(
    memory: MemoryState, allowed: Sequence[Resize | ResizeMemory], snapshot: ClusterSnapshot
) -> MemoryState:
    """Memory with what each job had before its first change; a stored original is never overwritten.

    The first change of its memory stores its CPU too, so that `original` alone says that a job was changed.
    """
    jobs, changed = {job.uid: job for job in snapshot.jobs}, dict[str, JobMemory]()
    for resize in allowed:
        known = changed.get(resize.job_uid) or memory.jobs.get(resize.job_uid) or JobMemory()
        changed[resize.job_uid] = _with_originals(known, jobs[resize.job_uid], resize)
    return _update_jobs(memory, changed)


def _with_originals(known: JobMemory, job: Job, resize: Resize | ResizeMemory) -> JobMemory:
    if known.original is None:
        known = known.altered(original=job.allocation)
    if isinstance(resize, ResizeMemory) and known.original_memory is None:
        return known.altered(original_memory=job.memory)
    return known


def remember_changes(
    memory: MemoryState, outcomes: Iterable[Outcome[Decision]], snapshot: ClusterSnapshot
) -> MemoryState:
    """Memory with each applied change, for cooldowns, for rollbacks, and for the pause after one was taken back."""
    now_seconds, changed = snapshot.taken_at_seconds, dict[str, JobMemory]()
    container_health = {job.uid: job.container_health for job in snapshot.jobs}
    for change in (each.decision for each in outcomes if each.result == "applied"):
        known = changed.get(change.job_uid) or memory.jobs[change.job_uid]
        if isinstance(change, Resize):
            known = _with_change(known, change, container_health[change.job_uid], now_seconds)
        elif isinstance(change, ResizeMemory):
            known = known.altered(
                memory_resized_at_seconds=now_seconds,
                memory_refused_at_seconds=now_seconds if change.is_rollback else known.memory_refused_at_seconds,
                written_limit_bytes=change.to_bytes if change.bound == "limit" else known.written_limit_bytes,
            )
        changed[change.job_uid] = known
    return _update_jobs(memory, changed)


def _with_change(
    known: JobMemory, resize: Resize, container_health: ContainerHealth | None, now_seconds: float
) -> JobMemory:
    """The job's memory with the measurements before this resize, which the rollback compares with."""
    change = Change(
        now_seconds,
        resize.control,
        resize.from_millicores,
        resize.to_millicores,
        container_health,
        known.growth,
        known.previous_growth,
        known.paces[-1] if known.paces else None,
        is_rollback=resize.is_rollback,
        regression=known.change.regression if resize.is_rollback and known.change else None,
    )
    return known.altered(last_resized_at_seconds=now_seconds, change=change)


def _update_jobs(memory: MemoryState, changed: Mapping[str, JobMemory]) -> MemoryState:
    return replace(memory, jobs={**memory.jobs, **changed}) if changed else memory
