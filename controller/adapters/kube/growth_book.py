"""The documents of all workloads, over all policies: a workload that goes from one to another keeps its originals.

Before it: a watch of the JobGrowths. After it: `memory.py` (one policy's view of it) and `reporting.py`.
"""

from __future__ import annotations

import threading

import structlog

from controller.adapters.kube.contracts import Store
from controller.adapters.kube.growth_objects import GrowthDocument, GrowthRecord
from controller.adapters.kube.owners import Identity
from controller.adapters.kube.records import OwnerRef, PodRecord
from controller.adapters.kube.status_writer import StatusDocument, StatusSender, StatusWriter
from controller.errors import ObservationError
from controller.job_growth import Action

LATE_LOOKS = 3
"""A watch is milliseconds late. Should it be later than so many looks, the object is found when it is made again."""


class GrowthBook:
    """The documents of all workloads, by the workload's uid; fed by a watch, written by one writer."""

    def __init__(self, growths: Store[GrowthRecord], sender: StatusSender, writer: StatusWriter) -> None:
        self._growths = growths
        self._sender = sender
        self._writer = writer
        self._documents: dict[str, GrowthDocument] = {}
        self._identities: dict[str, Identity] = {}
        """By the pod's uid, of what was taken over."""
        self._objects: set[str] = set()
        """Uids of the objects that were taken over or made here."""
        self._log = structlog.get_logger("slopewise")
        self.lock = threading.RLock()

    def refresh(self) -> None:
        """Take over what the watch shows for the first time; ObservationError before it shows anything."""
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
        for sentence in document.take_over(record):
            self._log.warning("memory damaged", reason=sentence)
        self._documents[record.workload.uid] = document
        for slot in document.slots.values():
            if slot.pod.uid:
                self._identities[slot.pod.uid] = Identity(record.workload, slot.pod.slot)

    def recorded(self, pod: PodRecord) -> Identity | None:
        """Under which name a pod was remembered before this process began: its slot must not depend on who is left."""
        return self._identities.get(pod.uid)

    def _note_deleted(self, there: set[str]) -> None:
        """An object that was shown and is not any more is gone; so is one that was made and is still not shown."""
        for document in self._documents.values():
            if document.uid is None or document.uid in there:
                continue
            document.missed += 1
            if document.seen or document.missed > LATE_LOOKS:
                document.lose()
        self._objects &= there

    def of(self, policy: str) -> list[GrowthDocument]:
        """The documents in which this policy remembers."""
        with self.lock:
            return [document for document in self._documents.values() if document.policy == policy]

    def moving(self) -> list[GrowthDocument]:
        """The documents of workloads that are being moved by eviction."""
        with self.lock:
            return [document for document in self._documents.values() if document.move is not None]

    def holds_originals(self, policy: str) -> bool:
        """True while a job of this policy has something else than it came with."""
        with self.lock:
            slots = (slot for document in self.of(policy) for slot in document.slots.values())
            return any(slot.memory.original is not None for slot in slots)

    def policies(self) -> list[str]:
        """The names of all policies that remember anything."""
        with self.lock:
            return sorted({document.policy for document in self._documents.values()})

    def open(self, workload: OwnerRef, namespace: str) -> GrowthDocument:
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

    def close(self, document: GrowthDocument) -> None:
        """Forget a workload that is gone."""
        with self.lock:
            self._documents.pop(document.key, None)
        self._writer.forget(document)

    def retire(self, document: GrowthDocument) -> None:
        """Delete the object of a workload that is managed no more, in its turn."""
        self.close(document)
        document.retired = True
        self._writer.submit(document, transition=True)

    def changed(self, document: StatusDocument, *, transition: bool) -> None:
        """Let it be written: soon, or in its time."""
        self._writer.submit(document, transition=transition)

    def act(self, workload_uid: str, action: Action) -> bool:
        """Keep it in the workload's history, which is written soon; False where nothing is remembered of it."""
        document = self._documents.get(workload_uid)
        if document is None:
            return False
        document.acted(action)
        self.changed(document, transition=True)
        return True

    def write_now(self, document: StatusDocument) -> None:
        """Write it before this returns; SlopewiseError when it could not be."""
        self._sender.send(document)
