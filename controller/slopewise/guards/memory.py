"""Guards of memory: an ordered list of pure functions that let a change of a request or a limit through, or veto it.

A lowered request is held back for more reasons than a raised one: it is a favour to other pods, and a raise protects
the job. The room of a node is what its jobs neither request nor use. A change that is taken back
(`ResizeMemory.is_rollback`) passes only `ROLLBACK_GUARDS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from slopewise.estimators.growth import stale_after_seconds
from slopewise.estimators.pace import CPU_COUNT_AGE_SECONDS
from slopewise.guards.context import PassContext
from slopewise.guards.framework import Guard, Stage, routine
from slopewise.memory_sizing import limit_within
from slopewise.model import Bounds, ClusterSnapshot, Job, JobMemory, MemoryUse, Node, ResizeMemory, Veto
from slopewise.text import mebibytes

MIN_SAMPLES = 4
"""Samples of the working set before a request is lowered: a job that has just been seen has no peak yet."""

REFUSED_SECONDS = 60.0
"""How long a job's memory is not changed after its node has refused it: a request that waits takes room from others."""


@dataclass(frozen=True, slots=True)
class MemoryContext:
    """The inputs of a guard of one change of memory."""

    bounds: Bounds
    snapshot: ClusterSnapshot
    job: Job
    known: JobMemory
    node: Node
    room_bytes: float
    """What the jobs of the node neither request nor use, in bytes."""

    @property
    def use(self) -> MemoryUse | None:
        """The job's working set over time."""
        return self.known.memory_use

    def since_seconds(self, at_seconds: float) -> float:
        """From then until this pass."""
        return self.snapshot.taken_at_seconds - at_seconds


def memory_ineligible(context: MemoryContext, resize: ResizeMemory) -> ResizeMemory | Veto:
    """A job whose memory is not to be changed at all."""
    reason = context.job.memory_ineligible_reason
    return resize if reason is None else Veto(reason)


def memory_refused(context: MemoryContext, resize: ResizeMemory) -> ResizeMemory | Veto:
    """No change soon after the node did not carry one out."""
    refused_at = context.known.memory_resizes.refused_at_seconds
    if refused_at is None or context.since_seconds(refused_at) >= REFUSED_SECONDS:
        return resize
    since = context.since_seconds(refused_at)
    return Veto(f"its node did not carry out the last change {since:.0f} s ago, bound {REFUSED_SECONDS:.0f} s")


def memory_pending(context: MemoryContext, resize: ResizeMemory) -> ResizeMemory | Veto:
    """While a resize of the pod is pending, its node carries out no other."""
    waits = context.job.pending
    return resize if waits is None else Veto(f"the last resize is {waits.result}: {waits.detail}")


def stale_memory_use(context: MemoryContext, resize: ResizeMemory) -> ResizeMemory | Veto:
    """Nothing is lowered, and no limit is raised, by an old sample; a request goes back to its original without one."""
    if resize.bound == "request" and resize.raises:
        return resize
    if context.use is None:
        return Veto("its working set is not known; scrape /metrics/cadvisor or /metrics/resource of its node")
    age = context.since_seconds(context.use.sampled_at_seconds)
    bound = stale_after_seconds(context.snapshot) + CPU_COUNT_AGE_SECONDS
    return resize if age <= bound else Veto(f"its working set is {age:.0f} s old, bound {bound:.0f} s")


@routine()
def few_samples(context: MemoryContext, resize: ResizeMemory) -> ResizeMemory | Veto:
    """A peak of few samples says little of what a job needs."""
    samples = context.use.samples if context.use is not None else 0
    if resize.raises or samples >= MIN_SAMPLES:
        return resize
    return Veto(f"{samples} samples of its working set, bound {MIN_SAMPLES}")


def memory_pressure(context: MemoryContext, resize: ResizeMemory) -> ResizeMemory | Veto:
    """A kubelet that is short of memory evicts first the pods that use most beyond their requests.

    A request that is lowered, or a limit that lets a job use more, would put it first.
    """
    if not context.node.memory_pressure or (resize.bound == "request" and resize.raises):
        return resize
    return Veto(f"node {resize.node} reports MemoryPressure, and evicts first what uses more than it requests")


def limit_in_use(context: MemoryContext, resize: ResizeMemory) -> ResizeMemory | Veto:
    """A limit that was raised is restored only where the job's peak is not near its original."""
    use = context.use
    if resize.bound == "request" or resize.raises or use is None or limit_within(use, resize.to_bytes):
        return resize
    peak = mebibytes(use.recalled_peak_bytes)
    return Veto(f"the limit stays raised: a peak of {peak} is too near the original {mebibytes(resize.to_bytes)}")


@routine()
def memory_cooldown(context: MemoryContext, resize: ResizeMemory) -> ResizeMemory | Veto:
    """Nothing is lowered soon after another change; a raise does not wait."""
    last = context.known.memory_resizes.at_seconds
    if resize.raises or last is None or context.since_seconds(last) >= context.bounds.cooldown_seconds:
        return resize
    return Veto(f"resized {context.since_seconds(last):.0f} s ago, bound {context.bounds.cooldown_seconds:.0f} s")


@routine()
def memory_minimum_change(context: MemoryContext, resize: ResizeMemory) -> ResizeMemory | Veto:
    """Not below `minChangeRatio`; a request below the job's peak is always raised, and an original always restored."""
    original, use = context.known.original_memory, context.use
    restores = original is not None and original.of(resize.bound) == resize.to_bytes
    exceeded = use is not None and use.recalled_peak_bytes > resize.from_bytes
    ratio, bound = abs(resize.to_bytes - resize.from_bytes) / resize.from_bytes, context.bounds.min_change_ratio
    if ratio >= bound or restores or (resize.raises and exceeded):
        return resize
    return Veto(f"change of {ratio:.1%} to {mebibytes(resize.to_bytes)}, bound {bound:.0%}")


def node_memory(context: MemoryContext, resize: ResizeMemory) -> ResizeMemory | Veto:
    """No raise beyond what the node has left; a part of it where there is some."""
    more = resize.to_bytes - resize.from_bytes
    if more <= context.room_bytes:
        return resize
    room = max(0, int(context.room_bytes))
    if room / resize.from_bytes < context.bounds.min_change_ratio:
        return Veto(f"{resize.node} has {mebibytes(room)} left, and the {resize.bound} would grow by {mebibytes(more)}")
    reason = f"{resize.reason} (wanted {mebibytes(resize.to_bytes)}, node has {mebibytes(room)} left)"
    return replace(resize, to_bytes=resize.from_bytes + room, reason=reason)


GUARDS: tuple[Guard[MemoryContext, ResizeMemory], ...] = (
    memory_ineligible,
    memory_refused,
    memory_pending,
    stale_memory_use,
    few_samples,
    memory_pressure,
    limit_in_use,
    memory_cooldown,
    memory_minimum_change,
    node_memory,
)

ROLLBACK_GUARDS: tuple[Guard[MemoryContext, ResizeMemory], ...] = (memory_ineligible,)


def stages(whole: PassContext, resize: ResizeMemory) -> Iterator[Stage]:
    """The guards of a change of memory, and what they are given."""
    job, node = whole.jobs[resize.job_uid], whole.nodes[resize.node]
    context = MemoryContext(
        whole.bounds, whole.snapshot, job, whole.known(job.uid), node, whole.room_bytes[resize.node]
    )
    yield ROLLBACK_GUARDS if resize.is_rollback else GUARDS, context
