"""How a job stands to what its owner asks of it: an objective, a deadline, targets (`estimators/promises.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

QoeClass = Literal["G", "S", "B"]
"""DQoES: faster than the objective, within its tolerance, slower."""


@dataclass(frozen=True, slots=True)
class QoeStanding:
    """A job and its objective. None: the job was not timed yet."""

    objective_seconds: float
    """Asked, a response of a served model or a step of a training."""
    took_seconds: float | None = None
    """The newest pace."""
    deviation: float | None = None
    """q = (asked - took) / asked: above 0 it is faster than asked."""
    listed: QoeClass | None = None
    """By the newest pace alone."""
    missed: bool = False
    """Class B, confirmed over two intervals; false again once the opposite is."""
    in_flight: float | None = None
    """Requests in flight while none has succeeded for `took_seconds`, which is the least that a response takes. None:
    the pace is a measured one."""


@dataclass(frozen=True, slots=True)
class DeadlineStanding:
    """A job that has not ended, and its deadline."""

    at_seconds: float
    left_seconds: float
    """Until the deadline; below 0 it has passed."""
    slack_seconds: float | None = None
    """Time to spare at the present pace, below 0: late by that. None: no steps planned, or not timed yet."""
    hopeless: bool = False
    """All CPU of the largest node would not do from now on, by the newest figures alone; true once it has passed."""
    confirmed_hopeless: bool = False
    """The same over two intervals; at once when the deadline has passed."""

    @property
    def missed(self) -> bool:
        """The deadline has passed."""
        return self.left_seconds <= 0


@dataclass(frozen=True, slots=True)
class TargetStanding:
    """A job and its targets. None: this one is not stated."""

    deliverable_reached: bool | None = None
    target_reached: bool | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """A job and all that its owner asks of it. None: not asked."""

    qoe: QoeStanding | None = None
    deadline: DeadlineStanding | None = None
    """None also once the job has ended."""
    target: TargetStanding | None = None
