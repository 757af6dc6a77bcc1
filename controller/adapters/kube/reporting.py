"""After each pass of a policy: what `kubectl get growth`, the policy's status and Events are told.

`loop.py` hands the report in. Nothing is sent from here: documents are marked, events queued. For 5,000 jobs that is
a comparison each, 0.1 s of a pass; texts are made when a status is written.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from controller import history
from controller.adapters.kube.contracts import Roster
from controller.adapters.kube.events import About, Event, EventRecorder
from controller.adapters.kube.growth_book import GrowthBook
from controller.adapters.kube.growth_objects import GrowthDocument
from controller.adapters.kube.move_reporting import MoveReporter
from controller.adapters.kube.policies import PolicyDocument
from controller.growth_face import Key, PassView, change_text, transition_key, view_of
from controller.job_growth import Action
from controller.model import Job, Outcome, OutcomeResult, PassReport, Resize, Withheld
from controller.policy_status import Conflict, OtherResizers, Standing, others_message, standing_key
from controller.restoring import GivenBack
from controller.settings import TrainingPolicySpec

_REASON: Mapping[OutcomeResult, str] = {
    "applied": "Resized",
    "deferred": "ResizeDeferred",
    "infeasible": "ResizeInfeasible",
    "failed": "ResizeFailed",
}

_ROUTINE_GUARDS = frozenset({"paused", "canary", "cooldown", "minimum_change", "moving"})
"""These hold changes back in every other pass, and nobody has to do anything about it: no events."""

_BEGUN = {"Observe": "MetricsUnavailable", "Decide": "PolicyFailed"}
_OVER = {
    "Observe": ("MetricsAvailable", "the pass can observe again"),
    "Decide": ("PolicyDecides", "the policy decides again"),
}
"""Events by the step of the pass that fails."""

_MOST_EARLY = 1_000
"""Workloads that were placed and are no jobs yet; one that never becomes one is forgotten with the policy."""


class StatusReporter:
    """A sink of one policy's pass reports. Called by one thread at a time, but for `refresh`."""

    def __init__(
        self,
        name: str,
        spec: TrainingPolicySpec,
        book: GrowthBook,
        roster: Roster,
        events: EventRecorder,
        *,
        document: PolicyDocument | None = None,
        policy_uid: str = "",
        generation: int = 1,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`document` and `policy_uid`: of the TrainingPolicy; none where the policy came as a file."""
        self._name = name
        self._spec = spec
        self._book = book
        self._roster = roster
        self._events = events
        self._document = document
        self._clock = clock
        self._about = About.policy(name, policy_uid) if policy_uid else None
        self._moves = MoveReporter(roster, book, events, self._act)
        self._early: dict[str, list[Action]] = {}
        """Actions of workloads that nothing is remembered of yet: a pod is placed before it is a job."""
        self._standing = Standing(generation, spec.mode, canary_ratio=spec.behaviour.canary_ratio)
        self._standing_key: Key = ()
        self._keys: dict[str, Key] = {}
        self._jobs_of: dict[str, list[Job]] = {}
        """The jobs of the last pass by workload, in the order of their slots."""
        self._seen: PassView | None = None
        self._lock = threading.Lock()
        """Held while statuses are marked: passes and refreshes come from different threads."""
        self._guards: dict[str, str] = {}
        self._left_alone: dict[str, float] | None = None
        self._without_loss: dict[str, str] = {}
        """What was said of the jobs that report no loss, by uid."""
        self._waiting: set[str] = set()
        """Jobs whose resize the last pass put off."""
        self._failed: Mapping[str, str] = {}
        """What was said of the resizes that failed in the last pass, by the job's uid."""

    def __call__(self, report: PassReport) -> None:
        """Tell all about one pass."""
        view = view_of(report, policy=self._name, mode=self._spec.mode, control=self._spec.resources.control)
        self._tell_held(report)
        if view is not None:
            with self._lock:
                self._show_jobs(view)
            self._tell_outcomes(report.outcomes, view.now_seconds)
            self._tell_withheld(report.withheld)
            self._moves.tell(report)
            self._tell_harmed(view)
            self._tell_missing(view.snapshot.jobs)
        self._standing = replace(
            self._standing,
            held=report.held,
            policy_failed=report.policy_failed,
            seen=view or self._standing.seen,
        )
        degraded = self._standing.degraded or self._fails_again(report)
        self._show_policy(replace(self._standing, degraded=degraded), report)

    def set_conflict(self, conflict: Conflict | None) -> None:
        """Pods that an older policy has; told with the next pass, and as an event when it changes."""
        if conflict is not None and conflict != self._standing.conflict:
            names = ", ".join(conflict.first)
            self._tell_policy(
                "Conflict", f"{conflict.pods} pods are managed by {conflict.winner}: {names}", warning=True
            )
        self._standing = replace(self._standing, conflict=conflict)

    def set_others(self, others: OtherResizers | None) -> None:
        """Pods that somebody else resizes too; told with the next pass, and as an event when that is somebody new."""
        known = self._standing.others
        if others is not None and (known is None or known.who != others.who):
            self._tell_policy("Conflict", others_message(others), warning=True)
        self._standing = replace(self._standing, others=others)

    def set_degraded(self, why: str | None) -> None:
        """What keeps the controller from doing all that it should; told with the next pass."""
        self._standing = replace(self._standing, degraded=why)

    def tell_restored(self, given_back: GivenBack) -> None:
        """Events for jobs that got their original resources back, or could not."""
        for reason, told, warning in (
            ("Restored", given_back.restored, False),
            ("RestoreDeferred", given_back.waiting, True),
            ("RestoreFailed", {**given_back.failed, **given_back.impossible}, True),
        ):
            for uid, detail in told.items():
                self._tell_pod(uid, reason, detail or "its original resources are back", warning=warning)
                if not warning:
                    self._act(uid, history.restored(uid, detail, self._clock()))
            if told:
                self._tell_policy(reason, _together(told.values()), warning=warning)

    def refresh(self, workload_uids: Collection[str], with_cpu: Callable[[Job], Job | None]) -> None:
        """Kubelets have reported since the last pass: show what is in effect now, without waiting for the next one.

        `with_cpu`: a job of the last pass with the CPU that its pod has by now. Called from any thread.
        """
        with self._lock:
            if self._seen is None:
                return
            view = replace(self._seen, shown_at_seconds=self._clock())
            for workload_uid in self._jobs_of.keys() & workload_uids:
                jobs = [with_cpu(job) or job for job in self._jobs_of[workload_uid]]
                document = self._book.find(workload_uid)
                if jobs != self._jobs_of[workload_uid] and document is not None and document.policy == self._name:
                    self._jobs_of[workload_uid] = jobs
                    self._show(document, jobs, view, self._keys)

    def _show(self, document: GrowthDocument, jobs: list[Job], view: PassView, keys: dict[str, Key]) -> None:
        """Let it be written: at once, where more has changed than figures."""
        key, before = transition_key(jobs, view), self._keys.get(document.key)
        keys[document.key] = key
        document.show(jobs, view)
        self._book.changed(document, transition=key != before)

    def _show_jobs(self, view: PassView) -> None:
        jobs_of: dict[str, list[Job]] = {}
        for job in view.snapshot.jobs:
            jobs_of.setdefault(job.uid.rpartition(":")[0], []).append(job)
        keys: dict[str, Key] = {}
        for workload_uid, jobs in jobs_of.items():
            document = self._book.find(workload_uid)
            if document is None or document.policy != self._name:
                continue
            if len(jobs) > 1:
                jobs.sort(key=_slot_order)
            for action in self._early.pop(workload_uid, ()):
                document.acted(action)
            self._show(document, jobs, view, keys)
        self._show_absent(view, keys)
        self._keys, self._jobs_of, self._seen = keys, jobs_of, view

    def _show_absent(self, view: PassView, keys: dict[str, Key]) -> None:
        """Of the workloads that have no pod on a node; `keys` of those that have, to which theirs are added."""
        for absence in view.snapshot.absent:
            workload_uid = absence.job_uid.rpartition(":")[0]
            document = self._book.find(workload_uid)
            if workload_uid in keys or document is None or document.policy != self._name:
                continue
            keys[workload_uid] = (absence.state, absence.reason)
            if keys[workload_uid] != self._keys.get(workload_uid):
                document.show_absent(absence, view.now_seconds)
                self._book.changed(document, transition=True)

    def _fails_again(self, report: PassReport) -> str | None:
        """Resizes that failed twice running: once is a pod that went meanwhile, twice is a right that is missing."""
        before, self._failed = self._failed, _failed_by_job(report.outcomes)
        again = [why for uid, why in self._failed.items() if uid in before]
        return f"resizes fail: {_together(again)}" if again else None

    def _show_policy(self, standing: Standing, report: PassReport) -> None:
        if self._document is None:
            return
        key = standing_key(standing)
        self._document.show(standing, report.taken_at_seconds)
        self._book.changed(self._document, transition=key != self._standing_key)
        self._standing_key = key

    def _tell_held(self, report: PassReport) -> None:
        """What begins to hold passes, or holds them no more; a policy that fails is another thing than no metrics."""
        before, now = _held_step(self._standing), _held_step(report)
        if before is not None and before != now:
            self._tell_policy(*_OVER[before], action=before)
        if now is not None and before != now:
            self._tell_policy(_BEGUN[now], report.held or "", warning=True, action=now)

    def _tell_outcomes(self, outcomes: Sequence[Outcome], now_seconds: float) -> None:
        """Of a pod that only waits on, nothing: 5,000 that wait for their turn would crowd out what matters."""
        first: dict[str, str] = {}
        waited, self._waiting = self._waiting, {each.resize.job_uid for each in outcomes if each.result == "deferred"}
        for outcome in outcomes:
            reason = _reason(outcome)
            is_news = outcome.result != "deferred" or outcome.resize.job_uid not in waited
            if not is_news and reason in first:
                continue
            note = _note(outcome.resize, outcome.detail or outcome.resize.reason)
            first.setdefault(reason, note)
            if is_news:
                self._tell_pod(outcome.resize.job_uid, reason, note, warning=reason != "Resized")
                self._act(outcome.resize.job_uid, history.resized(outcome, now_seconds))
        times = Counter(_reason(outcome) for outcome in outcomes)
        for reason, note in first.items():
            self._tell_policy(reason, _of_many(times[reason], note), warning=reason != "Resized")

    def _tell_withheld(self, withheld: Sequence[Withheld]) -> None:
        guards = {each.resize.job_uid: each for each in withheld if each.guard not in _ROUTINE_GUARDS}
        for uid, each in guards.items():
            if self._guards.get(uid) != each.guard:
                self._tell_pod(uid, "ResizeWithheld", _note(each.resize, each.reason))
        known = self._keys.keys()
        kept = {uid: guard for uid, guard in self._guards.items() if uid.rpartition(":")[0] in known}
        self._guards = kept | {uid: each.guard for uid, each in guards.items()}

    def _tell_harmed(self, view: PassView) -> None:
        """Jobs that are left alone since this pass. The first pass only learns who is: that was told before it."""
        alone = {
            job.uid: known.alone_until_seconds
            for job in view.snapshot.jobs
            if (known := view.memory.get(job.uid)) is not None
            and known.alone_until_seconds is not None
            and known.alone_until_seconds > view.now_seconds
        }
        if self._left_alone is not None:
            for uid in alone.keys() - self._left_alone.keys():
                because = view.memory[uid].alone_because or "a change has harmed it"
                self._tell_pod(uid, "Harmed", because, warning=True)
        self._left_alone = alone

    def _tell_missing(self, jobs: Sequence[Job]) -> None:
        """An event when it is found out why a workload reports no loss, and when the cause is another."""
        said = {job.uid: message for job in jobs if (message := _why_no_loss(job)) is not None}
        for uid, message in said.items():
            if self._without_loss.get(uid) != message:
                self._tell_pod(uid, "NoLoss", message, warning=True)
        self._without_loss = said

    def _act(self, job_uid: str, action: Action) -> None:
        """Keep it in the workload's history, which is written soon."""
        workload_uid = job_uid.rpartition(":")[0]
        if not self._book.act(workload_uid, action) and len(self._early) < _MOST_EARLY:
            self._early.setdefault(workload_uid, []).append(action)

    def _tell_pod(self, job_uid: str, reason: str, note: str, *, warning: bool = False) -> None:
        managed = self._roster.find(job_uid)
        if managed is not None:
            self._events.emit(Event(About.pod(managed), reason, note, warning))

    def _tell_policy(self, reason: str, note: str, *, warning: bool = False, action: str = "Resize") -> None:
        if self._about is not None:
            self._events.emit(Event(self._about, reason, note, warning, action))


def tell_invalid(events: EventRecorder, name: str, uid: str, sentence: str) -> None:
    """An event for a policy that cannot be obeyed, and so has no passes."""
    events.emit(Event(About.policy(name, uid), "InvalidSpec", sentence, warning=True, action="Read"))


def _held_step(told: Standing | PassReport) -> str | None:
    """Which step of the pass fails; None: it is not held."""
    if told.held is None:
        return None
    return "Decide" if told.policy_failed else "Observe"


def _reason(outcome: Outcome) -> str:
    taken_back = outcome.resize.gives_back and outcome.result == "applied"
    return "ResizeTakenBack" if taken_back else _REASON[outcome.result]


def _why_no_loss(job: Job) -> str | None:
    """Of the pods of a workload the one that has the warning says it; None: another one, or there is nothing to say."""
    missing = job.missing_evaluation
    if missing is None or not any(missing.message in warning for warning in job.warnings):
        return None
    return missing.message


def _failed_by_job(outcomes: Sequence[Outcome]) -> dict[str, str]:
    return {each.resize.job_uid: each.detail for each in outcomes if each.result == "failed"}


def _note(resize: Resize, why: str) -> str:
    return f"CPU {change_text(resize)}: {why}"


def _together(texts: Collection[str]) -> str:
    """How many jobs, and the first one's words: the pods have an event each."""
    return _of_many(len(texts), next(iter(texts)))


def _of_many(jobs: int, first: str) -> str:
    return f"{jobs} {'job' if jobs == 1 else 'jobs'}: {first or 'done'}"


def _slot_order(job: Job) -> tuple[int, str]:
    """By completion index where slots are numbers: 2 before 10."""
    slot = job.uid.rpartition(":")[2]
    return (int(slot), "") if slot.isdigit() else (0, slot)
