"""Which conditions of a TrainingPolicy or a JobGrowth somebody should look at."""

from __future__ import annotations

from collections.abc import Iterable

from slopewise.crds.conditions import Condition

_GOOD = frozenset({"Ready", "Managed", "InEffect", "MetricsAvailable", "CapacityKnown"})
"""True while all is well; any other one is a trouble when it is true."""

ON_ITS_WAY = "Accepted"
"""Reason of InEffect for the second that a kubelet needs."""

_NEUTRAL = frozenset({"Finished", "Deliverable", "TargetReached"})
"""True or not, they ask for nothing."""


def troubles(conditions: Iterable[Condition]) -> list[Condition]:
    """Those that are not as they should be."""
    return [each for each in conditions if _is_trouble(each)]


def _is_trouble(condition: Condition) -> bool:
    if condition.type in _NEUTRAL or condition.reason == ON_ITS_WAY:
        return False
    return condition.status == ("False" if condition.type in _GOOD else "True")
