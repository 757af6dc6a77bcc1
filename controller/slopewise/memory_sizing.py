"""Decides memory requests and limits: what jobs that need little reserve, and limits before they kill. Pure.

TRADL (Section 4) releases the resources of jobs that have reached their target, and FlowCon (Algorithm 2) moves jobs to
its completing list; both name memory beside CPU. The figures here are a reconstruction:

- The request of such a job goes down to 1.2 × its peak since the last checkpoint, never above its original. That frees
  room for other pods, and cannot kill: a kernel kills by limits. It goes up again when the job leaves that class, or
  uses more than that.
- With `Limits` the limit of any job goes up by a quarter once its working set is at 0.9 of it. It goes down only to its
  original, when `Limits` no longer holds.

Worked example: request 1 GiB, peak 300 MiB, class CL: 360 MiB. The peak then becomes 500 MiB: 600 MiB at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from slopewise.model import (
    ClusterSnapshot,
    Job,
    JobMemory,
    MemoryAllocation,
    MemoryBound,
    MemoryControl,
    MemoryState,
    MemoryUse,
    ResizeMemory,
)
from slopewise.model.learning import RELEASES_MEMORY, meaning_of
from slopewise.text import mebibytes

HEADROOM = 1.2
"""What a lowered request keeps, as a factor of the peak."""

NEAR_LIMIT = 0.9
"""From this part of a limit on, a working set is near it."""

LIMIT_STEP = 1.25
"""A limit is raised by a quarter at a time: a leak reaches its end in a few steps, each with an event."""

APART_BYTES = 1
"""A request is one byte less than its original where that would make the pod Guaranteed."""

MEBIBYTE = 2**20

_UNKNOWN = JobMemory()


def resizes(snapshot: ClusterSnapshot, memory: MemoryState, control: MemoryControl) -> Iterator[ResizeMemory]:
    """At most one change for each running job, before guards. With `Ignore` only what was changed goes back."""
    for job in snapshot.jobs:
        known = memory.jobs.get(job.uid, _UNKNOWN)
        if job.memory is None or job.state.ended or (control == "Ignore" and known.original_memory is None):
            continue
        limit, request = _limit(job, job.memory, known, control), _request(job, job.memory, known, control)
        # A raise of the limit first. Its restore last, because it may be withheld for as long as the job runs.
        first, second = (limit, request) if control == "Limits" else (request, limit)
        found = _taken_back(job, job.memory) or first or second
        if found is not None:
            yield found


def limit_within(use: MemoryUse | None, limit_bytes: int | None) -> bool:
    """Whether a limit may be restored: the recalled peak is not near it. False for an unknown use."""
    return limit_bytes is None or (use is not None and use.recalled_peak_bytes < NEAR_LIMIT * limit_bytes)


def restorable(known: JobMemory) -> tuple[MemoryAllocation | None, str]:
    """The memory to restore, and a message about a limit that stays; None: its memory was never changed.

    A limit of None stays as it is: there was none, or the job uses too much for its original one.
    """
    original, written = known.original_memory, known.memory_resizes.written_limit_bytes
    if original is None or original.limit_bytes is None or written in (None, original.limit_bytes):
        return original, ""
    if limit_within(known.memory_use, original.limit_bytes):
        return original, ""
    peak = "an unknown amount" if known.memory_use is None else mebibytes(known.memory_use.recalled_peak_bytes)
    size = mebibytes(original.limit_bytes)
    note = f"a memory limit that was raised stays: the job uses {peak}, too near its original {size}"
    return original.altered("limit", None), note


def _taken_back(job: Job, has: MemoryAllocation) -> ResizeMemory | None:
    """A change that its node does not carry out: while it waits, the node carries out no other resize of the pod."""
    pending = job.pending
    actual = None if pending is None else pending.actual_memory
    if pending is None or actual is None:
        return None
    bounds: tuple[MemoryBound, ...] = ("request", "limit")
    for bound in bounds:
        before, now = actual.of(bound), has.of(bound)
        if before is not None and now is not None and before != now:
            reason = f"takes back a {bound} of {mebibytes(now)}, which is {pending.result}: {pending.detail}"
            return ResizeMemory(job.uid, job.node, bound, now, before, reason, is_rollback=True)
    return None


def _limit(job: Job, has: MemoryAllocation, known: JobMemory, control: MemoryControl) -> ResizeMemory | None:
    limit, use = has.limit_bytes, known.memory_use
    original = (known.original_memory or has).limit_bytes
    if limit is None or original is None:
        return None
    if control == "Limits":
        if use is None or use.working_set_bytes < NEAR_LIMIT * limit:
            return None
        ratio = use.working_set_bytes / limit
        reason = f"its working set of {mebibytes(use.working_set_bytes)} is {ratio:.0%} of its limit, which kills it"
        return ResizeMemory(job.uid, job.node, "limit", limit, _rounded_up(LIMIT_STEP * limit), reason)
    if limit == original:
        return None
    reason = "its original limit: spec.resources.memory is not Limits any more"
    return ResizeMemory(job.uid, job.node, "limit", limit, original, reason)


def _request(job: Job, has: MemoryAllocation, known: JobMemory, control: MemoryControl) -> ResizeMemory | None:
    request, use = has.request_bytes, known.memory_use
    original = (known.original_memory or has).request_bytes
    if request is None or original is None:
        return None
    job_class = known.decided.job_class or ""
    if control == "Ignore" or job_class not in RELEASES_MEMORY:
        if abs(request - original) <= APART_BYTES:
            return None
        why = "spec.resources.memory is Ignore" if control == "Ignore" else f"its class is {job_class or 'not known'}"
        return ResizeMemory(job.uid, job.node, "request", request, original, f"its original request: {why}")
    if use is None:
        return None
    wanted = min(original, _rounded_up(HEADROOM * use.recalled_peak_bytes))
    if abs(wanted - request) <= APART_BYTES:
        return None
    reason = f"{meaning_of(job_class)}: {HEADROOM:g} times its peak of {mebibytes(use.recalled_peak_bytes)}"
    return ResizeMemory(job.uid, job.node, "request", request, wanted, f"{reason}, originally {mebibytes(original)}")


def _rounded_up(size_bytes: float) -> int:
    """To whole mebibytes, one at least: figures that people read, and no change for a few bytes."""
    return max(1, math.ceil(size_bytes / MEBIBYTE)) * MEBIBYTE
