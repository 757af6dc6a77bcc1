"""Guards: what every decision must pass before it is carried out. Policies know nothing of them.

An ordered list of pure functions: first the ones that ask whether this job may be touched at all, then whether enough
is known of it, then the clamps (the user's, the job's, and last the platform's, which no other may widen), then the
ones that ask whether what is left is worth doing. A guard lets a resize through, lets a smaller one through (a clamp:
the new target with the bound in its reason), or vetoes it with a reason that names the guard, its figure and its bound.
`capacity` comes last and sees a node's resizes together.

Up to its even share (`control.even_share_millicores`) a raise only gives a job what fair sharing would: it waits for no
cooldown and no step cap, and not for the metrics of a job that has gone silent. A diverged job that has more than its
even share is lowered to that.

A resize that takes an earlier change back (`Resize.gives_back`) meets only `GIVE_BACK_GUARDS`: it must not wait for
metrics, a cooldown or a smaller step, and what it gives back was within all bounds before.

Placements and migrations have guards of their own (`move_guards.py`). `namespace budget` and `frozen` are not among
them yet: they need namespaces with budgets, and Freeze objects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.bounds import Bounds, Veto, not_in_canary, paused_by_mode
from controller.control import even_share_millicores, own_millicores
from controller.growth import age_seconds, is_fresh, stale_after_seconds
from controller.model import (
    ClusterSnapshot,
    CpuControl,
    Job,
    JobMemory,
    MemoryState,
    Resize,
    Withheld,
)


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything a guard may look at for one resize."""

    bounds: Bounds
    snapshot: ClusterSnapshot
    job: Job
    known: JobMemory
    even_millicores: int
    """The job's even share of its node, in the dimension of the resize; the floor where that is more."""
    came_with_millicores: int
    """What the job had before our first change, in the same dimension."""


Guard = Callable[[Resize, Situation], Resize | Veto]


def paused(resize: Resize, at: Situation) -> Resize | Veto:
    """Only modes Auto and Canary change anything."""
    return paused_by_mode(at.bounds) or resize


def canary(resize: Resize, at: Situation) -> Resize | Veto:
    """Mode Canary changes a share of the jobs."""
    return not_in_canary(resize.job_uid, at.bounds) or resize


def ended(resize: Resize, at: Situation) -> Resize | Veto:
    """A job that has finished or failed is left alone."""
    return Veto(f"job is {at.job.state}") if at.job.state.ended else resize


def hands_off(resize: Resize, at: Situation) -> Resize | Veto:
    """A job that is not to be changed at all: it says so itself, or the platform does."""
    return resize if at.job.hands_off is None else Veto(at.job.hands_off)


def left_alone(resize: Resize, at: Situation) -> Resize | Veto:
    """A job that a change has harmed is left alone for a while."""
    until = at.known.alone_until_seconds
    left = 0.0 if until is None else until - at.snapshot.taken_at_seconds
    return resize if left <= 0 else Veto(f"for another {left:.0f} s: {at.known.alone_because}")


def non_finite_metrics(resize: Resize, at: Situation) -> Resize | Veto:
    """A diverged job is reported, never guessed at; but it does not keep more than its even share from the others."""
    evaluation = at.job.evaluation
    if evaluation is None or evaluation.finite:
        return resize
    why = f"{evaluation.series} is not finite"
    return Veto(why) if resize.raises else _up_to_even_share(resize, at, why)


def stale_metrics(resize: Resize, at: Situation) -> Resize | Veto:
    """No metrics, no action; but one that was lowered and has gone silent may go back up to the even share.

    A job that never had any metrics is what the policy says.
    """
    why = _silence(at)
    if why is None:
        return resize
    was_lowered = resize.from_millicores < at.came_with_millicores
    return _up_to_even_share(resize, at, why) if resize.raises and was_lowered else Veto(why)


def _silence(at: Situation) -> str | None:
    """Why the job's evaluation says nothing of it any more; None: it does, or it never had one."""
    evaluation, bound = at.job.evaluation, stale_after_seconds(at.snapshot)
    if evaluation is None:
        series = at.known.series
        return None if series is None else f"{series} is missing, last seen more than {bound:.0f} s ago"
    if is_fresh(evaluation, at.snapshot):
        return None
    return f"newest sample is {age_seconds(evaluation, at.snapshot):.0f} s old, bound {bound:.0f} s"


def _up_to_even_share(resize: Resize, at: Situation, why: str) -> Resize | Veto:
    """The resize as far as it brings the job towards its even share; a veto for what leads beyond or away from it."""
    even = at.even_millicores
    if resize.from_millicores == even or (even > resize.from_millicores) != resize.raises:
        return Veto(why)
    within = resize.to_millicores <= even if resize.raises else resize.to_millicores >= even
    return resize if within else _clamp(resize, even, f"even share {even}m: {why}")


def restarted(resize: Resize, at: Situation) -> Resize | Veto:
    """A window that holds two lives of a job says nothing about either."""
    return Veto("restarted within the window of its evaluation") if at.job.restarted else resize


def pending(resize: Resize, at: Situation) -> Resize | Veto:
    """A job whose last resize still waits gets no raise: the node would apply neither. A decrease replaces the wish."""
    waits = at.job.pending
    return resize if waits is None or not resize.raises else Veto(f"the last resize is {waits.result}: {waits.detail}")


def floor(resize: Resize, at: Situation) -> Resize | Veto:
    """Not below `spec.resources.cpu.min`."""
    bound = at.bounds.min_millicores
    return resize if resize.to_millicores >= bound else _clamp(resize, bound, f"floor {bound}m")


def ceiling(resize: Resize, at: Situation) -> Resize | Veto:
    """Not above `spec.resources.cpu.max`."""
    bound = at.bounds.max_millicores
    return resize if resize.to_millicores <= bound else _clamp(resize, bound, f"ceiling {bound}m")


def useful_parallelism(resize: Resize, at: Situation) -> Resize | Veto:
    """A limit above what the job's threads can use helps nobody; shares are only relative, so they may be."""
    cores = at.job.useful_parallelism_cores
    if cores is None or resize.control != "limits":
        return resize
    bound = round(cores * 1000)
    return resize if resize.to_millicores <= bound else _clamp(resize, bound, f"useful parallelism {bound}m")


def step_cap(resize: Resize, at: Situation) -> Resize | Veto:
    """One change is at most a factor of `maxStepRatio`, up or down; up to the even share it is one step."""
    ratio, now, target = at.bounds.max_step_ratio, resize.from_millicores, resize.to_millicores
    if now <= target * ratio and target <= max(now * ratio, at.even_millicores):
        return resize
    # Rounded outwards: from 1m at x1.4 the nearest whole number would be 1m again, for ever.
    nearest = math.ceil(now * ratio) if resize.raises else math.floor(now / ratio)
    if resize.raises and nearest < at.even_millicores:
        return _clamp(resize, at.even_millicores, f"step cap x{ratio:g} or even share {at.even_millicores}m")
    return _clamp(resize, nearest, f"step cap x{ratio:g}")


def cooldown(resize: Resize, at: Situation) -> Resize | Veto:
    """A job that was just resized shows its effect first; back up to the even share it waits for nothing."""
    last = at.known.last_resized_at_seconds
    if last is None:
        return resize
    since, bound = at.snapshot.taken_at_seconds - last, at.bounds.cooldown_seconds
    if since >= bound:
        return resize
    why = f"resized {since:.0f} s ago, bound {bound:.0f} s"
    return _up_to_even_share(resize, at, why) if resize.raises else Veto(why)


def accepted_range(resize: Resize, at: Situation) -> Resize | Veto:
    """Not beyond what the platform takes, such as a limit below its container's request."""
    accepts = at.job.accepts
    if accepts is None:
        return resize
    least, most, target = accepts.min_millicores, accepts.max_millicores, resize.to_millicores
    if least is not None and target < least:
        return _within(resize, least, accepts.why)
    return _within(resize, most, accepts.why) if most is not None and target > most else resize


def _within(resize: Resize, bound: int, why: str) -> Resize | Veto:
    """The resize up to the bound; a veto when the job is there already, or beyond it: a wish is never turned round."""
    if bound != resize.from_millicores and (bound > resize.from_millicores) == resize.raises:
        return _clamp(resize, bound, f"{why}: {bound}m")
    return Veto(f"wanted {resize.to_millicores}m, bound {bound}m ({why}), has {resize.from_millicores}m")


def minimum_change(resize: Resize, at: Situation) -> Resize | Veto:
    """A change that nobody would notice is not worth a call."""
    bound = at.bounds.min_change_ratio
    ratio = abs(resize.to_millicores - resize.from_millicores) / max(resize.from_millicores, 1)
    if resize.to_millicores != resize.from_millicores and ratio >= bound:
        return resize
    return Veto(f"change of {ratio:.1%} ({resize.from_millicores}m to {resize.to_millicores}m), bound {bound:.0%}")


GUARDS: tuple[Guard, ...] = (
    paused,
    canary,
    ended,
    hands_off,
    left_alone,
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

GIVE_BACK_GUARDS: tuple[Guard, ...] = (paused, ended, hands_off, accepted_range)
"""Not `canary`: who is in no canary has nothing to give back. Leaving a mode gives back by itself (`restoring`)."""

CAPACITY = "node_capacity"
"""The name of the one guard that looks at a node's resizes together."""


def review(
    resizes: Sequence[Resize], snapshot: ClusterSnapshot, memory: MemoryState, bounds: Bounds
) -> tuple[tuple[Resize, ...], tuple[Withheld, ...]]:
    """What may be carried out, and what may not and why; in the order in which it was asked."""
    jobs = {job.uid: job for job in snapshot.jobs}
    shares = _Shares(snapshot, memory)
    passed: list[Resize] = []
    withheld: list[Withheld] = []
    for resize in resizes:
        job = jobs[resize.job_uid]
        known = memory.jobs.get(resize.job_uid, _UNKNOWN)
        even = max(bounds.min_millicores, shares.even(job, resize.control))
        at = Situation(bounds, snapshot, job, known, even, shares.own(job, resize.control))
        verdict = _through_all(resize, at)
        if isinstance(verdict, Withheld):
            withheld.append(verdict)
        else:
            passed.append(verdict)
    allowed, over = node_capacity(passed, snapshot)
    return tuple(allowed), tuple(withheld + over)


class _Shares:
    """What a job has by rights: what it came with, and the even share, worked out once for each node asked about."""

    def __init__(self, snapshot: ClusterSnapshot, memory: MemoryState) -> None:
        self._jobs_on = snapshot.jobs_by_node()
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._remembered = memory.jobs
        self._known: dict[tuple[str, CpuControl], int] = {}

    def own(self, job: Job, control: CpuControl) -> int:
        """What the job came with, in millicores of that dimension."""
        return own_millicores(job, self._remembered, self._nodes[job.node], control)

    def even(self, job: Job, control: CpuControl) -> int:
        """Its even share, likewise; a job that has ended counts as if it were there."""
        key = (job.node, control)
        if key not in self._known:
            jobs = self._jobs_on[job.node] or [job]
            self._known[key] = even_share_millicores(jobs, self._remembered, self._nodes[job.node], control)
        return self._known[key]


_UNKNOWN = JobMemory()


def _through_all(wanted: Resize, at: Situation) -> Resize | Withheld:
    resize = wanted
    for guard in GIVE_BACK_GUARDS if wanted.gives_back else GUARDS:
        verdict = guard(resize, at)
        if isinstance(verdict, Veto):
            return Withheld(wanted, guard.__name__, f"{guard.__name__}: {verdict.reason}")
        resize = verdict
    return resize


def node_capacity(resizes: Sequence[Resize], snapshot: ClusterSnapshot) -> tuple[list[Resize], list[Withheld]]:
    """No limit above its node; no raise of requests on a node whose requests would not fit any more."""
    nodes = {node.name: node for node in snapshot.nodes}
    room = _room_millicores(resizes, snapshot)
    allowed: list[Resize] = []
    withheld: list[Withheld] = []
    for resize in resizes:
        whole_node = round(nodes[resize.node].cpu_cores * 1000)
        if resize.control == "limits" and resize.to_millicores > whole_node:
            verdict = _clamp(resize, whole_node, f"node capacity {whole_node}m")
            if isinstance(verdict, Veto):
                withheld.append(Withheld(resize, CAPACITY, f"{CAPACITY}: {verdict.reason}"))
            else:
                allowed.append(verdict)
        elif resize.control == "requests" and resize.raises and room.get(resize.node, 0) < 0:
            bound = nodes[resize.node].requests_max_millicores
            over = f"{CAPACITY}: requests on {resize.node} would be {-room[resize.node]}m over its {bound}m"
            room[resize.node] += resize.to_millicores - resize.from_millicores
            withheld.append(Withheld(resize, CAPACITY, over))
        else:
            allowed.append(resize)
    return allowed, withheld


def _room_millicores(resizes: Sequence[Resize], snapshot: ClusterSnapshot) -> dict[str, int]:
    """What all `resizes` would leave of each bounded node's requests, in millicores; negative when over."""
    room = {
        node.name: node.requests_max_millicores for node in snapshot.nodes if node.requests_max_millicores is not None
    }
    if not room:
        return {}
    for job in snapshot.jobs:
        if job.node in room:
            room[job.node] -= job.allocation.request_millicores
    for resize in resizes:
        if resize.node in room and resize.control == "requests":
            room[resize.node] -= resize.to_millicores - resize.from_millicores
    return room


def _clamp(resize: Resize, target_millicores: int, bound: str) -> Resize | Veto:
    """The resize up to the bound; a veto in the bound's own name when that is where the job is already."""
    if target_millicores == resize.from_millicores:
        return Veto(f"wanted {resize.to_millicores}m, bound {bound}, has {resize.from_millicores}m")
    reason = f"{resize.reason} (wanted {resize.to_millicores}m, {bound})"
    return Resize(
        resize.job_uid,
        resize.node,
        resize.control,
        resize.from_millicores,
        target_millicores,
        reason,
        resize.gives_back,
    )
