"""Bounds the CPU that arriving jobs get by their class: floor, ceiling, and the share of their namespace.

A size is clamped and never vetoed: where nothing is left for it, the job is placed with what it came with.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from slopewise.allocation import capacity_cores
from slopewise.model import Arrival, Bounds, ClusterSnapshot, Job, Move, Place


def within_bounds(moves: Sequence[Move], snapshot: ClusterSnapshot, bounds: Bounds) -> tuple[Move, ...]:
    """The moves, the sizes among them within the bounds; each changed size is in the reason."""
    if not any(isinstance(move, Place) and move.request_millicores is not None for move in moves):
        return tuple(moves)
    waiting = {arrival.uid: arrival for arrival in snapshot.waiting}
    left = _left_millicores(snapshot, bounds.max_guaranteed_cpu_ratio)
    bounded: list[Move] = []
    for move in moves:
        if isinstance(move, Place) and move.request_millicores is not None:
            arrival = waiting[move.job_uid]
            move = _within(move, arrival, bounds, left[arrival.namespace])  # noqa: PLW2901 - the bounded one
            left[arrival.namespace] -= move.request_millicores or 0
        bounded.append(move)
    return tuple(bounded)


def _left_millicores(snapshot: ClusterSnapshot, ratio: float | None) -> dict[str, float]:
    """What each namespace may still be promised: the cap less the requests of its running jobs with a promise."""
    capacity = math.fsum(capacity_cores(node) for node in snapshot.nodes)
    cap_millicores = math.inf if ratio is None else math.floor(1000 * capacity * ratio)
    left: dict[str, float] = defaultdict(lambda: cap_millicores)
    for job in snapshot.jobs:
        if not job.state.ended and _promises(job):
            left[job.namespace] -= job.allocation.request_millicores
    return left


def _promises(job: Job) -> bool:
    return job.objectives.deadline_at_seconds is not None or job.objectives.qoe_seconds is not None


def _within(move: Place, arrival: Arrival, bounds: Bounds, left_millicores: float) -> Place:
    wanted = move.request_millicores or 0
    if left_millicores < bounds.min_millicores:
        share = f"namespace {arrival.namespace} has been promised its share of the cluster, so it keeps its own request"
        return replace(move, request_millicores=None, reason=f"{move.reason} (wanted {wanted}m, {share})")
    size = min(max(wanted, bounds.min_millicores), bounds.max_millicores)
    bound = f"{'floor' if size > wanted else 'ceiling'} {size}m"
    if size > left_millicores:
        size, bound = int(left_millicores), f"its namespace's share leaves {left_millicores:.0f}m"
    if size == wanted:
        return move
    return replace(move, request_millicores=size, reason=f"{move.reason} (wanted {wanted}m, {bound})")
