"""Guard of held arrivals: which may wait behind the gate because they fit nowhere now, and until when at most.

A policy says what fits nowhere (`Decisions.held`); this bounds it by the mode, by `spec.behaviour.maxHoldSeconds`, and
by the time that the arrival's own deadline leaves (`estimators/holding.py`). An arrival whose hold is over is let in:
its policy places it where most is free, or else the default scheduler has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slopewise.estimators.holding import hold_until_seconds
from slopewise.guards.permission import not_in_canary, paused_by_mode, under_a_freeze
from slopewise.model import Bounds, ClusterSnapshot, Decisions, Hold, JobMemory, Move

MAX_HELD = 200
"""Arrivals of one policy that wait at the same time: on a cluster each is a request every 25 s."""


@dataclass(frozen=True, slots=True)
class ReviewedHolds:
    """The arrivals that wait, by uid, and the moves without those of arrivals that the policy wanted to hold back."""

    held: Mapping[str, Hold]
    moves: tuple[Move, ...]


def review_holds(
    decisions: Decisions, snapshot: ClusterSnapshot, arriving: Mapping[str, JobMemory], bounds: Bounds
) -> ReviewedHolds:
    """The holds that are in force now. `arriving`: memory of arrivals that have run before, by uid."""
    if not decisions.held:
        return ReviewedHolds({}, decisions.moves)
    held: dict[str, Hold] = {}
    for arrival in snapshot.waiting:
        reason = decisions.held.get(arrival.uid)
        if reason is None or paused_by_mode(bounds) or not_in_canary(arrival.uid, bounds):
            continue
        if under_a_freeze(snapshot, arrival.namespace):  # else it would wait for what may not be done
            continue
        until = hold_until_seconds(arrival, arriving.get(arrival.uid), bounds.max_hold_seconds)
        if snapshot.taken_at_seconds < until and len(held) < MAX_HELD:
            waits = until - arrival.arrived_at_seconds
            held[arrival.uid] = Hold(f"{reason}; waits up to {waits:.0f} s", until)
    return ReviewedHolds(held, tuple(move for move in decisions.moves if move.job_uid not in decisions.held))
