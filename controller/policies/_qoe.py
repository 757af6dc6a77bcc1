"""Where each job of a node stands to the pace that was asked of it: what both variants of `dqoes` start from.

Comes before `dqoes` (direct) and `_qoe_step` (step), which turn standings into limits.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.model import Job, JobMemory, Node
from controller.policies._shares import useful_cores
from controller.policies._speed import speed

OVER, SATISFIED, BELOW = "G", "S", "B"
UNKNOWN, UNASKED = "unknown", "no objective"


@dataclass(frozen=True, slots=True)
class Standing:
    """One job, what was asked of it and what it did."""

    job: Job
    known: JobMemory
    listed: str
    useful_cores: float
    deviation: float = 0.0
    """q = (asked - took) / asked: above 0 it is faster than asked."""
    wants_cores: float | None = None
    """L*, the limit that just meets the objective; None: no CPU does, or nothing is known."""
    needs_cores: float | None = None
    """The least limit with which it counts as satisfied; None: no CPU does, or nothing is known."""


def deviation(asked_seconds: float, took_seconds: float) -> float:
    """q of the algorithm: 0.2 when 8 s were taken of the 10 s asked."""
    return (asked_seconds - took_seconds) / asked_seconds


def listed_as(relative: float, alpha: float) -> str:
    """G, S or B, by relative deviation; what is at `alpha` exactly is satisfied."""
    if relative > alpha:
        return OVER
    return BELOW if relative < -alpha else SATISFIED


def standing(job: Job, known: JobMemory, node: Node, had_cores: float, alpha: float, margin: float) -> Standing:
    """Compare the job's newest pace with what is asked, and ask its line for the limits that would do."""
    useful = useful_cores(job, node)
    asked = job.promises.qoe_seconds
    if asked is None:
        return Standing(job, known, UNASKED, useful)
    found = speed(known, had_cores)
    if found is None:
        return Standing(job, known, UNKNOWN, useful)
    relative = deviation(asked, known.paces[-1].seconds)
    return Standing(
        job,
        known,
        listed_as(relative, alpha),
        useful,
        relative,
        wants_cores=found.limit_for(asked),
        needs_cores=found.limit_for(asked * (1 + alpha - margin)),
    )
