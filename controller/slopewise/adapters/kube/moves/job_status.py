"""Reads from a Job's status whether it has ended."""

from __future__ import annotations

from slopewise.adapters.kube.client.protocol import Json

FAILED = ("Failed", "FailureTarget")
FINISHED = ("Complete", "SuccessCriteriaMet", *FAILED)


def is_finished(job: Json) -> bool:
    """Whether it has ended, or is about to."""
    return has_condition(job, FINISHED)


def ends_with_failure(job: Json) -> bool:
    """Whether it has failed finally, or is about to."""
    return has_condition(job, FAILED)


def has_condition(job: Json, kinds: tuple[str, ...]) -> bool:
    """Whether one of these conditions is true."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(each["type"] in kinds and each["status"] == "True" for each in conditions)
