"""Guards of resizes: an ordered list of pure functions that let a resize through, clamp it, or veto it.

The order: may this job be changed at all, are its metrics good enough, then the clamps (the user's, the job's, the
platform's), then whether the rest is worth a change. A veto's reason has the guard, its figure and its bound.
`node_capacity` is last and sees the resizes of a node together.

Up to the even share (`allocation.even_share_millicores`) a raise skips the cooldown and the step cap, and the metrics
of a job that has stopped to report. A diverged job above its even share is lowered to it.

A rollback (`Resize.is_rollback`) passes only `ROLLBACK_GUARDS`: its target was within all bounds before.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from slopewise.allocation import MIN_MILLICORES, capacity_cores
from slopewise.estimators.gpu_need import gpu_need, least_cores
from slopewise.estimators.growth import age_seconds, is_fresh, stale_after_seconds
from slopewise.guards.context import PassContext
from slopewise.guards.framework import Guard, Refusal, Stage, routine, withheld_by
from slopewise.model import Bounds, ClusterSnapshot, CpuControl, Job, JobMemory, Node, Resize, Veto, Withheld


class ResizeContext(msgspec.Struct, frozen=True, gc=False):
    """The inputs of a guard of one resize."""

    bounds: Bounds
    snapshot: ClusterSnapshot
    job: Job
    known: JobMemory
    even_millicores: int
    """The job's even share of its node, in the dimension of the resize; the floor where that is more."""
    original_millicores: int
    """The job's original, in the same dimension."""
    floor_millicores: int
    """`spec.resources.cpu.min`, in the same dimension."""
    ceiling_millicores: int
    """`spec.resources.cpu.max`, likewise."""
    least_millicores: int = 0
    """What a job with accelerators keeps to be as fast as with its original, likewise; 0: it has none."""


def ended(context: ResizeContext, resize: Resize) -> Resize | Veto:
    """A job that has finished or failed is not changed."""
    return Veto(f"job is {context.job.state}") if context.job.state.ended else resize


def ineligible(context: ResizeContext, resize: Resize) -> Resize | Veto:
    """A job that is not to be changed at all: it says so itself, or the platform does."""
    return resize if context.job.ineligible_reason is None else Veto(context.job.ineligible_reason)


def accelerators(context: ResizeContext, resize: Resize) -> Resize | Veto:
    """No job with accelerators is changed without consent, and none is slower than with the CPU that it came with."""
    if not context.job.accelerators:
        return resize
    if context.bounds.accelerators == "Ignore":
        return Veto("it has a GPU, and spec.resources.accelerators is Ignore")
    least = context.least_millicores
    return resize if resize.to_millicores >= least else _within(resize, least, "as fast as with its original CPU")


def backoff(context: ResizeContext, resize: Resize) -> Resize | Veto:
    """A job that regressed after a change is in back-off."""
    until = context.known.backoff.until_seconds
    left = 0.0 if until is None else until - context.snapshot.taken_at_seconds
    return resize if left <= 0 else Veto(f"for another {left:.0f} s: {context.known.backoff.reason}")


def non_finite_metrics(context: ResizeContext, resize: Resize) -> Resize | Veto:
    """A diverged job gets no raise, and is lowered to its even share at most."""
    evaluation = context.job.evaluation
    if evaluation is None or evaluation.finite:
        return resize
    reason = f"{evaluation.series} is not finite"
    return Veto(reason) if resize.raises else _up_to_even_share(resize, context, reason)


def stale_metrics(context: ResizeContext, resize: Resize) -> Resize | Veto:
    """No metrics, no action; a job that was lowered before may be raised to its even share.

    A job that never had any metrics is the policy's matter.
    """
    reason = _silence(context)
    if reason is None:
        return resize
    was_lowered = resize.from_millicores < context.original_millicores
    return _up_to_even_share(resize, context, reason) if resize.raises and was_lowered else Veto(reason)


def _silence(context: ResizeContext) -> str | None:
    """Why the job's evaluation is stale or missing; None: it is fresh, or there never was one."""
    evaluation, bound = context.job.evaluation, stale_after_seconds(context.snapshot)
    if evaluation is None:
        series = context.known.levels.series
        return None if series is None else f"{series} is missing, last seen more than {bound:.0f} s ago"
    if is_fresh(evaluation, context.snapshot):
        return None
    return f"newest sample is {age_seconds(evaluation, context.snapshot):.0f} s old, bound {bound:.0f} s"


def _up_to_even_share(resize: Resize, context: ResizeContext, reason: str) -> Resize | Veto:
    """The resize as far as it brings the job towards its even share; a veto for what leads beyond or away from it."""
    even = context.even_millicores
    if resize.from_millicores == even or (even > resize.from_millicores) != resize.raises:
        return Veto(reason)
    within = resize.to_millicores <= even if resize.raises else resize.to_millicores >= even
    return resize if within else _clamp(resize, even, f"even share {even}m: {reason}")


def restarted(context: ResizeContext, resize: Resize) -> Resize | Veto:
    """A window with samples of two processes has no meaning."""
    return Veto("restarted within the window of its evaluation") if context.job.restarted else resize


def pending(context: ResizeContext, resize: Resize) -> Resize | Veto:
    """A job with a pending resize gets no raise, because the node would apply neither; a decrease replaces it."""
    waits = context.job.pending
    return resize if waits is None or not resize.raises else Veto(f"the last resize is {waits.result}: {waits.detail}")


def floor(context: ResizeContext, resize: Resize) -> Resize | Veto:
    """Not below `spec.resources.cpu.min`."""
    bound, least = context.floor_millicores, context.bounds.min_millicores
    within = resize.to_millicores >= bound
    return resize if within else _clamp(resize, bound, _in_both_units("floor", least, bound, resize.control))


def ceiling(context: ResizeContext, resize: Resize) -> Resize | Veto:
    """Not above `spec.resources.cpu.max`."""
    bound, most = context.ceiling_millicores, context.bounds.max_millicores
    within = resize.to_millicores <= bound
    return resize if within else _clamp(resize, bound, _in_both_units("ceiling", most, bound, resize.control))


def _in_both_units(name: str, cpu_millicores: int, bound_millicores: int, control: CpuControl) -> str:
    """A bound as text, e.g. `floor 250m`, or with `requests` `floor 250m of CPU, weight 125m`."""
    weight = f" of CPU, weight {bound_millicores}m" if control == "requests" else ""
    return f"{name} {cpu_millicores}m{weight}"


def useful_parallelism(context: ResizeContext, resize: Resize) -> Resize | Veto:
    """No limit above the job's useful parallelism; shares are relative, so they are not bounded."""
    cores = context.job.useful_parallelism_cores
    if cores is None or resize.control != "limits":
        return resize
    bound = round(cores * 1000)
    return resize if resize.to_millicores <= bound else _clamp(resize, bound, f"useful parallelism {bound}m")


def step_cap(context: ResizeContext, resize: Resize) -> Resize | Veto:
    """One change is at most a factor of `maxStepRatio`, up or down; up to the even share it is one step."""
    ratio, now, target = context.bounds.max_step_ratio, resize.from_millicores, resize.to_millicores
    if now <= target * ratio and target <= max(now * ratio, context.even_millicores):
        return resize
    # Rounded outwards: from 1m at x1.4 the nearest whole number would be 1m again, forever.
    nearest = math.ceil(now * ratio) if resize.raises else math.floor(now / ratio)
    if resize.raises and nearest < context.even_millicores:
        return _clamp(resize, context.even_millicores, f"step cap x{ratio:g} or even share {context.even_millicores}m")
    return _clamp(resize, nearest, f"step cap x{ratio:g}")


@routine()
def cooldown(context: ResizeContext, resize: Resize) -> Resize | Veto:
    """No second resize before the effect of the last one shows; a raise up to the even share does not wait."""
    last = context.known.last_resized_at_seconds
    if last is None:
        return resize
    since, bound = context.snapshot.taken_at_seconds - last, context.bounds.cooldown_seconds
    if since >= bound:
        return resize
    reason = f"resized {since:.0f} s ago, bound {bound:.0f} s"
    return _up_to_even_share(resize, context, reason) if resize.raises else Veto(reason)


def accepted_range(context: ResizeContext, resize: Resize) -> Resize | Veto:
    """Within the platform's bounds, e.g. no limit below its container's request."""
    accepts = context.job.accepts
    if accepts is None:
        return resize
    least, most, target = accepts.min_millicores, accepts.max_millicores, resize.to_millicores
    if least is not None and target < least:
        return _within(resize, least, accepts.reason)
    return _within(resize, most, accepts.reason) if most is not None and target > most else resize


def _within(resize: Resize, bound: int, reason: str) -> Resize | Veto:
    """The resize up to the bound; a veto when the job is there already or beyond: the direction never changes."""
    if bound != resize.from_millicores and (bound > resize.from_millicores) == resize.raises:
        return _clamp(resize, bound, f"{reason}: {bound}m")
    return Veto(f"wanted {resize.to_millicores}m, bound {bound}m ({reason}), has {resize.from_millicores}m")


@routine()
def minimum_change(context: ResizeContext, resize: Resize) -> Resize | Veto:
    """Not below `minChangeRatio`."""
    bound = context.bounds.min_change_ratio
    ratio = abs(resize.to_millicores - resize.from_millicores) / max(resize.from_millicores, 1)
    if resize.to_millicores != resize.from_millicores and ratio >= bound:
        return resize
    return Veto(f"change of {ratio:.1%} ({resize.from_millicores}m to {resize.to_millicores}m), bound {bound:.0%}")


GUARDS: tuple[Guard[ResizeContext, Resize], ...] = (
    ended,
    ineligible,
    accelerators,
    backoff,
    non_finite_metrics,
    stale_metrics,
    restarted,
    pending,
    floor,
    ceiling,
    useful_parallelism,
    step_cap,
    cooldown,
    accepted_range,
    minimum_change,
)

ROLLBACK_GUARDS: tuple[Guard[ResizeContext, Resize], ...] = (ended, ineligible, accepted_range)

ROUNDING = 1e-9
"""100 x 0.07 is 7.000000000000001, which is a weight of 7m and not of 8m."""

CAPACITY = "node_capacity"
"""The guard that sees the resizes of a node together."""


def stages(whole: PassContext, resize: Resize) -> Iterator[Stage]:
    """The guards of a resize, and what they are given."""
    yield ROLLBACK_GUARDS if resize.is_rollback else GUARDS, _context(whole, resize)


def _context(whole: PassContext, resize: Resize) -> ResizeContext:
    job, bounds, control = whole.jobs[resize.job_uid], whole.bounds, resize.control
    even, per_cpu = whole.shares.of_node(job, control)
    floor_millicores = max(MIN_MILLICORES, math.ceil(bounds.min_millicores * per_cpu - ROUNDING))
    ceiling_millicores = math.floor(bounds.max_millicores * per_cpu + ROUNDING)
    if control == "requests":
        # A weight alone enforces no ceiling: two jobs on 32 cores have 16 each by any equal weights.
        ceiling_millicores = max(ceiling_millicores, even)
    known, original, least = whole.known(job.uid), whole.shares.original_millicores(job, control), 0
    if job.accelerators and per_cpu > 0:
        unit = 1000 * per_cpu
        least = round(unit * least_cores(gpu_need(job, known), known, original / unit, bounds.accelerators))
    return ResizeContext(
        bounds,
        whole.snapshot,
        job,
        known,
        even_millicores=max(floor_millicores, even),
        original_millicores=original,
        floor_millicores=floor_millicores,
        ceiling_millicores=max(floor_millicores, ceiling_millicores),
        least_millicores=least,
    )


def node_capacity(resizes: Sequence[Resize], snapshot: ClusterSnapshot) -> tuple[list[Resize], list[Withheld[Resize]]]:
    """No limit above its node; no raise of requests on a node whose requests would then not fit.

    The request of a Guaranteed pod is raised with its limit, within what other pods leave of the node.
    """
    nodes = {node.name: node for node in snapshot.nodes}
    follow = {job.uid for job in snapshot.jobs if job.request_follows_limit}
    reserving = {each.job_uid for each in resizes if each.control == "requests" or each.job_uid in follow}
    bounds = {name: most for name, node in nodes.items() if (most := _most_requests(node, follow)) is not None}
    room = _room_millicores([each for each in resizes if each.job_uid in reserving], snapshot, bounds)
    allowed: list[Resize] = []
    withheld: list[Withheld[Resize]] = []
    for resize in resizes:
        whole_node = round(nodes[resize.node].cpu_cores * 1000)
        if resize.control == "limits" and resize.to_millicores > whole_node:
            verdict = _clamp(resize, whole_node, f"node capacity {whole_node}m")
            if isinstance(verdict, Veto):
                withheld.append(withheld_by(resize, Refusal(CAPACITY, verdict.reason)))
            else:
                allowed.append(verdict)
        elif resize.raises and resize.job_uid in reserving and room.get(resize.node, 0) < 0:
            over = f"requests on {resize.node} would be {-room[resize.node]}m over its {bounds[resize.node]}m"
            room[resize.node] += resize.to_millicores - resize.from_millicores
            withheld.append(withheld_by(resize, Refusal(CAPACITY, over)))
        else:
            allowed.append(resize)
    return allowed, withheld


def _most_requests(node: Node, follow: Collection[str]) -> int | None:
    """What requests on a node may add up to, in millicores; None: any sum, where they are only weights."""
    if node.requests_max_millicores is not None or not follow:
        return node.requests_max_millicores
    return round(1000 * capacity_cores(node))


def _room_millicores(resizes: Sequence[Resize], snapshot: ClusterSnapshot, bounds: Mapping[str, int]) -> dict[str, int]:
    """Room for requests on each bounded node after all `resizes` of requests, in millicores; negative when over."""
    if not (room := dict(bounds)):
        return room
    for job in snapshot.jobs:
        if job.node in room:
            room[job.node] -= job.allocation.request_millicores
    for resize in resizes:
        if resize.node in room:
            room[resize.node] -= resize.to_millicores - resize.from_millicores
    return room


def _clamp(resize: Resize, target_millicores: int, bound: str) -> Resize | Veto:
    """The resize up to the bound; a veto when the job is there already."""
    if target_millicores == resize.from_millicores:
        return Veto(f"wanted {resize.to_millicores}m, bound {bound}, has {resize.from_millicores}m")
    reason = f"{resize.reason} (wanted {resize.to_millicores}m, {bound})"
    return resize.altered(to_millicores=target_millicores, reason=reason)
