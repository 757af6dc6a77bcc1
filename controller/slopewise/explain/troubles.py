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


_NEUTRAL_AT_THE_END = frozenset({"Managed", "MetricsAvailable"})
"""A job that has succeeded is changed no more, and reports no more."""


def troubles(conditions: Iterable[Condition]) -> list[Condition]:
    """Those that are not as they should be."""
    found = list(conditions)
    ended = any((each.type, each.status, each.reason) == ("Finished", "True", "Succeeded") for each in found)
    return [each for each in found if _is_trouble(each) and not (ended and each.type in _NEUTRAL_AT_THE_END)]


def _is_trouble(condition: Condition) -> bool:
    if condition.type in _NEUTRAL or condition.reason == ON_ITS_WAY:
        return False
    return condition.status == ("False" if condition.type in _GOOD else "True")
