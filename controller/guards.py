"""Guards: what every decision must pass before it is carried out. Policies know nothing of them.

An ordered list of pure functions, first the ones that ask whether this job may be touched at all, then the
clamps, then the ones that ask whether what is left is worth doing. A guard lets a resize through, lets a
smaller one through (a clamp: the new target with the bound in its reason), or vetoes it with a reason that
names the guard, its figure and its bound. `capacity` comes last and sees a node's resizes together.

Placements and migrations pass guards of their own (`review_moves`). Of the design's list, `namespace budget`,
`frozen` and `disruption budget` need namespaces with budgets, Freeze objects and disruption budgets: they come with
those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from controller.growth import age_seconds, is_fresh, stale_after_seconds
from controller.model import (
    ClusterSnapshot,
    Job,
    JobMemory,
    JobState,
    MemoryState,
    Migrate,
    Move,
    Node,
    Resize,
    Withheld,
    WithheldMove,
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the user allows; from `spec.mode`, `spec.resources` and `spec.behaviour`."""

    mode: str
    min_millicores: int
    max_millicores: int
    cooldown_seconds: float
    max_step_ratio: float
    min_change_ratio: float


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything a guard may look at for one resize."""

    bounds: Bounds
    snapshot: ClusterSnapshot
    job: Job
    known: JobMemory
    node: Node


@dataclass(frozen=True, slots=True)
class Veto:
    """No, and why."""

    reason: str


Guard = Callable[[Resize, Situation], Resize | Veto]


def paused(resize: Resize, at: Situation) -> Resize | Veto:
    """Only mode Auto changes anything."""
    if at.bounds.mode == "Auto":
        return resize
    return Veto(f"mode is {at.bounds.mode}, and only Auto changes anything")


def ended(resize: Resize, at: Situation) -> Resize | Veto:
    """A job that has finished or failed is left alone."""
    return Veto(f"job is {at.job.state}") if at.job.state.ended else resize


def non_finite_metrics(resize: Resize, at: Situation) -> Resize | Veto:
    """A diverged job is reported, never guessed at."""
    evaluation = at.job.evaluation
    if evaluation is None or evaluation.finite:
        return resize
    return Veto(f"{evaluation.series} is not finite")


def stale_metrics(resize: Resize, at: Situation) -> Resize | Veto:
    """No metrics, no action. A newcomer that never had any is what the policy says it is."""
    evaluation = at.job.evaluation
    bound = stale_after_seconds(at.snapshot)
    if evaluation is None:
        if at.known.series is None:
            return resize
        return Veto(f"{at.known.series} is missing, last seen more than {bound:.0f} s ago")
    if is_fresh(evaluation, at.snapshot):
        return resize
    return Veto(f"newest sample is {age_seconds(evaluation, at.snapshot):.0f} s old, bound {bound:.0f} s")


def restarted(resize: Resize, at: Situation) -> Resize | Veto:
    """A window that holds two lives of a job says nothing about either."""
    return Veto("restarted within the window of its evaluation") if at.job.restarted else resize


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
    """One change is at most a factor of `maxStepRatio`, up or down."""
    ratio, now, target = at.bounds.max_step_ratio, resize.from_millicores, resize.to_millicores
    if now <= target * ratio and target <= now * ratio:
        return resize
    # Rounded outwards: from 1m at x1.4 the nearest whole number would be 1m again, for ever.
    nearest = math.ceil(now * ratio) if resize.raises else math.floor(now / ratio)
    return _clamp(resize, nearest, f"step cap x{ratio:g}")


def minimum_change(resize: Resize, at: Situation) -> Resize | Veto:
    """A change that nobody would notice is not worth a call."""
    bound = at.bounds.min_change_ratio
    ratio = abs(resize.to_millicores - resize.from_millicores) / max(resize.from_millicores, 1)
    if resize.to_millicores != resize.from_millicores and ratio >= bound:
        return resize
    return Veto(f"change of {ratio:.1%} ({resize.from_millicores}m to {resize.to_millicores}m), bound {bound:.0%}")


def cooldown(resize: Resize, at: Situation) -> Resize | Veto:
    """A job that was just resized shows its effect first."""
    last = at.known.last_resized_at_seconds
    if last is None:
        return resize
    since, bound = at.snapshot.taken_at_seconds - last, at.bounds.cooldown_seconds
    return resize if since >= bound else Veto(f"resized {since:.0f} s ago, bound {bound:.0f} s")


GUARDS: tuple[Guard, ...] = (
    paused,
    ended,
    non_finite_metrics,
    stale_metrics,
    restarted,
    floor,
    ceiling,
    useful_parallelism,
    step_cap,
    minimum_change,
    cooldown,
)

CAPACITY = "node_capacity"
"""The name of the one guard that looks at a node's resizes together."""

MEMORY_CAPACITY = "memory_capacity"
"""The name of the one guard that looks at all moves to a node together."""

MOVING = "moving"
"""A job that is about to leave its node is not resized there."""


def move_paused(move: Move, jobs: Mapping[str, Job], snapshot: ClusterSnapshot, bounds: Bounds) -> Veto | None:
    """Only mode Auto moves anything; meanwhile the default scheduler places what arrives."""
    return None if bounds.mode == "Auto" else Veto(f"mode is {bounds.mode}, and only Auto changes anything")


def unknown_node(move: Move, jobs: Mapping[str, Job], snapshot: ClusterSnapshot, bounds: Bounds) -> Veto | None:
    """The target must be there, and must not be where the job is already."""
    if all(node.name != move.node for node in snapshot.nodes):
        return Veto(f"there is no node {move.node}")
    if isinstance(move, Migrate) and move.node == move.from_node:
        return Veto(f"it is on {move.node} already")
    return None


def may_migrate(move: Move, jobs: Mapping[str, Job], snapshot: ClusterSnapshot, bounds: Bounds) -> Veto | None:
    """A running job is moved only when it says that it checkpoints, and while it trains."""
    if not isinstance(move, Migrate):
        return None
    job = jobs.get(move.job_uid)
    if job is None or job.state.ended:
        return Veto("job has ended")
    if job.state is JobState.CHECKPOINTING:
        return Veto("job is checkpointing")
    return None if job.migratable else Veto("job does not say that it may be moved")


MOVE_GUARDS = (move_paused, unknown_node, may_migrate)


def review_moves(
    moves: Sequence[Move], snapshot: ClusterSnapshot, bounds: Bounds
) -> tuple[tuple[Move, ...], tuple[WithheldMove, ...]]:
    """Which placements and migrations may be carried out, and which may not and why; in the order asked."""
    jobs = {job.uid: job for job in snapshot.jobs}
    room = snapshot.memory_room_bytes()
    needs = {job.uid: job.memory_request_bytes or 0.0 for job in snapshot.jobs}
    needs |= {arrival.uid: arrival.memory_request_bytes or 0.0 for arrival in snapshot.waiting}
    allowed: list[Move] = []
    withheld: list[WithheldMove] = []
    for move in moves:
        veto = _first_veto(move, jobs, snapshot, bounds)
        needed = needs.get(move.job_uid, 0.0)
        if veto is None and needed > room[move.node]:
            gib = 2.0**30
            figure = f"needs {needed / gib:.3g} GiB, {move.node} has {max(0.0, room[move.node]) / gib:.3g} GiB left"
            veto = (MEMORY_CAPACITY, figure)
        if veto is not None:
            withheld.append(WithheldMove(move, veto[0], f"{veto[0]}: {veto[1]}"))
            continue
        room[move.node] -= needed
        if isinstance(move, Migrate):
            room[move.from_node] += needed
        allowed.append(move)
    return tuple(allowed), tuple(withheld)


def _first_veto(
    move: Move, jobs: Mapping[str, Job], snapshot: ClusterSnapshot, bounds: Bounds
) -> tuple[str, str] | None:
    for guard in MOVE_GUARDS:
        if (veto := guard(move, jobs, snapshot, bounds)) is not None:
            return guard.__name__, veto.reason
    return None


def without_moving(resizes: Sequence[Resize], moves: Sequence[Move]) -> tuple[tuple[Resize, ...], tuple[Withheld, ...]]:
    """The resizes of jobs that stay; what a job has on a node that it leaves now matters to nobody."""
    leaving = {move.job_uid: move.node for move in moves if isinstance(move, Migrate)}
    stay = tuple(resize for resize in resizes if resize.job_uid not in leaving)
    go = tuple(
        Withheld(resize, MOVING, f"{MOVING}: goes to {leaving[resize.job_uid]}")
        for resize in resizes
        if resize.job_uid in leaving
    )
    return stay, go


def guard_names() -> list[str]:
    """All guards in their order, as `withheld` names them."""
    resizing = [MOVING, *(guard.__name__ for guard in GUARDS), CAPACITY]
    return [*resizing, *(guard.__name__ for guard in MOVE_GUARDS), MEMORY_CAPACITY]


def review(
    resizes: Sequence[Resize], snapshot: ClusterSnapshot, memory: MemoryState, bounds: Bounds
) -> tuple[tuple[Resize, ...], tuple[Withheld, ...]]:
    """What may be carried out, and what may not and why; in the order in which it was asked."""
    jobs = {job.uid: job for job in snapshot.jobs}
    nodes = {node.name: node for node in snapshot.nodes}
    passed: list[Resize] = []
    withheld: list[Withheld] = []
    for resize in resizes:
        known = memory.jobs.get(resize.job_uid, _UNKNOWN)
        at = Situation(bounds, snapshot, jobs[resize.job_uid], known, nodes[resize.node])
        verdict = _through_all(resize, at)
        if isinstance(verdict, Withheld):
            withheld.append(verdict)
        else:
            passed.append(verdict)
    allowed, over = node_capacity(passed, snapshot)
    return tuple(allowed), tuple(withheld + over)


_UNKNOWN = JobMemory()


def _through_all(wanted: Resize, at: Situation) -> Resize | Withheld:
    resize = wanted
    for guard in GUARDS:
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
    return Resize(resize.job_uid, resize.node, resize.control, resize.from_millicores, target_millicores, reason)
