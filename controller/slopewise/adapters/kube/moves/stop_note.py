"""The note on a Job that was stopped at its target: who suspended it, when and why. Pure.

`suspend/stop.py` writes it together with `spec.suspend: true`. Nothing acts on it: `moves/owner_cache.py` reads it to
say why the Job has no pods, and the sweeper and the thread of moves go by another annotation. It stays when the owner
resumes the Job, so it counts only for the suspension that it was written with.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import NamedTuple

from slopewise.adapters.kube.cache.records import STOPPED
from slopewise.adapters.kube.client.protocol import Json
from slopewise.text import bounded

MAX_REASON = 240

_LATER_SECONDS = 300.0
"""The Job controller notes a suspension within seconds; its clock and ours may differ by minutes. One that it notes
later than that is another one: the owner has resumed the Job, and suspended it himself."""


class StopNote(NamedTuple):
    """What the annotation says."""

    at_seconds: float
    reason: str
    policy: str

    def written(self) -> str:
        """The annotation's text."""
        return json.dumps({"atSeconds": self.at_seconds, "policy": self.policy, "reason": self.reason})


def note_on(job: Json) -> StopNote | None:
    """The note of a Job that is suspended by it; None: it runs, or was suspended by others, or has no readable note."""
    if not job["spec"].get("suspend"):
        return None
    note = _parsed((job["metadata"].get("annotations") or {}).get(STOPPED, ""))
    if note is None:
        return None
    noted_at = _suspension_noted_at_seconds(job)
    return note if noted_at is None or noted_at - note.at_seconds <= _LATER_SECONDS else None


def _parsed(text: str) -> StopNote | None:
    """Tenants can write the annotation: their text is cut, and one that makes no sense counts as none."""
    try:
        found = json.loads(text)
        return StopNote(float(found["atSeconds"]), bounded(str(found["reason"]), MAX_REASON), str(found["policy"]))
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


def _suspension_noted_at_seconds(job: Json) -> float | None:
    """When the Job controller noted the present suspension; None: not yet."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Suspended" and condition["status"] == "True" and condition.get("lastTransitionTime"):
            return datetime.fromisoformat(condition["lastTransitionTime"]).timestamp()
    return None
