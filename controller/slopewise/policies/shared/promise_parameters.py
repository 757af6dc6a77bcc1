"""The parameters of policies that keep a promise (objective or deadline) on several nodes: `dqoes` and `deadline`.

Each takes the name of the promise for its description, and its source where that differs.
"""

from __future__ import annotations

from typing import Any

from slopewise.policies import parameter

_SWITCH = "true or false"


def placement_parameter(*, source: str) -> Any:
    """Whether arriving jobs are placed."""
    return parameter(True, unit=_SWITCH, source=source, description="choose the node of arriving jobs")


def moves_parameter(promise: str) -> Any:
    """Whether jobs are moved whose promise their node cannot keep (`promise_moves.py`)."""
    description = f"move a job whose {promise} its node cannot keep to a node that can"
    return parameter(True, unit=_SWITCH, source="ours", description=description)


def missed_evaluations_parameter(promise: str) -> Any:
    """After how many evaluations that is."""
    return parameter(
        3,
        ge=1,
        le=100,
        unit="evaluations",
        source="ours",
        description=f"in a row at which its node could not keep its {promise}, before a job is moved",
    )
