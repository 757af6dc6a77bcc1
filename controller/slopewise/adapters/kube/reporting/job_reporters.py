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
    MoveEvent,
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

_PLACED: Mapping[OutcomeResult, str] = {
    "applied": "Placed",
    "deferred": "PlaceDeferred",
    "infeasible": "PlaceInfeasible",
    "failed": "PlaceFailed",
}
_MOVED: Mapping[OutcomeResult, str] = {
    "applied": "MoveBegun",
    "deferred": "MoveDeferred",
    "infeasible": "MoveInfeasible",
    "failed": "MoveFailed",
}
_STAGES: Mapping[MoveStage, str] = {
    "begun": "MoveBegun",
    "resumed": "Moved",
    "cancelled": "MoveCancelled",
    "failed": "MoveFailed",
}


class MoveReporter:
    """Reports the moves of one policy. Called by one thread at a time."""

    def __init__(self, index: JobIndex, job_growths: JobGrowthStore, events: EventRecorder, act: Act) -> None:
        self._index = index
        self._job_growths = job_growths
        self._events = events
        self._act = act
        self._refused: dict[str, OutcomeResult] = {}
        """Results of the moves that the last pass tried without success, by job."""
        self._withheld: dict[str, str] = {}
        """The guards that held moves back in the last pass, by job."""

    def emit(self, report: PassReport) -> None:
        """Report all moves of one pass with a snapshot."""
        now = report.taken_at_seconds
        jobs = report.snapshot.jobs if report.snapshot is not None else ()
        waiting = {job.uid for job in jobs if job.movability is not None and job.movability.backoff_reason is not None}
        self._emit_outcomes(report.results.of(Place, Migrate), waiting, now)
        for event in report.results.events:
            self._emit_event(event, now)
        self._emit_withheld(report.results.withheld_of(Place, Migrate), now)

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
            reason = (_PLACED if placed else _MOVED)[outcome.result]
            # How it was placed, and why there and so: a size that was clamped says so in the decision's reason.
            parts = (outcome.detail, outcome.decision.reason if placed or not outcome.detail else "")
            why = "; ".join(filter(None, parts))
            self._emit(outcome.decision, reason, why, warning=outcome.result != "applied")
            self._act(uid, history.moved(outcome, now))

    def _emit_event(self, event: MoveEvent, now: float) -> None:
        self._act(event.job_uid, history.move_event(event, now))
        if (about := self._about_workload(event.job_uid)) is not None:
            self._events.emit(Event(about, _STAGES[event.stage], event.message, event.warning, "Move"))

    def _emit_withheld(self, withheld: Sequence[Withheld[Move]], now: float) -> None:
        before = self._withheld
        self._withheld = {each.decision.job_uid: each.guard for each in withheld if not is_routine(each.guard)}
        for each in withheld:
            uid = each.decision.job_uid
            if self._withheld.get(uid) == each.guard and before.get(uid) != each.guard:
                self._emit(each.decision, "MoveWithheld", each.reason, warning=False)
                self._act(uid, history.withheld(each, now))

    def _emit(self, move: Move, reason: str, why: str, *, warning: bool) -> None:
        """About the pod that arrives, or the workload to be moved."""
        placed = isinstance(move, Place)
        about = about_pod(self._index, move.job_uid) if placed else self._about_workload(move.job_uid)
        if about is not None:
            note = f"{history.move_text(move)}: {why}"
            self._events.emit(Event(about, reason, note, warning, "Place" if placed else "Move"))

    def _about_workload(self, job_uid: str) -> About | None:
        return about_workload(self._index, self._job_growths, job_uid)


def about_pod(index: JobIndex, job_uid: str) -> About | None:
    """A job's pod; None: it is gone."""
    managed = index.find(job_uid)
    return None if managed is None else About.pod(managed)


def about_workload(index: JobIndex, job_growths: JobGrowthStore, job_uid: str) -> About | None:
    """A job's workload; its pod where the workload has no document yet."""
    document = job_growths.find(JobUid.of(job_uid).workload)
    if document is None:
        return about_pod(index, job_uid)
    owner = document.workload
    return About(owner.api_version, owner.kind, owner.name, owner.uid, document.namespace)


class PromiseReporter:
    """Compares the status of each workload with that of the last pass. Called by one thread at a time."""

    def __init__(self, emit: Callable[[str, Change], None]) -> None:
        """`emit` gets the uid of the workload's first job, and the change."""
        self._emit = emit
        self._before: dict[str, ObjectiveStatus] | None = None

    def __call__(self, view: PassView, jobs_of: Mapping[str, Sequence[Job]], known: Collection[str]) -> None:
        """Emit the changes of one pass; `known` are the workloads that there still are, also those without a pod."""
        now = {uid: workload_objective_status(jobs, view) for uid, jobs in jobs_of.items()}
        if self._before is not None:
            for workload_uid, status in now.items():
                for change in changes(self._before.get(workload_uid, NOTHING_ASKED), status):
                    self._emit(jobs_of[workload_uid][0].uid, change)
        kept = {uid: status for uid, status in (self._before or {}).items() if uid in known}
        self._before = kept | {uid: status for uid, status in now.items() if status != NOTHING_ASKED}


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
