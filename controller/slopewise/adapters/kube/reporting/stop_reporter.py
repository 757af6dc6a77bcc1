"""Emits events and history entries of stops at the target: stopped, or why not; each once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slopewise.adapters.kube.events import Event, EventRecorder
from slopewise.adapters.kube.reporting.move_reporter import about_workload
from slopewise.adapters.kube.state.job_growth_store import JobGrowthStore
from slopewise.adapters.kube.workloads.job_index import JobIndex
from slopewise.crds import history
from slopewise.crds.job_growth import Action
from slopewise.guards.review import is_routine
from slopewise.model import OutcomeResult, PassReport, Stop
from slopewise.tracking import OncePerChange

_RESULTS: Mapping[OutcomeResult, str] = {
    "applied": "StoppedAtTarget",
    "deferred": "StopDeferred",
    "infeasible": "StopInfeasible",
    "failed": "StopFailed",
}


class StopReporter:
    """Reports the stops of one policy. Called by one thread at a time."""

    def __init__(
        self, index: JobIndex, job_growths: JobGrowthStore, events: EventRecorder, act: Callable[[str, Action], None]
    ) -> None:
        self._index = index
        self._job_growths = job_growths
        self._events = events
        self._act = act
        self._once = OncePerChange[str, str]()
        """The last event reason of each job that is at its target; by uid."""

    def emit(self, report: PassReport) -> None:
        """Report all stops of one pass with a snapshot."""
        self._once.forget_all_but({job.uid for job in report.snapshot.jobs} if report.snapshot is not None else set())
        for outcome in report.results.of(Stop):
            uid, reason = outcome.decision.job_uid, _RESULTS[outcome.result]
            if outcome.result == "applied" or self._once.is_new(uid, reason):
                self._act(uid, history.stopped(outcome, report.taken_at_seconds))
                self._emit(uid, reason, outcome.detail or outcome.decision.reason, warning=outcome.result != "applied")
        for withheld in report.results.withheld_of(Stop):
            uid = withheld.decision.job_uid
            if not is_routine(withheld.guard) and self._once.is_new(uid, "StopWithheld"):
                self._emit(uid, "StopWithheld", withheld.reason, warning=True)

    def _emit(self, job_uid: str, reason: str, why: str, *, warning: bool) -> None:
        about = about_workload(self._index, self._job_growths, job_uid)
        if about is not None:
            self._events.emit(Event(about, reason, why, warning, "Stop"))
