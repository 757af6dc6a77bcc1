"""Until when an arrival that fits nowhere may wait: a bound in time, and what its own deadline leaves.

Policies ask it before they hold an arrival back, and `guards/holds.py` holds every policy to it.

Worked example: a deadline in 900 s and a bound of 600 s. Where nothing is known of the job it waits for a third of its
time, 300 s; where its steps take 500 s at what it can use, for 400 s.
"""

from __future__ import annotations

from slopewise.estimators.pace import calibrated
from slopewise.model import Arrival, JobMemory

UNKNOWN_TIME_RATIO = 1 / 3
"""The part of the time until its deadline that a job of unknown length may wait."""


def hold_until_seconds(arrival: Arrival, known: JobMemory | None, max_hold_seconds: float) -> float:
    """When the arrival is let in at the latest, in Unix time; in the past when it may not wait any longer."""
    bound = arrival.arrived_at_seconds + max_hold_seconds
    deadline = arrival.objectives.deadline_at_seconds
    if deadline is None:
        return bound
    expected = _expected_seconds(arrival, known)
    if expected is None:
        left = deadline - arrival.arrived_at_seconds
        return min(bound, arrival.arrived_at_seconds + UNKNOWN_TIME_RATIO * left)
    return min(bound, deadline - expected)


def _expected_seconds(arrival: Arrival, known: JobMemory | None) -> float | None:
    """What its steps take with all the CPU that it can use; None: not known."""
    line = calibrated(known.paces) if known is not None else None
    if known is None or line is None or arrival.steps_planned is None:
        return None
    done = known.pace_anchor.done_total if known.pace_anchor is not None else 0.0
    seconds_a_step = line[0] + line[1] / (arrival.useful_parallelism_cores or 1.0)
    return max(0.0, arrival.steps_planned - done) * seconds_a_step
