"""The status of a workload that has no pod on a node: moved, waiting for one, suspended, or over. Pure.

The counterpart of `growth_face.py` for `ClusterSnapshot.absent`: without it a JobGrowth would show what the last pod
did, for as long as no other one comes.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.conditions import Wanted, updated
from controller.growth_face import LONGEST_REASON, UNKNOWN
from controller.job_growth import JobGrowthStatus
from controller.model import Absence, AbsentState
from controller.texts import bounded

_ENDED: Mapping[AbsentState, str] = {"finished": "Succeeded", "failed": "Failed"}
"""Reasons of the condition Finished."""


def absent_face(absence: Absence, previous: JobGrowthStatus, now_seconds: float) -> JobGrowthStatus:
    """What was measured last stays; what it has, and when it would be done, is not known without a pod."""
    state, ended = absence.state.capitalize(), _ENDED.get(absence.state)
    wanted = (
        Wanted(type="MetricsAvailable", status="Unknown", reason=state, message="it has no pod on a node"),
        Wanted(type="Managed", status="False", reason=state, message=absence.reason),
        Wanted(type="InEffect", status="Unknown", reason=state),
        Wanted(type="ResizePending", status="False", reason="NothingPending"),
        Wanted(type="Finished", status="True", reason=ended, message=absence.reason)
        if ended
        else Wanted(type="Finished", status="False", reason=state),
    )
    return previous.model_copy(
        update={
            "state": state,
            "eta": UNKNOWN,
            "cpu": UNKNOWN,
            "cpu_millicores": None,
            "cpu_accepted_millicores": None,
            "cpu_wanted_millicores": None,
            "reason": bounded(absence.reason, LONGEST_REASON),
            "node": None,
            "conditions": updated(wanted, previous.conditions, now_seconds=now_seconds),
        }
    )
