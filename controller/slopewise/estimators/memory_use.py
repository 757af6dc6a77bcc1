"""Follows the working set of each job: its peak since the last checkpoint, and its integral for averages.

A training uses most memory at the same places of its loop (a validation, a checkpoint), so the peak of a whole
checkpoint interval is what it needs. `growth.measure` calls `follow` in each pass.

Worked example: samples of 100, 300 and 200 MiB, a checkpoint, 150 MiB: the peak is 150 MiB, the previous one 300 MiB,
and 300 MiB counts until the next checkpoint.
"""

from __future__ import annotations

from slopewise.model import Anchor, Job, JobMemory, MemoryUse, Usage


def follow(job: Job, known: JobMemory) -> JobMemory:
    """The job's memory with the newest sample of its working set; unchanged without a new sample."""
    usage, use = job.usage, known.memory_use
    if usage is None or usage.memory_bytes is None:
        return known
    if use is not None and usage.sampled_at_seconds <= use.sampled_at_seconds:
        return known
    saved_at = job.checkpoint.saved_at_seconds if job.checkpoint is not None else None
    if use is None:
        first = MemoryUse(
            usage.sampled_at_seconds, usage.memory_bytes, usage.memory_bytes, checkpoint_at_seconds=saved_at
        )
        return known.altered(memory_use=first)
    return known.altered(memory_use=_next(use, usage.sampled_at_seconds, usage.memory_bytes, saved_at))


def _next(use: MemoryUse, at_seconds: float, working_set_bytes: float, saved_at: float | None) -> MemoryUse:
    """With one more sample. The integral is the trapezium between two samples."""
    saved = saved_at is not None and saved_at != use.checkpoint_at_seconds
    average_bytes = (use.working_set_bytes + working_set_bytes) / 2
    return MemoryUse(
        sampled_at_seconds=at_seconds,
        working_set_bytes=working_set_bytes,
        peak_bytes=working_set_bytes if saved else max(use.peak_bytes, working_set_bytes),
        previous_peak_bytes=use.peak_bytes if saved else use.previous_peak_bytes,
        checkpoint_at_seconds=saved_at if saved else use.checkpoint_at_seconds,
        samples=use.samples + 1,
        byte_seconds_total=use.byte_seconds_total + average_bytes * (at_seconds - use.sampled_at_seconds),
    )


def average_bytes(anchor: Anchor, now: Usage, use: MemoryUse | None) -> float | None:
    """The average working set since the anchor, in bytes; the newest sample where it is not known, None without one.

    Worked example: 100 MiB at the anchor and 300 MiB 20 s later are 4000 MiB·s, so 200 MiB on average.
    """
    if use is None or anchor.memory_byte_seconds is None or anchor.usage is None:
        return now.memory_bytes
    seconds = use.sampled_at_seconds - anchor.usage.sampled_at_seconds
    return (use.byte_seconds_total - anchor.memory_byte_seconds) / seconds if seconds > 0 else now.memory_bytes
