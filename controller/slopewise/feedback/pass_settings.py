"""The user's settings of a pass, besides its policy."""

from __future__ import annotations

from dataclasses import dataclass

from slopewise.estimators import growth
from slopewise.feedback.rollback import RollbackSettings
from slopewise.model import Bounds


@dataclass(frozen=True, slots=True)
class PassSettings:
    """How a pass measures, what it may change, and when a change is rolled back."""

    policy_name: str
    measuring: growth.Measuring
    bounds: Bounds
    rollback: RollbackSettings
    first_changes_a_pass: int | None = None
    """Workloads that one pass may change for the first time; None: any number. Each costs a write of its originals,
    which the other changes of the pass wait for."""
