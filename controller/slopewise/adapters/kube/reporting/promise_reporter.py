"""Events about promises: an objective is missed or kept again, a deadline hopeless or missed, a target reached.

One event a change and workload. The first pass only records: a former leader emitted what came before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from slopewise.crds.growth_status import PassView, workload_standing
from slopewise.crds.promise_status import NOTHING_ASKED, Change, changes
from slopewise.model import Job, Standing


class PromiseReporter:
    """Compares the standing of each workload with that of the last pass. Called by one thread at a time."""

    def __init__(self, emit: Callable[[str, Change], None]) -> None:
        """`emit` gets the uid of the workload's first job, and the change."""
        self._emit = emit
        self._before: dict[str, Standing] | None = None

    def __call__(self, view: PassView, jobs_of: Mapping[str, Sequence[Job]], known: Collection[str]) -> None:
        """Emit the changes of one pass; `known` are the workloads that there still are, also those without a pod."""
        now = {uid: workload_standing(jobs, view) for uid, jobs in jobs_of.items()}
        if self._before is not None:
            for workload_uid, standing in now.items():
                for change in changes(self._before.get(workload_uid, NOTHING_ASKED), standing):
                    self._emit(jobs_of[workload_uid][0].uid, change)
        kept = {uid: standing for uid, standing in (self._before or {}).items() if uid in known}
        self._before = kept | {uid: standing for uid, standing in now.items() if standing != NOTHING_ASKED}
