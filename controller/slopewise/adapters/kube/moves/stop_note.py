"""The note on a Job that was stopped at its target: who suspended it, when and why. Pure.

`suspend/stop.py` writes it together with `spec.suspend: true`. Nothing acts on it: `moves/owner_cache.py` reads it to
say why the Job has no pods, and the sweeper and the thread of moves go by another annotation. It stays when the owner
resumes the Job, and counts while that is suspended.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from slopewise.adapters.kube.cache.records import STOPPED
from slopewise.adapters.kube.client.protocol import Json
from slopewise.text import bounded

MAX_REASON = 240


class StopNote(NamedTuple):
    """What the annotation says."""

    at_seconds: float
    reason: str
    policy: str

    def written(self) -> str:
        """The annotation's text."""
        return json.dumps({"atSeconds": self.at_seconds, "policy": self.policy, "reason": self.reason})


def note_on(job: Json) -> StopNote | None:
    """The note of a suspended Job; None: it runs, or has no readable note.

    Tenants can write the annotation: their text is cut, and one that makes no sense counts as none.
    """
    if not job["spec"].get("suspend"):
        return None
    try:
        found = json.loads((job["metadata"].get("annotations") or {}).get(STOPPED, ""))
        return StopNote(float(found["atSeconds"]), bounded(str(found["reason"]), MAX_REASON), str(found["policy"]))
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
