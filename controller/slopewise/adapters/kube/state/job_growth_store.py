"""The JobGrowth documents of all workloads, for all policies: originals survive a change of policy.

A watch of the JobGrowths feeds it; `job_memory.py` and `reporting/pass_reporter.py` use it.
"""

from __future__ import annotations

import threading

import structlog

from slopewise.adapters.kube.cache.records import OwnerRef, PodRecord
from slopewise.adapters.kube.client.protocol import Store
from slopewise.adapters.kube.state.job_growth_object import GrowthDocument, GrowthRecord
from slopewise.adapters.kube.state.status_writer import StatusDocument, StatusSender, StatusWriter
from slopewise.adapters.kube.workloads.owners import Identity
from slopewise.crds.job_growth import Action
from slopewise.errors import ObservationError

LATE_CHECKS = 3
"""A watch is milliseconds late. An object that so many checks have not shown counts as deleted."""


class JobGrowthStore:
    """The documents of all workloads, by the workload's uid; fed by a watch, written by one writer."""

    def __init__(self, growths: Store[GrowthRecord], sender: StatusSender, writer: StatusWriter) -> None:
        self._growths = growths
        self._sender = sender
        self._writer = writer
        self._documents: dict[str, GrowthDocument] = {}
        self._identities: dict[str, Identity] = {}
        """By the pod's uid, of documents that were taken over."""
        self._objects: set[str] = set()
        """Uids of the objects that were taken over or created here."""
        self._log = structlog.get_logger("slopewise")
        self.lock = threading.RLock()

    def refresh(self) -> None:
        """Take over new objects of the watch; ObservationError before its first list."""
        if not self._growths.synced:
            raise ObservationError("the JobGrowths are not read yet, and with them what is remembered")
        with self.lock:
            # Read under the lock: after another thread's newer list, an older one would show what is new as deleted.
            records = self._growths.items()
            for record in records:
                if record.uid not in self._objects and not record.deleting:
                    self._take_over(record)
            self._note_deleted({record.uid for record in records})

    def _take_over(self, record: GrowthRecord) -> None:
        self._objects.add(record.uid)
        document = self._documents.get(record.workload.uid)
        if document is not None:
            document.seen = document.seen or document.uid == record.uid
            return
        document = GrowthDocument(record.workload, record.namespace, record.name, self.lock)
        for message in document.take_over(record):
            self._log.warning("memory damaged", reason=message)
        self._documents[record.workload.uid] = document
        for slot in document.slots.values():
            if slot.pod.uid:
                self._identities[slot.pod.uid] = Identity(record.workload, slot.pod.slot)

    def recorded(self, pod: PodRecord) -> Identity | None:
        """The identity of a pod that an earlier process stored: its slot must not depend on the remaining pods."""
        return self._identities.get(pod.uid)

    def _note_deleted(self, there: set[str]) -> None:
        """Mark objects as deleted that the watch shows no longer, or still not after their creation."""
        for document in self._documents.values():
            if document.uid is None or document.uid in there:
                continue
            document.missed += 1
            if document.seen or document.missed > LATE_CHECKS:
                document.lose()
        self._objects &= there

    def of(self, policy: str) -> list[GrowthDocument]:
        """The documents of this policy."""
        with self.lock:
            known = self._documents.values()
            return [document for document in known if document.policy == policy or document.slots_of(policy)]

    def moving(self) -> list[GrowthDocument]:
        """The documents of workloads that are being moved by eviction."""
        with self.lock:
            return [document for document in self._documents.values() if document.move is not None]

    def holds_originals(self, policy: str) -> bool:
        """True while a job of this policy does not have its original resources."""
        with self.lock:
            slots = (slot for document in self._documents.values() for slot in document.slots_of(policy))
            return any(slot.memory.original is not None for slot in slots)

    def policies(self) -> list[str]:
        """The names of all policies with stored memory."""
        with self.lock:
            known = self._documents.values()
            return sorted(
                {each.policy for each in known} | {slot.policy for each in known for slot in each.slots.values()}
            )

    def get_or_create(self, workload: OwnerRef, namespace: str) -> GrowthDocument:
        """The workload's document; a new one when it has none."""
        with self.lock:
            document = self._documents.get(workload.uid)
            if document is None:
                document = GrowthDocument(workload, namespace, workload.name, self.lock)
                self._documents[workload.uid] = document
            return document

    def find(self, workload_uid: str) -> GrowthDocument | None:
        """The workload's document, if it has one."""
        return self._documents.get(workload_uid)

    def changed_container(self, identity: Identity) -> str | None:
        """The container of a job whose original is stored; None: there is none."""
        document = self._documents.get(identity.workload.uid)
        slot = None if document is None else document.slots.get(identity.slot)
        return None if slot is None or slot.memory.original is None else slot.pod.container

    def close(self, document: GrowthDocument) -> None:
        """Drop the document of a deleted workload."""
        with self.lock:
            self._documents.pop(document.key, None)
        self._writer.forget(document)

    def retire(self, document: GrowthDocument) -> None:
        """Delete the object of a workload that is no longer managed, in its turn."""
        self.close(document)
        document.retired = True
        self._writer.submit(document, transition=True)

    def drop(self, document: GrowthDocument, policy: str) -> None:
        """Forget the pods of a policy, and retire the object where they are all."""
        with self.lock:
            others = {name: slot for name, slot in document.slots.items() if slot.policy != policy}
            if others:
                document.slots, document.policy = others, next(iter(others.values())).policy
        if others:
            self.changed(document, transition=True)
        else:
            self.retire(document)

    def changed(self, document: StatusDocument, *, transition: bool) -> None:
        """Queue a write: at once for a transition, else in its time."""
        self._writer.submit(document, transition=transition)

    def act(self, workload_uid: str, action: Action) -> bool:
        """Append to the workload's history, and queue the write; False for an unknown workload."""
        document = self._documents.get(workload_uid)
        if document is None:
            return False
        document.acted(action)
        self.changed(document, transition=True)
        return True

    def write_now(self, document: StatusDocument) -> None:
        """Write before this returns; SlopewiseError when that fails."""
        self._sender.send(document)
        if document.lost:  # the caller has seen a pod of the workload
            document.lost = False
            self._sender.send(document)
