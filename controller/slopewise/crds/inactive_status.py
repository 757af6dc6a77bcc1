"""The status of a workload that no pass sees: without a pod on a node, or no longer selected by a policy. Pure.

Without it a JobGrowth shows what its last pod did until another one comes. The figures that were measured last stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slopewise.crds import promise_status
from slopewise.crds.conditions import Condition, Wanted, updated
from slopewise.crds.growth_status import MAX_REASON, cores_text, not_managed
from slopewise.crds.job_growth import UNKNOWN, JobGrowthStatus
from slopewise.model import Absence, AbsentState, TargetStatus
from slopewise.text import bounded

_ENDED: Mapping[AbsentState, str] = {"finished": "Succeeded", "failed": "Failed", "stopped": "StoppedAtTarget"}
"""Reasons of the condition Finished."""


@dataclass(frozen=True, slots=True)
class Departure:
    """Why a workload that has a pod is no longer among the jobs of its policy."""

    message: str
    actual_millicores: int | None
    """CPU of its pod, in the dimension that was controlled; None: not known."""


def absent_status(absence: Absence, previous: JobGrowthStatus, now_seconds: float) -> JobGrowthStatus:
    """The status of a workload without a pod on a node: moved, waiting for one, suspended, stopped, or over."""
    state, ended = absence.state.capitalize(), _ENDED.get(absence.state)
    wanted = (
        Wanted("MetricsAvailable", "Unknown", state, "it has no pod on a node"),
        not_managed(state, absence.reason),
        Wanted("InEffect", "Unknown", state),
        Wanted("ResizePending", "False", "NothingPending"),
        Wanted("Finished", "True", ended, absence.reason) if ended else Wanted("Finished", "False", state),
    )
    status = _inactive(previous, wanted, now_seconds, state=state, cpu=UNKNOWN, reason=absence.reason, node=None)
    kept = promise_status.last_conditions(previous.conditions, status.conditions)
    update: dict[str, Any] = {"conditions": (*status.conditions, *kept)}
    if previous.promise in (None, UNKNOWN):
        update |= promise_status.shown_of_arrival(absence.objectives, now_seconds)
    if ended:
        update |= promise_status.shown_of_ended(_target(kept), previous, succeeded=absence.state == "finished")
    return status.model_copy(update=update)


def _target(kept: Sequence[Condition]) -> TargetStatus | None:
    """By the last conditions."""
    holds = {each.type: each.status == "True" for each in kept}
    target = TargetStatus(holds.get(promise_status.DELIVERABLE), holds.get(promise_status.TARGET_REACHED))
    return None if target == TargetStatus() else target


def departed_status(departure: Departure, previous: JobGrowthStatus, now_seconds: float) -> JobGrowthStatus:
    """The status of a workload that its policy no longer selects."""
    cpu, reason = departure.actual_millicores, "NotSelected"
    wanted = (
        Wanted("MetricsAvailable", "Unknown", reason),
        not_managed(reason, departure.message),
        Wanted("InEffect", "Unknown", reason),
        Wanted("ResizePending", "Unknown", reason),
        Wanted("Finished", "Unknown", reason),
    )
    shown = UNKNOWN if cpu is None else cores_text(cpu)
    status = _inactive(previous, wanted, now_seconds, state="Unmanaged", cpu=shown, reason=departure.message)
    return status.model_copy(update={"cpu_millicores": cpu, **promise_status.shown_of_departed()})


def _inactive(
    previous: JobGrowthStatus, wanted: Iterable[Wanted], now_seconds: float, *, reason: str, **changes: Any
) -> JobGrowthStatus:
    update = {
        "progress": previous.progress or UNKNOWN,
        "eta": UNKNOWN,
        "cpu_millicores": None,
        "cpu_accepted_millicores": None,
        "cpu_wanted_millicores": None,
        "memory": UNKNOWN,
        "memory_working_set_bytes": None,
        "memory_request_bytes": None,
        "memory_limit_bytes": None,
        "memory_reason": None,
        "chance": None,
        "reason": bounded(reason, MAX_REASON),
        "conditions": updated(wanted, previous.conditions, now_seconds=now_seconds),
    }
    return previous.model_copy(update=update | changes)
