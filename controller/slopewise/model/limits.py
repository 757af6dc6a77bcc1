"""What a user allows: bounds of resizes and moves, the Veto, and the jobs that each mode changes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from slopewise.model.containers import MemoryControl
from slopewise.model.jobs import JobUid

AcceleratorControl = Literal["Ignore", "Raise", "Share"]
"""Whether the CPU of jobs with accelerators is changed: not at all; idle CPU is given to them; or also lent by them."""

StudyControl = Literal["Fair", "Best"]
"""Whether the trials of a study are jobs like others, or the one that may be its best comes first."""

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
    """None: unbounded, as in the papers (the simulator, unless a scenario bounds them)."""
    memory: MemoryControl = "Ignore"
    accelerators: AcceleratorControl = "Ignore"


@dataclass(frozen=True, slots=True)
class Veto:
    """A guard's refusal."""

    reason: str


def acts(mode: str) -> bool:
    """Whether a mode changes anything at all."""
    return mode in ("Auto", "Canary")


def in_canary(job_uid: str, canary_ratio: float) -> bool:
    """Whether a job is among the share that mode Canary changes; always the same, for all pods of a workload.

    By a hash of the workload, independent of other jobs. Few jobs may therefore all be in or all out: of 5 jobs at a
    ratio of 0.1 none is, more often than not.
    """
    if canary_ratio >= 1.0:
        return True
    digest = hashlib.blake2b(JobUid.of(job_uid).workload.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < canary_ratio * 2**64
