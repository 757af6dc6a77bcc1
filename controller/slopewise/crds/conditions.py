"""Status conditions in the form of Kubernetes, so that `kubectl wait --for=condition=...` works on custom resources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from slopewise.text import bounded

Status = Literal["True", "False", "Unknown"]

MAX_MESSAGE = 1024
"""Messages may contain text of others (a kubelet, a tenant's label), so they are bounded."""

LIST_BY_TYPE = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
"""What the schema says of a list of conditions: one of each type, each with a writer of its own."""


class StatusPart(BaseModel):
    """Base of what we write into a status: camelCase keys; what a newer version wrote is not minded."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Condition(StatusPart):
    """One fact about an object, and since when it is so."""

    type: str = Field(max_length=316)
    status: Status
    reason: str = Field(max_length=1024, description="one word in CamelCase, for programs")
    message: str = Field(max_length=32_768, description="for people")
    last_transition_time: datetime = Field(description="when the status became what it is")
    observed_generation: int | None = Field(None, description="the metadata.generation that this is about")


Conditions = Annotated[tuple[Condition, ...], Field(json_schema_extra=LIST_BY_TYPE)]


def timestamp(seconds: float) -> datetime:
    """Unix seconds as Kubernetes writes times: UTC, whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC)


class Wanted(NamedTuple):
    """A condition as it is now; since when, `updated` finds out. No model: 10,000 are made in a pass."""

    type: str
    status: Status
    reason: str
    message: str = ""


def updated(
    wanted: Iterable[Wanted], previous: Sequence[Condition], *, now_seconds: float, generation: int | None = None
) -> tuple[Condition, ...]:
    """The conditions that are `wanted`; one whose status did not change keeps the time since when it is so."""
    before = {condition.type: condition for condition in previous}
    return tuple(_updated(each, before.get(each.type), now_seconds, generation) for each in wanted)


def _updated(wanted: Wanted, before: Condition | None, now_seconds: float, generation: int | None) -> Condition:
    same = before is not None and before.status == wanted.status
    since = before.last_transition_time if before is not None and same else timestamp(now_seconds)
    return Condition(
        type=wanted.type,
        status=wanted.status,
        reason=wanted.reason,
        message=bounded(wanted.message, MAX_MESSAGE),
        last_transition_time=since,
        observed_generation=generation,
    )


_GOOD = frozenset({"Ready", "Managed", "InEffect", "MetricsAvailable", "CapacityKnown"})
"""True while all is well; any other one is a trouble when it is true."""

ON_ITS_WAY = "Accepted"
"""Reason of InEffect for the second that a kubelet needs."""

_NEUTRAL = frozenset({"Finished", "Deliverable", "TargetReached"})
"""True or not, they ask for nothing."""

_NEUTRAL_AT_THE_END = frozenset({"Managed", "MetricsAvailable"})
"""A job that has succeeded is changed no more, and reports no more."""


def troubles(conditions: Iterable[Condition]) -> list[Condition]:
    """Those of a TrainingPolicy or a JobGrowth that are not as they should be."""
    found = list(conditions)
    ended = any((each.type, each.status, each.reason) == ("Finished", "True", "Succeeded") for each in found)
    return [each for each in found if _is_trouble(each) and not (ended and each.type in _NEUTRAL_AT_THE_END)]


def _is_trouble(condition: Condition) -> bool:
    if condition.type in _NEUTRAL or condition.reason == ON_ITS_WAY:
        return False
    return condition.status == ("False" if condition.type in _GOOD else "True")
