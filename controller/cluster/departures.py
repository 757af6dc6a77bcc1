"""Workloads that a policy remembers and that no policy manages any more, although a pod of theirs is there.

After each pass: one whose owner has taken the label off, or that the policy selects no more, would go on to be shown as
managed. What is still to get its original resources back keeps its JobGrowth, with the reason; the others' is deleted.
A workload without any pod is between two pods, or is gone and its JobGrowth with it: neither is looked at here.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from controller.adapters.kube.actuator import label_removed
from controller.adapters.kube.contracts import Roster
from controller.adapters.kube.growth_book import GrowthBook
from controller.adapters.kube.growth_objects import GrowthDocument
from controller.adapters.kube.records import MANAGED_LABEL, ManagedPod, PodRecord
from controller.adapters.kube.unwatched import FindUnwatched
from controller.errors import ActuationError
from controller.growth_face import Departure
from controller.model import CpuControl, PassReport
from controller.ports import Clock

MOST_LOOKED_AT = 20
"""Workloads after one pass: for each a pod may be read by name, in some 5 ms."""


class Departures:
    """Of one policy. A sink of its pass reports."""

    def __init__(
        self,
        policy: str,
        control: CpuControl,
        book: GrowthBook,
        roster: Roster,
        unwatched: FindUnwatched,
        is_managed: Callable[[PodRecord], bool],
        clock: Clock,
    ) -> None:
        """`is_managed`: whether any policy manages a pod."""
        self._policy = policy
        self._control = control
        self._book = book
        self._roster = roster
        self._unwatched = unwatched
        self._is_managed = is_managed
        self._clock = clock
        self._looked_at: dict[str, float] = {}
        self._last: dict[str, Departure] = {}
        """What was last said of each, by the workload's uid."""
        self._log = structlog.get_logger("slopewise")

    def __call__(self, report: PassReport) -> None:
        """After one pass; one that could not observe does not know who has departed."""
        if report.snapshot is None:
            return
        snapshot = report.snapshot
        uids = [each.uid for each in snapshot.jobs] + [each.uid for each in snapshot.waiting]
        uids += [each.job_uid for each in snapshot.moving] + [each.job_uid for each in snapshot.absent]
        present = {uid.rpartition(":")[0] for uid in uids}
        missing = {each.key: each for each in self._book.of(self._policy) if each.key not in present}
        self._looked_at = {key: at for key, at in self._looked_at.items() if key in missing}
        self._last = {key: each for key, each in self._last.items() if key in missing}
        in_turn = sorted(missing, key=lambda key: self._looked_at.get(key, 0.0))
        try:
            for key in in_turn[:MOST_LOOKED_AT]:
                self._looked_at[key] = report.taken_at_seconds
                self._look_at(missing[key])
        except ActuationError as error:  # the others' turn comes with the next pass
            self._log.warning("departed workloads are not known", name=self._policy, reason=str(error))

    def _look_at(self, document: GrowthDocument) -> None:
        departure = self._departure(document)
        if departure is None or departure == self._last.get(document.key):
            return
        self._last[document.key] = departure
        self._log.info(
            "managed no more", job=f"{document.namespace}/{document.name}", name=self._policy, reason=departure.message
        )
        if all(slot.memory.original is None for slot in document.slots.values()):
            self._book.retire(document)
            return
        document.show_departed(departure, self._clock.now())
        self._book.changed(document, transition=True)

    def _departure(self, document: GrowthDocument) -> Departure | None:
        """Of the first of its pods that is there; ActuationError when that is not known."""
        for slot in list(document.slots.values()):
            watched = self._roster.find(slot.job_uid)
            if watched is not None:
                return self._not_selected(watched)
            unlabelled = self._unwatched(slot.job_uid)
            if unlabelled is not None:
                return Departure("LabelRemoved", label_removed(unlabelled), self._actual_millicores(unlabelled))
        return None

    def _not_selected(self, managed: ManagedPod) -> Departure | None:
        """One that has ended or has no node yet is in no snapshot either, and is managed all the same."""
        pod = managed.pod
        if pod.ended or pod.deleting or pod.node is None or self._is_managed(pod):
            return None
        opted_in = pod.labels.get(MANAGED_LABEL) == "true"
        why = f"{self._policy} selects it no more" if opted_in else f"its label {MANAGED_LABEL} is not true any more"
        return Departure("NotSelected", f"{why}; it gets back what it came with", self._actual_millicores(managed))

    def _actual_millicores(self, managed: ManagedPod) -> int | None:
        actual = managed.container.actual
        if actual is None:
            return None
        return actual.limit_millicores if self._control == "limits" else actual.request_millicores
