"""What the user allows: the bounds that every guard is told, the veto, and what each mode lets through.

Before it: `documents.py`, which makes bounds of a TrainingPolicy. After it: `guards.py` for resizes, `move_guards.py`
for placements and migrations, and `restoring.py`, which gives back what a mode does not cover any more.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

BUDGET_SECONDS = 3600.0
"""The hour of `maxPerNodePerHour`."""


@dataclass(frozen=True, slots=True)
class MoveBounds:
    """How often running jobs may be moved, and what a move must gain; from `spec.migration`."""

    enabled: bool
    max_per_node_per_hour: int
    max_concurrent: int
    min_stay_seconds: float
    max_checkpoint_age_seconds: float
    horizon_seconds: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the user allows; from `spec.mode`, `spec.resources` and `spec.behaviour`."""

    mode: str
    min_millicores: int
    max_millicores: int
    cooldown_seconds: float
    max_step_ratio: float
    min_change_ratio: float
    canary_ratio: float = 1.0
    """The share of the jobs that mode Canary changes."""
    moving: MoveBounds | None = None
    """None: moves are not bounded at all, as in the papers (the simulator, unless a scenario bounds them)."""


@dataclass(frozen=True, slots=True)
class Veto:
    """No, and why."""

    reason: str


def acts(mode: str) -> bool:
    """Whether a mode changes anything at all."""
    return mode in ("Auto", "Canary")


def in_canary(job_uid: str, canary_ratio: float) -> bool:
    """Whether a job is among the share that mode Canary changes; the same for ever, and for all pods of a workload.

    By a hash of the workload, so that nobody comes or goes with other jobs. Few jobs may therefore all be in or all
    out: of 5 jobs at a ratio of 0.1 none is, more often than not.
    """
    if canary_ratio >= 1.0:
        return True
    workload = job_uid.partition(":")[0]
    digest = hashlib.blake2b(workload.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < canary_ratio * 2**64


def paused_by_mode(bounds: Bounds) -> Veto | None:
    """A veto in a mode that changes nothing."""
    return None if acts(bounds.mode) else Veto(f"mode is {bounds.mode}, and only Canary and Auto change anything")


def not_in_canary(job_uid: str, bounds: Bounds) -> Veto | None:
    """A veto in mode Canary, for a job that is not in its share."""
    if bounds.mode != "Canary" or in_canary(job_uid, bounds.canary_ratio):
        return None
    return Veto(f"mode is Canary, and the job is not in its share of {bounds.canary_ratio:.0%}")
