"""Events and history of moves: placed, begun, at work again, gone wrong, and why one that is wished for is withheld.

Before it: `reporting.py`, with each report of a policy's passes. After it: `events.py`, and the JobGrowth's history. An
event of a migration is about the workload, because its pods come and go meanwhile; one of a placement is about the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from controller import history
from controller.adapters.kube.contracts import Roster
from controller.adapters.kube.events import About, Event, EventRecorder
from controller.adapters.kube.growth_book import GrowthBook
from controller.job_growth import Action
from controller.model import Move, MoveNews, MoveOutcome, MoveStage, OutcomeResult, PassReport, Place, WithheldMove

Act = Callable[[str, Action], None]
"""Keeps an action in the history of the job of that uid."""

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
    "harmed": "MoveHarmed",
}

_ROUTINE_GUARDS = frozenset({
    "move_paused", "move_canary", "migration_disabled", "may_migrate", "under_way", "minimum_stay", "no_return",
    "whole_or_not", "node_budget", "concurrency", "gain", "move_backoff", "attempts",
})  # fmt: skip
"""These hold moves back in every other pass, and nobody has to do anything about it: no events. The decision record
and the metric of withheld moves have them."""


class MoveReporter:
    """Tells about the moves of one policy. Called by one thread at a time."""

    def __init__(self, roster: Roster, book: GrowthBook, events: EventRecorder, act: Act) -> None:
        self._roster = roster
        self._book = book
        self._events = events
        self._act = act
        self._refused: dict[str, OutcomeResult] = {}
        """What became of the moves that the last pass tried in vain, by job."""
        self._withheld: dict[str, str] = {}
        """The guards that held moves back in the last pass, by job."""

    def tell(self, report: PassReport) -> None:
        """All about the moves of one pass that saw something."""
        now = report.taken_at_seconds
        jobs = report.snapshot.jobs if report.snapshot is not None else ()
        waiting = {job.uid for job in jobs if job.mobility is not None and job.mobility.backoff_reason is not None}
        self._tell_outcomes(report.moves, waiting, now)
        for told in report.moves_told:
            self._tell_news(told, now)
        self._tell_withheld(report.moves_withheld, now)

    def _tell_outcomes(self, outcomes: Sequence[MoveOutcome], waiting: Collection[str], now: float) -> None:
        """A migration that was begun is news, and told as such; one that fails alike each time is told once.

        `waiting`: uids of the jobs whose last move could not be begun, and that are not tried in this pass.
        """
        before = self._refused
        self._refused = {uid: result for uid, result in before.items() if uid in waiting}
        self._refused |= {each.move.job_uid: each.result for each in outcomes if each.result != "applied"}
        for outcome in outcomes:
            placed, uid = isinstance(outcome.move, Place), outcome.move.job_uid
            if (outcome.result == "applied" and not placed) or before.get(uid) == outcome.result:
                continue
            reason = (_PLACED if placed else _MOVED)[outcome.result]
            self._emit(outcome.move, reason, outcome.detail or outcome.move.reason, outcome.result != "applied")
            self._act(uid, history.moved(outcome, now))

    def _tell_news(self, told: MoveNews, now: float) -> None:
        self._act(told.job_uid, history.news(told, now))
        if (about := self._about_workload(told.job_uid)) is not None:
            self._events.emit(Event(about, _STAGES[told.stage], told.sentence, told.warning, "Move"))

    def _tell_withheld(self, withheld: Sequence[WithheldMove], now: float) -> None:
        before = self._withheld
        self._withheld = {each.move.job_uid: each.guard for each in withheld if each.guard not in _ROUTINE_GUARDS}
        for each in withheld:
            uid = each.move.job_uid
            if self._withheld.get(uid) == each.guard and before.get(uid) != each.guard:
                self._emit(each.move, "MoveWithheld", each.reason, warning=False)
                self._act(uid, history.withheld(each, now))

    def _emit(self, move: Move, reason: str, why: str, warning: bool) -> None:
        """About the pod that arrives, or the workload that is to be moved."""
        placed = isinstance(move, Place)
        about = self._about_pod(move.job_uid) if placed else self._about_workload(move.job_uid)
        if about is not None:
            note = f"{history.move_text(move)}: {why}"
            self._events.emit(Event(about, reason, note, warning, "Place" if placed else "Move"))

    def _about_pod(self, job_uid: str) -> About | None:
        managed = self._roster.find(job_uid)
        return None if managed is None else About.pod(managed)

    def _about_workload(self, job_uid: str) -> About | None:
        """The pod where nothing is remembered of its workload yet."""
        document = self._book.find(job_uid.rpartition(":")[0])
        if document is None:
            return self._about_pod(job_uid)
        owner = document.workload
        return About(owner.api_version, owner.kind, owner.name, owner.uid, document.namespace)
