"""Reports each pass of a policy: JobGrowth statuses, the policy's status and Events.

Nothing is sent from here: documents are marked, events queued. For 5,000 jobs that is a comparison each, 0.1 s of a
pass; texts are made when a status is written.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from slopewise.adapters.kube.events import About, Event, EventRecorder
from slopewise.adapters.kube.reporting.job_reporters import DecisionReporter, PromiseReporter, about_pod, event_reason
from slopewise.adapters.kube.state.job_growth_object import GrowthDocument
from slopewise.adapters.kube.state.job_growth_store import JobGrowthStore
from slopewise.adapters.kube.state.training_policies import PolicyDocument
from slopewise.adapters.kube.workloads.owners import JobIndex
from slopewise.config.training_policy import TrainingPolicySpec
from slopewise.crds import history
from slopewise.crds.growth_status import Key, PassView, change_text, running_status, transition_key, view_of
from slopewise.crds.inactive_status import absent_status
from slopewise.crds.job_growth import Action
from slopewise.crds.policy_status import Conflict, OtherResizers, PolicyFacts, others_message, policy_key
from slopewise.feedback.restore import RestoreReport
from slopewise.guards.review import is_routine
from slopewise.model import Job, JobUid, Outcome, PassReport, Resize, ResizeMemory, Withheld
from slopewise.tracking import OncePerChange

_BEGUN = {"Observe": "MetricsUnavailable", "Decide": "PolicyFailed"}
_OVER = {
    "Observe": ("MetricsAvailable", "the pass can observe again"),
    "Decide": ("PolicyDecides", "the policy decides again"),
}
"""Events by the step of the pass that fails."""

_MAX_EARLY = 1_000
"""Workloads that were placed and are no jobs yet; those that never become jobs are dropped with the policy."""


class StatusReporter:
    """A sink of one policy's pass reports. Called by one thread at a time, but for `refresh`."""

    def __init__(
        self,
        name: str,
        spec: TrainingPolicySpec,
        job_growths: JobGrowthStore,
        index: JobIndex,
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
        self._job_growths = job_growths
        self._index = index
        self._events = events
        self._document = document
        self._clock = clock
        self._about = About.policy(name, policy_uid) if policy_uid else None
        self._decisions = DecisionReporter(index, job_growths, events, self._act)
        self._promises = PromiseReporter(
            lambda uid, change: self._emit_pod(uid, change.reason, change.note, warning=change.warning)
        )
        self._early: dict[str, list[Action]] = {}
        """Actions of workloads without a document: a pod is placed before it is a job."""
        self._standing = PolicyFacts(generation, spec.mode, canary_ratio=spec.behaviour.canary_ratio)
        self._standing_key: Key = ()
        self._keys: dict[str, Key] = {}
        self._jobs_of: dict[str, list[Job]] = {}
        """The jobs of the last pass by workload, in the order of their slots."""
        self._seen: PassView | None = None
        self._lock = threading.Lock()
        """Held while statuses are marked: passes and refreshes come from different threads."""
        self._guards: dict[tuple[str, bool], str] = {}
        """The last guard that withheld a change of each job, by its uid and whether it was one of memory."""
        self._backed_off: Mapping[str, str | None] | None = None
        self._without_loss = OncePerChange[str, str]()
        """The messages about jobs that report no loss, by uid."""
        self._warned: Mapping[str, frozenset[str]] = {}
        """The other warnings of the last pass, by uid."""
        self._waiting: set[str] = set()
        """Jobs whose resize the last pass deferred."""
        self._failed: Mapping[str, str] = {}
        """The messages of resizes that failed in the last pass, by the job's uid."""

    def __call__(self, report: PassReport) -> None:
        """Report one pass."""
        view = view_of(
            report,
            policy=self._name,
            mode=self._spec.mode,
            control=self._spec.resources.control,
            memory=self._spec.resources.memory,
        )
        self._emit_held(report)
        if view is not None:
            with self._lock:
                self._show_jobs(view, report)
            self._emit_outcomes(report.results.of(Resize, ResizeMemory), view.now_seconds)
            self._emit_withheld(report.results.withheld_of(Resize, ResizeMemory))
            self._decisions.emit(report)
            self._emit_rollback(view)
            self._emit_missing(view.snapshot.jobs)
            asked = dict.fromkeys(JobUid.of(uid).workload for uid in report.objective_statuses)
            self._promises(view, {uid: self._jobs_of[uid] for uid in asked if uid in self._jobs_of}, self._keys)
            self._emit_warnings(view)
        self._standing = replace(
            self._standing, held=report.held, policy_failed=report.policy_failed, seen=view or self._standing.seen
        )
        degraded = self._standing.degraded or self._fails_again(report)
        self._show_policy(replace(self._standing, degraded=degraded), report)

    def set_conflict(self, conflict: Conflict | None) -> None:
        """Pods that an older policy manages; reported with the next pass, and as an event when it changes."""
        if conflict is not None and conflict != self._standing.conflict:
            names = ", ".join(conflict.first)
            self._emit_policy(
                "Conflict", f"{conflict.pods} pods are managed by {conflict.winner}: {names}", warning=True
            )
        self._standing = replace(self._standing, conflict=conflict)

    def set_others(self, others: OtherResizers | None) -> None:
        """Pods that others resize too; reported with the next pass, and as an event for a new resizer."""
        known = self._standing.others
        if others is not None and (known is None or known.who != others.who):
            self._emit_policy("Conflict", others_message(others), warning=True)
        self._standing = replace(self._standing, others=others)

    def set_capacity(self, message: str | None) -> None:
        """What is wrong with the figures of what other pods leave; reported with the next pass."""
        self._standing = replace(self._standing, capacity=message)

    def set_degraded(self, reason: str | None) -> None:
        """What keeps the controller from working in full; reported with the next pass, and its begin as an event."""
        if reason is not None and self._standing.degraded is None:
            self._emit_policy("Degraded", reason, warning=True)
        self._standing = replace(self._standing, degraded=reason)

    def emit_outage(self, message: str) -> None:
        """Emit an event for an outage in which original resources are restored."""
        self._emit_policy("Outage", message, warning=True, action="Observe")

    def emit_restored(self, given_back: RestoreReport) -> None:
        """Emit events for jobs whose original resources were restored, or could not be."""
        for reason, details, warning in (
            ("Restored", given_back.restored, False),
            ("RestoreDeferred", given_back.waiting, True),
            ("RestoreFailed", {**given_back.failed, **given_back.impossible}, True),
        ):
            for uid, detail in details.items():
                self._emit_pod(uid, reason, detail or "its original resources are back", warning=warning)
                if not warning:
                    self._act(uid, history.restored(uid, detail, self._clock()))
            if details:
                self._emit_policy(reason, _together(details.values()), warning=warning)

    def refresh(self, workload_uids: Collection[str], with_cpu: Callable[[Job], Job | None]) -> None:
        """Show CPU that kubelets have reported since the last pass, without waiting for the next one.

        `with_cpu`: a job of the last pass with its pod's current CPU. Called from any thread.
        """
        with self._lock:
            if self._seen is None:
                return
            view = replace(self._seen, shown_at_seconds=self._clock())
            for workload_uid in self._jobs_of.keys() & workload_uids:
                jobs = [with_cpu(job) or job for job in self._jobs_of[workload_uid]]
                document = self._job_growths.find(workload_uid)
                if jobs != self._jobs_of[workload_uid] and document is not None and document.policy == self._name:
                    self._jobs_of[workload_uid] = jobs
                    self._show(document, jobs, view, self._keys)

    def _show(self, document: GrowthDocument, jobs: list[Job], view: PassView, keys: dict[str, Key]) -> None:
        """Queue a write: at once, where more than figures has changed."""
        key, before = transition_key(jobs, view), self._keys.get(document.key)
        keys[document.key] = key
        document.show(lambda before: running_status(jobs, view, before))
        self._job_growths.changed(document, transition=key != before)

    def _show_jobs(self, view: PassView, report: PassReport) -> None:
        jobs_of: dict[str, list[Job]] = {}
        for job in view.snapshot.jobs:
            jobs_of.setdefault(JobUid.of(job.uid).workload, []).append(job)
        keys: dict[str, Key] = {}
        for workload_uid, jobs in jobs_of.items():
            document = self._job_growths.find(workload_uid)
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
        """Show workloads without a pod on a node; adds theirs to `keys`."""
        for absence in view.snapshot.absent:
            workload_uid = JobUid.of(absence.job_uid).workload
            document = self._job_growths.find(workload_uid)
            if workload_uid in keys or document is None or document.policy != self._name:
                continue
            keys[workload_uid] = (absence.state, absence.reason)
            if keys[workload_uid] != self._keys.get(workload_uid):
                document.show(partial(absent_status, absence, now_seconds=view.now_seconds))
                self._job_growths.changed(document, transition=True)

    def _fails_again(self, report: PassReport) -> str | None:
        """Resizes that failed twice in a row: once may be a deleted pod, twice is probably a missing right."""
        resizes = report.results.of(Resize, ResizeMemory)
        before, self._failed = (
            self._failed,
            {one.decision.job_uid: one.detail for one in resizes if one.result == "failed"},
        )
        again = [reason for uid, reason in self._failed.items() if uid in before]
        return f"resizes fail: {_together(again)}" if again else None

    def _show_policy(self, standing: PolicyFacts, report: PassReport) -> None:
        if self._document is None:
            return
        key = policy_key(standing)
        self._document.show(standing, report.taken_at_seconds)
        self._job_growths.changed(self._document, transition=key != self._standing_key)
        self._standing_key = key

    def _emit_held(self, report: PassReport) -> None:
        """Emit the begin and the end of held passes; a failing policy differs from missing metrics."""
        before, now = _held_step(self._standing), _held_step(report)
        if before is not None and before != now:
            self._emit_policy(*_OVER[before], action=before)
        if now is not None and before != now:
            self._emit_policy(_BEGUN[now], report.held or "", warning=True, action=now)

    def _emit_outcomes(self, outcomes: Sequence[Outcome[Resize | ResizeMemory]], now_seconds: float) -> None:
        """Emit outcomes, but none for a pod that still waits: 5,000 waiting pods would crowd out the rest."""
        first: dict[str, str] = {}
        waited, self._waiting = self._waiting, {each.decision.job_uid for each in outcomes if each.result == "deferred"}
        for outcome in outcomes:
            reason = _reason(outcome)
            is_new = outcome.result != "deferred" or outcome.decision.job_uid not in waited
            if not is_new and reason in first:
                continue
            note = _note(outcome.decision, outcome.detail or outcome.decision.reason)
            first.setdefault(reason, note)
            if is_new:
                self._emit_pod(outcome.decision.job_uid, reason, note, warning=reason != "Resized")
                self._act(outcome.decision.job_uid, history.resized(outcome, now_seconds))
        times = Counter(_reason(outcome) for outcome in outcomes)
        for reason, note in first.items():
            self._emit_policy(reason, _of_many(times[reason], note), warning=reason != "Resized")

    def _emit_withheld(self, withheld: Sequence[Withheld[Resize | ResizeMemory]]) -> None:
        for each in withheld:
            uid, of_memory = each.decision.job_uid, isinstance(each.decision, ResizeMemory)
            if not is_routine(each.guard) and self._guards.get((uid, of_memory)) != each.guard:
                self._guards[uid, of_memory] = each.guard
                self._emit_pod(uid, "ResizeWithheld", _note(each.decision, each.reason))
        known = self._keys.keys()
        self._guards = {key: guard for key, guard in self._guards.items() if JobUid.of(key[0]).workload in known}

    def _emit_rollback(self, view: PassView) -> None:
        """Emit jobs whose backoff began in this pass. The first pass only records: a former leader emitted those."""
        backed_off = {
            job.uid: known.backoff.reason
            for job in view.snapshot.jobs
            if (known := view.known(job)) is not None
            and known.backoff.until_seconds is not None
            and known.backoff.until_seconds > view.now_seconds
        }
        if self._backed_off is not None:
            for uid in backed_off.keys() - self._backed_off.keys():
                self._emit_pod(uid, "Regressed", backed_off[uid] or "it regressed after a change", warning=True)
        self._backed_off = backed_off

    def _emit_missing(self, jobs: Sequence[Job]) -> None:
        """Emit an event when the cause of a workload's missing loss is found, and when it changes."""
        messages = {job.uid: message for job in jobs if (message := _no_loss_reason(job)) is not None}
        for uid, message in messages.items():
            if self._without_loss.is_new(uid, message):
                self._emit_pod(uid, "NoLoss", message, warning=True)
        self._without_loss.forget_all_but(messages)

    def _emit_warnings(self, view: PassView) -> None:
        """Emit each other warning of a job once: annotations that cannot be used."""
        before, self._warned = self._warned, {job.uid: _warnings(job) for job in view.snapshot.jobs if job.warnings}
        for uid, warnings in self._warned.items():
            for warning in sorted(warnings - before.get(uid, frozenset())):
                self._emit_pod(uid, "JobWarning", warning, warning=True)

    def _act(self, job_uid: str, action: Action) -> None:
        """Append to the workload's history, which is written soon."""
        workload_uid = JobUid.of(job_uid).workload
        if not self._job_growths.act(workload_uid, action) and len(self._early) < _MAX_EARLY:
            self._early.setdefault(workload_uid, []).append(action)

    def _emit_pod(self, job_uid: str, reason: str, note: str, *, warning: bool = False) -> None:
        if (about := about_pod(self._index, job_uid)) is not None:
            self._events.emit(Event(about, reason, note, warning))

    def _emit_policy(self, reason: str, note: str, *, warning: bool = False, action: str = "Resize") -> None:
        if self._about is not None:
            self._events.emit(Event(self._about, reason, note, warning, action))


def emit_invalid(events: EventRecorder, name: str, uid: str, message: str) -> None:
    """Emit an event for an invalid policy, which has no passes."""
    events.emit(Event(About.policy(name, uid), "InvalidSpec", message, warning=True, action="Read"))


def _held_step(report: PolicyFacts | PassReport) -> str | None:
    """The step of the pass that fails; None: the pass is not held."""
    if report.held is None:
        return None
    return "Decide" if report.policy_failed else "Observe"


def _reason(outcome: Outcome[Resize | ResizeMemory]) -> str:
    rolled_back = outcome.decision.is_rollback and outcome.result == "applied"
    return "ResizeRolledBack" if rolled_back else event_reason("Resize", outcome.result)


def _no_loss_reason(job: Job) -> str | None:
    """The message of the one pod of a workload that has the warning; None: another one has it, or there is none."""
    missing = job.missing_evaluation
    if missing is None or not any(missing.message in warning for warning in job.warnings):
        return None
    return missing.message


def _warnings(job: Job) -> frozenset[str]:
    """Without a missing loss, which has an event of its own."""
    missing = job.missing_evaluation
    return frozenset(each for each in job.warnings if missing is None or missing.message not in each)


def _note(resize: Resize | ResizeMemory, reason: str) -> str:
    resource = "" if isinstance(resize, ResizeMemory) else "CPU "
    return f"{resource}{change_text(resize)}: {reason}"


def _together(texts: Collection[str]) -> str:
    """How many jobs, and the first message: the pods have an event each."""
    return _of_many(len(texts), next(iter(texts)))


def _of_many(jobs: int, first: str) -> str:
    return f"{jobs} {'job' if jobs == 1 else 'jobs'}: {first or 'done'}"


def _slot_order(job: Job) -> tuple[int, str]:
    """By completion index where slots are numbers: 2 before 10."""
    slot = JobUid.of(job.uid).slot
    return (int(slot), "") if slot.isdigit() else (0, slot)
