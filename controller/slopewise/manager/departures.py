"""Finds workloads that a policy has memory of and no longer manages, although a pod of theirs is watched.

After each pass: a workload that the policy no longer selects would still be shown as managed. Its JobGrowth stays, with
the reason, until its original resources are restored; without an original it is deleted. A workload without any watched
pod is between two pods, or deleted, or without the label, and is not checked here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import structlog

from slopewise.adapters.kube.cache.records import MANAGED_LABEL, ManagedPod, PodRecord
from slopewise.adapters.kube.state.job_growth_object import GrowthDocument
from slopewise.adapters.kube.state.job_growth_store import JobGrowthStore
from slopewise.adapters.kube.workloads.owners import JobIndex
from slopewise.crds.inactive_status import Departure, departed_status
from slopewise.model import CpuControl, JobUid, PassReport
from slopewise.ports import Clock
from slopewise.tracking import OncePerChange


@dataclass(eq=False)
class Departures:
    """The check of one policy. A sink of its pass reports."""

    policy: str
    control: CpuControl
    job_growths: JobGrowthStore
    index: JobIndex
    is_managed: Callable[[PodRecord], bool]
    """Whether any policy manages a pod."""
    clock: Clock
    _reported: OncePerChange[str, Departure] = field(default_factory=OncePerChange)
    """Of each, by the workload's uid."""

    def __call__(self, report: PassReport) -> None:
        """Check after one pass with a snapshot."""
        if report.snapshot is None:
            return
        snapshot = report.snapshot
        uids = [each.uid for each in snapshot.jobs] + [each.uid for each in snapshot.waiting]
        uids += [each.job_uid for each in snapshot.moving] + [each.job_uid for each in snapshot.absent]
        present = {JobUid.of(uid).workload for uid in uids}
        missing = {each.key: each for each in self.job_growths.of(self.policy) if each.key not in present}
        self._reported.forget_all_but(missing)
        for document in missing.values():
            self._check(document)

    def _check(self, document: GrowthDocument) -> None:
        departure = self._departure(document)
        if departure is None or not self._reported.is_new(document.key, departure):
            return
        structlog.get_logger("slopewise").info(
            "workload released",
            job=f"{document.namespace}/{document.name}",
            name=self.policy,
            reason=departure.message,
        )
        if all(slot.memory.original is None for slot in document.slots_of(self.policy)):
            self.job_growths.drop(document, self.policy)
            return
        if document.policy == self.policy:  # else another one shows its own pods of it
            document.show(partial(departed_status, departure, now_seconds=self.clock.now()))
            self.job_growths.changed(document, transition=True)

    def _departure(self, document: GrowthDocument) -> Departure | None:
        """Of the first watched pod."""
        for slot in document.slots_of(self.policy):
            watched = self.index.find(slot.job_uid)
            if watched is not None:
                return self._not_selected(watched)
        return None

    def _not_selected(self, managed: ManagedPod) -> Departure | None:
        """Not of a pod that has ended or has no node: it is in no snapshot either, and is managed all the same."""
        pod = managed.pod
        if pod.ended or pod.deleting or pod.node is None or self.is_managed(pod):
            return None
        opted_in = pod.labels.get(MANAGED_LABEL) == "true"
        reason = (
            f"{self.policy} no longer selects it" if opted_in else f"its label {MANAGED_LABEL} is not true any more"
        )
        return Departure(f"{reason}; its original resources are restored", self._actual_millicores(managed))

    def _actual_millicores(self, managed: ManagedPod) -> int | None:
        actual = managed.container.actual
        if actual is None:
            return None
        return actual.limit_millicores if self.control == "limits" else actual.request_millicores
