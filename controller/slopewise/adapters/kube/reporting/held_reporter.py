"""Reports arrivals that are held back: an Event of the pod, and the JobGrowth of its workload, which waits.

A workload that arrives has no JobGrowth yet: its first one is created here, so that `kubectl get growth` says why it
does not start.
"""

from __future__ import annotations

from collections.abc import Container

from slopewise.adapters.kube.events import Event, EventRecorder
from slopewise.adapters.kube.reporting.move_reporter import about_pod
from slopewise.adapters.kube.state.job_growth_store import JobGrowthStore
from slopewise.adapters.kube.workloads.job_index import JobIndex
from slopewise.model import NO_OBJECTIVES, Absence, JobUid, Objectives, PassReport

LET_IN = "it is no longer held back; its pod waits for a node"


class HeldReporter:
    """Reports the held arrivals of one policy. Called by one thread at a time."""

    def __init__(self, policy: str, index: JobIndex, job_growths: JobGrowthStore, events: EventRecorder) -> None:
        self._policy = policy
        self._index = index
        self._job_growths = job_growths
        self._events = events
        self._held: dict[str, str] = {}
        """The reasons of the last pass, by the job's uid."""
        self._objectives: dict[str, Objectives] = {}

    def report(self, report: PassReport, running: Container[str]) -> set[str]:
        """Report one pass; `running`: uids of workloads with a pod on a node, which are shown by it.

        Returns the uids of the workloads that are shown as waiting.
        """
        now = report.taken_at_seconds
        waiting = report.snapshot.waiting if report.snapshot is not None else ()
        self._objectives = {each.uid: each.objectives for each in waiting if each.uid in report.held_back}
        before, self._held = self._held, {uid: hold.reason for uid, hold in report.held_back.items()}
        shown = set()
        for uid, reason in self._held.items():
            if uid not in before:
                self._emit(uid, reason)
            if JobUid.of(uid).workload not in running:
                shown.add(JobUid.of(uid).workload)
                if before.get(uid) != reason:
                    self._show(uid, reason, now, transition=uid not in before)
        for uid in before.keys() - self._held.keys():
            if JobUid.of(uid).workload not in running:
                self._show(uid, LET_IN, now, transition=True)
        return shown

    def _emit(self, job_uid: str, reason: str) -> None:
        if (about := about_pod(self._index, job_uid)) is not None:
            self._events.emit(Event(about, "HeldBack", reason, action="Place"))

    def _show(self, job_uid: str, reason: str, now_seconds: float, *, transition: bool) -> None:
        managed = self._index.find(job_uid)
        if managed is None:
            return
        document = self._job_growths.get_or_create(managed.workload, managed.pod.namespace)
        document.policy = document.policy or self._policy
        if document.policy != self._policy:
            return
        name = f"{managed.pod.namespace}/{managed.workload.name}"
        asked = self._objectives.get(job_uid, NO_OBJECTIVES)
        document.show_absent(Absence(job_uid, "waiting", reason, name, asked), now_seconds)
        self._job_growths.changed(document, transition=transition)
