"""One pass through its ports over fakes: what it does is in the actuator and the memory."""

from __future__ import annotations

from typing import Any

from support.worlds import START, FakeActuator, FakeClock, FakeMemory, FakeObserver

from slopewise.errors import ObservationError
from slopewise.estimators.growth import Measuring
from slopewise.feedback.pass_settings import PassSettings
from slopewise.feedback.rollback import RollbackSettings
from slopewise.model import Bounds, ClusterSnapshot, PassReport
from slopewise.policies import PolicyProtocol
from slopewise.ports import Ports
from slopewise.reconcile import reconcile

OPEN = Bounds("Auto", 1, 64_000, cooldown_seconds=0, max_step_ratio=1000, min_change_ratio=0)
"""Everything that is decided is carried out."""


def pass_over(
    observed: ClusterSnapshot | ObservationError,
    policy: PolicyProtocol,
    actuator: FakeActuator | None = None,
    memory: FakeMemory | None = None,
    bounds: Bounds = OPEN,
    *,
    interval_seconds: float = 20.0,
    **settings: Any,
) -> PassReport:
    """At the time of the snapshot; a resize waits for 120 s at most, and a harmed job is left alone for 600 s."""
    at = observed.taken_at_seconds if isinstance(observed, ClusterSnapshot) else START
    ports = Ports(FakeObserver([observed]), actuator or FakeActuator(), memory or FakeMemory(), FakeClock(at))
    rollback = RollbackSettings(interval_seconds, deferred_deadline_seconds=120.0, backoff_seconds=600.0)
    return reconcile(ports, policy, PassSettings("test", Measuring(interval_seconds), bounds, rollback, **settings))
