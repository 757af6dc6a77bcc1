"""Emits events and history entries of moves, stops at the target, and promises.

An event of a migration is about the workload, because its pods are replaced meanwhile; one of a placement is about the
pod. A stop that is withheld and a promise that is missed or kept again give one event a change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from slopewise.adapters.kube.events import About, Event, EventRecorder
from slopewise.adapters.kube.state.job_growth_store import JobGrowthStore
from slopewise.adapters.kube.workloads.owners import JobIndex
from slopewise.crds import history
from slopewise.crds.growth_status import PassView, workload_objective_status
from slopewise.crds.job_growth import Action
from slopewise.crds.promise_status import NOTHING_ASKED, Change, changes
from slopewise.guards.review import is_routine
from slopewise.model import (
    Job,
    JobUid,
    Migrate,
    Move,
    MoveStage,
    ObjectiveStatus,
    Outcome,
    OutcomeResult,
    PassReport,
    Place,
    Stop,
    Withheld,
)
from slopewise.tracking import OncePerChange

Act = Callable[[str, Action], None]
"""Appends an action to the history of the job of that uid."""

_APPLIED = {"Resize": "Resized", "Place": "Placed", "Move": "MoveBegun", "Stop": "StoppedAtTarget"}
"""The reason of an event by its action, where the action was carried out."""


def event_reason(action: str, result: OutcomeResult) -> str:
    """`Resized`, or `ResizeDeferred`, `ResizeInfeasible`, `ResizeFailed`."""
    return _APPLIED[action] if result == "applied" else f"{action}{result.capitalize()}"


_STAGES: Mapping[MoveStage, str] = {
    "begun": "MoveBegun",
    "resumed": "Moved",
    "cancelled": "MoveCancelled",
    "failed": "MoveFailed",
}


class DecisionReporter:
    """Reports the moves and the stops of one policy. Called by one thread at a time."""

    def __init__(self, index: JobIndex, job_growths: JobGrowthStore, events: EventRecorder, act: Act) -> None:
        self._index = index
        self._job_growths = job_growths
        self._events = events
        self._act = act
        self._refused: dict[str, OutcomeResult] = {}
        """Results of the moves that the last pass tried without success, by job."""
        self._withheld = OncePerChange[str, str]()
        """The guards that held moves back in the last pass, by job."""
        self._stops = OncePerChange[str, str]()
        """The last event reason of each job that is at its target, by job."""

    def emit(self, report: PassReport) -> None:
        """Report all moves and stops of one pass with a snapshot."""
        now = report.taken_at_seconds
        jobs = report.snapshot.jobs if report.snapshot is not None else ()
        waiting = {job.uid for job in jobs if job.movability is not None and job.movability.backoff_reason is not None}
        self._emit_outcomes(report.results.of(Place, Migrate), waiting, now)
        for event in report.results.events:
            self._act(event.job_uid, history.move_event(event, now))
            self._emit_about(event.job_uid, _STAGES[event.stage], event.message, "Move", warning=event.warning)
        self._emit_withheld(report.results.withheld_of(Place, Migrate), now)
        self._stops.forget_all_but({job.uid for job in jobs})
        self._emit_stops(report.results.of(Stop), report.results.withheld_of(Stop), now)

    def _emit_outcomes(self, outcomes: Sequence[Outcome[Move]], waiting: Collection[str], now: float) -> None:
        """A begun migration has its own event; a repeated failure is reported once.

        `waiting`: uids of the jobs whose last move could not be begun, and that this pass does not try.
        """
        before = self._refused
        self._refused = {uid: result for uid, result in before.items() if uid in waiting}
        self._refused |= {each.decision.job_uid: each.result for each in outcomes if each.result != "applied"}
        for outcome in outcomes:
            placed, uid = isinstance(outcome.decision, Place), outcome.decision.job_uid
            if (outcome.result == "applied" and not placed) or before.get(uid) == outcome.result:
                continue
            reason = event_reason("Place" if placed else "Move", outcome.result)
            # How it was placed, and why there and so: a size that was clamped says so in the decision's reason.
            parts = (outcome.detail, outcome.decision.reason if placed or not outcome.detail else "")
            why = "; ".join(filter(None, parts))
            self._emit(outcome.decision, reason, why, warning=outcome.result != "applied")
            self._act(uid, history.moved(outcome, now))

    def _emit_withheld(self, withheld: Sequence[Withheld[Move]], now: float) -> None:
        withheld = [each for each in withheld if not is_routine(each.guard)]
        for each in withheld:
            if self._withheld.is_new(each.decision.job_uid, each.guard):
                self._emit(each.decision, "MoveWithheld", each.reason, warning=False)
                self._act(each.decision.job_uid, history.withheld(each, now))
        self._withheld.forget_all_but({each.decision.job_uid for each in withheld})

    def _emit_stops(self, outcomes: Sequence[Outcome[Stop]], withheld: Sequence[Withheld[Stop]], now: float) -> None:
        for outcome in outcomes:
            uid, done = outcome.decision.job_uid, outcome.result == "applied"
            reason = event_reason("Stop", outcome.result)
            if done or self._stops.is_new(uid, reason):
                self._act(uid, history.stopped(outcome, now))
                self._emit_about(uid, reason, outcome.detail or outcome.decision.reason, "Stop", warning=not done)
        for each in withheld:
            uid = each.decision.job_uid
            if not is_routine(each.guard) and self._stops.is_new(uid, "StopWithheld"):
                self._emit_about(uid, "StopWithheld", each.reason, "Stop", warning=True)

    def _emit(self, move: Move, reason: str, why: str, *, warning: bool) -> None:
        """About the pod that arrives, or the workload to be moved."""
        action = "Place" if isinstance(move, Place) else "Move"
        self._emit_about(move.job_uid, reason, f"{history.move_text(move)}: {why}", action, warning=warning)

    def _emit_about(self, job_uid: str, reason: str, note: str, action: str, *, warning: bool) -> None:
        """About a job's workload; its pod for a placement, and where the workload has no document yet."""
        document = self._job_growths.find(JobUid.of(job_uid).workload)
        if action == "Place" or document is None:
            about = about_pod(self._index, job_uid)
        else:
            about = About.of(document.workload, document.namespace)
        if about is not None:
            self._events.emit(Event(about, reason, note, warning, action))


def about_pod(index: JobIndex, job_uid: str) -> About | None:
    """A job's pod; None: it is gone."""
    managed = index.find(job_uid)
    return None if managed is None else About.pod(managed)


class PromiseReporter:
    """Compares the status of each workload with that of the last pass. Called by one thread at a time."""

    def __init__(self, emit: Callable[[str, Change], None]) -> None:
        """`emit` gets the uid of the workload's first job, and the change."""
        self._emit = emit
        self._before: dict[str, ObjectiveStatus] | None = None

    def __call__(self, view: PassView, jobs_of: Mapping[str, Sequence[Job]], known: Collection[str]) -> None:
        """Emit the changes of one pass; `known` are the workloads that there still are, also those without a pod."""
        of_all = ((uid, workload_objective_status(jobs, view)) for uid, jobs in jobs_of.items())
        now = {uid: status for uid, status in of_all if status is not NOTHING_ASKED}
        if self._before is not None:
            for workload_uid, status in now.items():
                for change in changes(self._before.get(workload_uid, NOTHING_ASKED), status):
                    self._emit(jobs_of[workload_uid][0].uid, change)
        kept = {uid: status for uid, status in (self._before or {}).items() if uid in known}
        self._before = kept | now
