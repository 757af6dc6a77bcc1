"""What a change of CPU did to a job with accelerators: steps that became slower, and a raise that brought too little.

A cut counts as far as it leads below the CPU that the job came with, since what was lent to it may be taken back.
`rollback.py` takes such a change back, and what it has shown is remembered (`GpuMemory.learned`): the CPU that it
keeps from then on, or that it can use at most.

Worked examples: steps of 0.50 s before a cut and of 0.53 s after it, which now wait, are 6 % slower. A raise from 3 to
6 cores should have brought steps of 0.9 s down to 0.45 s, and brought 0.8 s, which is less than half of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from msgspec import structs

from slopewise.allocation import original_millicores
from slopewise.estimators.gpu_need import GPU_USE_SECONDS, gpu_need
from slopewise.estimators.gpu_need import learned as not_forgotten
from slopewise.estimators.pace import SHORT_RATIO
from slopewise.estimators.step_cost import INTERVALS
from slopewise.model import Change, Job, JobMemory, LearnedCores, Node, Pace

SLOWER_RATIO = 0.03
"""More than that is a loss. What steps differ by without a change is a percent or two over an interval."""

LEAST_EFFECT = 0.5
"""Of what a raise was to bring; less says that CPU is not what the job lacks."""

SMALL_GAIN_RATIO = 0.05
"""A raise that was to bring less is not judged: noise is as large."""

JUDGED_AFTER = 3
"""Intervals after a change that count as its effect: a queue of batches hides a cut for one of them."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Why a change is taken back, and what it has shown."""

    reason: str
    learned: LearnedCores
    back_to: int
    """Millicores: those before the change; of a cut not more than it came with, since others may have the rest."""


@dataclass(frozen=True, slots=True)
class _Steps:
    """Steps of several intervals in a row."""

    seconds: float
    """Each."""
    count: float


def effect(job: Job, known: JobMemory, change: Change, node: Node) -> Effect | None:
    """What speaks against the last change of a job; None: nothing, or it is too early or too late to say."""
    after = [pace for earlier, pace in pairwise(known.paces) if earlier.at_seconds >= change.at_seconds]
    before = [pace for pace in known.paces if pace.at_seconds <= change.at_seconds][-INTERVALS:]
    if after and after[-1].wait_ratio is None:
        after = [pace for pace in after if pace.at_seconds >= change.at_seconds + GPU_USE_SECONDS]
        before = before or [pace for pace in (change.pace,) if pace is not None]
    if not before or not 1 <= len(after) <= JUDGED_AFTER:
        return None
    learned, at_seconds, back_to = not_forgotten(known), after[-1].at_seconds, change.from_millicores
    if change.to_millicores < change.from_millicores:
        original = original_millicores(job, {job.uid: known}, node, change.control)
        if change.to_millicores >= original:
            return None
        back_to = min(back_to, original)
        reason = _slower(before, after, _since(known, after))
        kept = change.from_millicores / 1000 if change.control == "limits" else node.cpu_cores
        learned = structs.replace(learned, at_seconds=at_seconds, least=kept)
    else:
        reason = _too_little(job, known, change, before, after)
        waits = after[-1].wait_ratio is not None
        used = median(pace.cores or 0.0 for pace in before) if waits else change.from_millicores / 1000
        learned = structs.replace(learned, at_seconds=at_seconds, most=used)
    if reason is None:
        return None
    why = f"{reason} after its CPU went from {change.from_millicores}m to {change.to_millicores}m"
    return Effect(why, learned, back_to)


def _since(known: JobMemory, after: Sequence[Pace]) -> _Steps:
    """The steps of all intervals after the change: they are counted whole, once over all and not once in each."""
    began_at = known.paces[-len(after) - 1].at_seconds
    lengths = (pace.at_seconds - earlier.at_seconds for earlier, pace in pairwise(known.paces[-len(after) - 1 :]))
    count = sum(length / pace.seconds for length, pace in zip(lengths, after, strict=True))
    return _Steps((after[-1].at_seconds - began_at) / count, count)


def _slower(before: Sequence[Pace], after: Sequence[Pace], now: _Steps) -> str | None:
    """Steps that became slower for want of CPU, as a message; None: they did not."""
    seconds = median(pace.seconds for pace in before)
    if now.seconds <= seconds * (1 + SLOWER_RATIO + 1 / now.count):
        return None
    waits_before, waits_now = (_waited_seconds(paces) for paces in (before, after))
    shortages = [pace.short_ratio for pace in after if pace.short_ratio is not None]
    signs = [max(shortages) >= SHORT_RATIO] if shortages else []
    if waits_before is not None and waits_now is not None:
        signs.append(waits_now - waits_before >= (now.seconds - seconds) / 2)
    if signs and not any(signs):
        return None
    return f"steps take {now.seconds:.3g} s, {now.seconds / seconds - 1:.0%} more than before,"


def _waited_seconds(paces: Sequence[Pace]) -> float | None:
    """Of a step; None: not known."""
    waits = [pace.wait_ratio * pace.seconds for pace in paces if pace.wait_ratio is not None]
    return median(waits) if waits else None


def _too_little(
    job: Job, known: JobMemory, change: Change, before: Sequence[Pace], after: Sequence[Pace]
) -> str | None:
    """A raise of a hard limit that brought less than half of what it was to bring; shares are taken where they lie."""
    if change.control != "limits" or len(after) < JUDGED_AFTER - 1:
        return None
    uses_before, uses = ([p.gpu_use for p in some if p.gpu_use is not None] for some in (before, after))
    if after[-1].wait_ratio is None and uses_before and uses:
        expected_use = min(1.0, median(uses_before) * change.to_millicores / change.from_millicores)
        if max(uses) - median(uses_before) >= LEAST_EFFECT * (expected_use - median(uses_before)):
            return None
        return f"its GPU is used {max(uses):.0%} of the time instead of {expected_use:.0%}"
    need = gpu_need(job, known.altered(paces=tuple(before), gpu=known.gpu.altered(learned=None)))
    expected, seconds = need.seconds_at(change.to_millicores / 1000), median(pace.seconds for pace in before)
    has = min(pace.seconds for pace in after)
    if expected is None or seconds - expected < SMALL_GAIN_RATIO * seconds:
        return None
    if seconds - has >= LEAST_EFFECT * (seconds - expected):
        return None
    return f"steps take {has:.3g} s instead of {expected:.3g} s, so it lacks loader workers and not CPU,"
