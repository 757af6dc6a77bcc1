"""How a job stands to what its owner asks of it: an objective, a deadline, targets (`estimators/objectives.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slopewise.model.containers import Record

QoeClass = Literal["G", "S", "B"]
"""DQoES: faster than the objective, within its tolerance, slower."""


@dataclass(frozen=True, slots=True)
class QoeStatus:
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
class DeadlineStatus:
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
class TargetStatus:
    """A job and its targets. None: this one is not stated."""

    deliverable_reached: bool | None = None
    target_reached: bool | None = None


@dataclass(frozen=True, slots=True)
class ObjectiveStatus:
    """A job and all that its owner asks of it. None: not asked."""

    qoe: QoeStatus | None = None
    deadline: DeadlineStatus | None = None
    """None also once the job has ended."""
    target: TargetStatus | None = None


class TargetHits(Record, frozen=True, omit_defaults=True, gc=False):
    """How a job stands to the targets that its owner states (`estimators/targets.py`)."""

    streak: int = 0
    """Measurements in a row that reach the next target (above 0), or miss the last one that was reached (below 0)."""
    reached: int = 0
    """Targets passed: 0; 1, the model is deliverable; 2, the final target."""

    @property
    def is_deliverable(self) -> bool:
        """True once the first target is passed."""
        return self.reached >= 1

    @property
    def is_final(self) -> bool:
        """True once all targets are passed; a lone final target counts as both (`estimators/targets.py`)."""
        return self.reached >= 2


class Confirmed(Record, frozen=True, omit_defaults=True, gc=False):
    """A yes or no that changes only after it was contradicted for a while, so that one noisy figure changes nothing."""

    holds: bool = False
    doubted_since_seconds: float | None = None
    """Since when each pass has found the opposite; None: the last one found the same."""


class ObjectiveMemory(Record, frozen=True, omit_defaults=True, gc=False):
    """How a job has met what its owner asks of it, over several measurements."""

    targets: TargetHits | None = None
    """None: its owner states no target."""
    missed: Confirmed | None = None
    """Whether its pace misses its objective; None: it has none, or was not timed yet."""
    hopeless: Confirmed | None = None
    """Whether its deadline cannot be met any more; None: it has none."""
