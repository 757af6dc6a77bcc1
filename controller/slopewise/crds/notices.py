"""What a JobGrowth says of stops at the target, warnings for its owner, resizes that wait, and the end. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slopewise.crds.conditions import Wanted
from slopewise.model import Job, JobState, JobView

_MODE_GUARDS = ("stop_paused", "stop_canary")
"""Their reasons are the same for every job, and the Managed condition has the mode."""


def stopping_reason(here: JobView) -> str | None:
    """That a job is stopped at its target, or why it goes on there; None: it is not at its target.

    Worked example: `not stopped at its target: a bare pod cannot be suspended; run it as a Job`.
    """
    stop = None if here.known is None else here.known.stop
    if stop is not None and stop.is_done:
        return f"{stop.reason}; its pods save and end"
    if here.stop_withheld is not None and here.stop_withheld.guard not in _MODE_GUARDS:
        return f"not stopped at its target: {here.stop_withheld.reason}"
    if stop is None:
        return None
    return f"not stopped at its target: {stop.detail or 'not known whether it was done'}"


def warned(warnings: Iterable[str]) -> Wanted:
    """Annotations that cannot be used, and measurements that are missing."""
    different = dict.fromkeys(warnings)
    if not different:
        return Wanted(type="Warned", status="False", reason="NoWarning")
    return Wanted(type="Warned", status="True", reason="SeeMessage", message="; ".join(different))


def resize_pending(jobs: Sequence[Job]) -> Wanted:
    """Whether a pod of the workload waits for what was accepted for it."""
    pending = next((job.pending for job in jobs if job.pending is not None), None)
    if pending is None:
        return Wanted(type="ResizePending", status="False", reason="NothingPending")
    return Wanted(type="ResizePending", status="True", reason=pending.result.capitalize(), message=pending.detail)


def finished(jobs: Sequence[Job]) -> Wanted:
    """Whether all pods of the workload have ended, and how."""
    if not all(job.state.ended for job in jobs):
        return Wanted(type="Finished", status="False", reason="Running")
    failed = [job.name for job in jobs if job.state is JobState.FAILED]
    if failed:
        return Wanted(type="Finished", status="True", reason="Failed", message=f"{failed[0]} has failed")
    return Wanted(type="Finished", status="True", reason="Succeeded", message="the training has ended")
