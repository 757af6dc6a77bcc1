"""The Memory port of a cluster: stores each job's memory in the status of custom resources.

`KubeMemory` is one policy's view of the process's one `JobGrowthStore`. Originals are written before `save` returns,
everything else soon (`status_writer.py`). A job whose original could not be stored is not resized: the actuator asks
`KubeMemory.stored_original`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from slopewise.adapters.kube.cache.records import OwnerRef
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.fencing import NotLeadingError
from slopewise.adapters.kube.client.meanings import POD_REPLACED
from slopewise.adapters.kube.state.job_growth_object import GrowthDocument, Slot
from slopewise.adapters.kube.state.job_growth_store import JobGrowthStore
from slopewise.adapters.kube.state.training_policies import NO_RECORDS, NONE_STORED, Intervals, OnNodes, PolicyRecords
from slopewise.adapters.kube.workloads.owners import JobIndex
from slopewise.errors import SlopewiseError
from slopewise.model import CpuAllocation, JobMemory, MemoryAllocation, MemoryState, NodeMemory, PolicyMemory

ORIGINALS_A_PASS = 100
"""So many workloads at most get their first change in one pass (`PassSettings.first_changes_a_pass`): storing an
original is one or two calls of some 5 ms, and all resizes of a pass wait for the last."""

WRITES_AT_ONCE = 10
"""So 100 originals are stored in a tenth of the time, and the first resize comes within a second of its decision."""


@dataclass(frozen=True, slots=True)
class Unstored:
    """Why a job's original is not stored, so that the job must not be changed."""

    reason: str
    stops_all: bool = False
    """Every other write of this pass would fail too."""


class Unsafe(NamedTuple):
    """A job whose original must be stored before it may be changed."""

    document: GrowthDocument
    slot: Slot
    before: JobMemory
    """Its memory until now."""


class KubeMemory:
    """The Memory port of one policy."""

    def __init__(
        self,
        policy: str,
        job_growths: JobGrowthStore,
        index: JobIndex,
        *,
        intervals: Intervals = NONE_STORED,
        on_nodes: OnNodes = lambda nodes, placement_nodes: None,
        records: PolicyRecords = NO_RECORDS,
        on_records: Callable[[PolicyRecords], None] = lambda records: None,
    ) -> None:
        """`intervals`: the stored evaluation time and interval of each node; `on_nodes` stores new ones.

        `records`: those stored of the policy; `on_records` gets each change.
        """
        self._records = records
        self._on_records = on_records
        self._policy = policy
        self._job_growths = job_growths
        self._index = index
        self._intervals: Intervals | None = intervals
        self._on_nodes = on_nodes
        self._nodes: Mapping[str, NodeMemory] = {}
        self._placement_nodes: Mapping[str, NodeMemory] = {}
        self._slots: dict[str, tuple[GrowthDocument, Slot]] = {}
        self._unstored: dict[str, Unstored] = {}
        self._put_off: dict[str, JobMemory] = {}
        """Memory from this pass's `save` with an original that could not be stored: it is tried once a pass."""
        self._has_stored = False
        """This pass has stored an original, or tried to."""
        self._met: set[str] = set()
        """Jobs whose pods were checked in this pass, which saves twice within a second."""

    def load(self) -> MemoryState:
        """The memory of all jobs of this policy, also of those between two pods.

        ObservationError while the JobGrowths are not read: with an empty memory, resized CPU would be taken for the
        original.
        """
        self._job_growths.refresh()
        self._put_off, self._has_stored, self._met = {}, False, set()
        with self._job_growths.lock:
            self._slots = {
                slot.job_uid: (document, slot)
                for document in self._job_growths.of(self._policy)
                if not self._is_over(document)
                for slot in document.slots_of(self._policy)
            }
        jobs = {}
        for uid, (_, slot) in self._slots.items():
            slot.adopted = False
            if slot.memory.original is not None and (managed := self._index.find(uid)) is not None:
                slot.forget_former(managed)
            jobs[uid] = slot.memory
        if self._intervals is not None:
            self._nodes = dict(self._remembered_nodes(self._intervals.nodes))
            self._placement_nodes = dict(self._remembered_nodes(self._intervals.placement_nodes))
            self._intervals = None
        return MemoryState(jobs, self._nodes, self._placement_nodes, **self._records._asdict())

    def _is_over(self, document: GrowthDocument) -> bool:
        """Whether the workload is deleted. An object that a person deleted is created again while a pod exists."""
        if not document.lost:
            return False
        if any(self._index.find(slot.job_uid) for slot in document.slots.values()):
            document.lost = False
            self._job_growths.changed(document, transition=True)
            return False
        self._job_growths.close(document)
        return True

    def _remembered_nodes(self, intervals: Mapping[str, tuple[float, float]]) -> Iterator[tuple[str, NodeMemory]]:
        """The jobs of each node, from the jobs' records: hundreds of uids a node need not be stored twice."""
        on_node: dict[str, set[str]] = {name: set() for name in intervals}
        for uid, (_, slot) in self._slots.items():
            on_node.get(slot.pod.node, set()).add(uid)
        for name, (evaluated_at, interval) in intervals.items():
            yield name, NodeMemory(frozenset(on_node[name]), evaluated_at, interval)

    def save(self, state: MemoryState) -> None:
        """Keep `state`; jobs that are not in it stay as they were. Originals are stored when this returns.

        Never raises for a job: `stored_original` has the reason of each whose original is not stored.
        """
        with self._job_growths.lock:
            unsafe = [found for uid, memory in state.jobs.items() if (found := self._keep(uid, memory)) is not None]
        self._store_originals(unsafe)
        for document, slot, before in unsafe:
            self._job_growths.changed(document, transition=_is_lasting(before, slot.memory))
        if state.nodes != self._nodes or state.placement_nodes != self._placement_nodes:
            self._nodes, self._placement_nodes = state.nodes, state.placement_nodes
            self._on_nodes(state.nodes, state.placement_nodes)
        records = PolicyRecords(state.classes, state.departed)
        if any(now is not before for now, before in zip(records, self._records, strict=True)):
            self._records = records
            self._on_records(records)

    def _keep(self, uid: str, memory: JobMemory) -> Unsafe | None:
        """Keep one job's memory; returned when its original must be stored now."""
        if memory is self._put_off.get(uid):
            return None
        found = self._slots.get(uid)
        if found is None and (found := self._slot_of(uid)) is None:
            if memory.original is not None:
                self._unstored[uid] = Unstored("its pod is gone")
            return None
        document, slot = found
        if slot.policy != self._policy:  # another one has taken it since this pass began, with its original
            return None
        if not self._moved(slot) and memory is slot.memory and slot.is_safe:
            return None
        before, slot.memory = slot.memory, _with_stored(memory, slot)
        if slot.memory.original is None:
            slot.note_stored()
        if not slot.is_safe:
            return Unsafe(document, slot, before)
        self._job_growths.changed(document, transition=_is_lasting(before, slot.memory))
        return None

    def _moved(self, slot: Slot) -> bool:
        """Whether the slot has another pod than in the last pass, or the same one on another node."""
        if slot.job_uid in self._met:
            return False
        self._met.add(slot.job_uid)
        managed = self._index.find(slot.job_uid)
        return managed is not None and slot.meet(managed)

    def _slot_of(self, uid: str) -> tuple[GrowthDocument, Slot] | None:
        """The slot of a job that is new to this policy, whether its workload is new or another policy's.

        Of another policy's memory only the originals are kept.
        """
        if (managed := self._index.find(uid)) is None:
            return None
        document = self._job_growths.get_or_create(managed.workload, managed.pod.namespace)
        if managed.slot not in document.slots:
            self._forget_gone(document)
        slot = document.slots.setdefault(managed.slot, Slot(uid, JobMemory(), policy=self._policy))
        slot.forget_former(managed)
        document.policy = self._policy
        if slot.policy != self._policy:
            slot.policy, known = self._policy, slot.memory
            slot.memory = JobMemory(original=known.original, original_memory=known.original_memory)
        if slot.memory.original is not None:
            slot.adopted = True
        self._slots[uid] = (document, slot)
        return document, slot

    def _forget_gone(self, document: GrowthDocument) -> None:
        """Drop pods that went by names of their own, which no other pod gets; not those with a move to follow."""
        for name, slot in list(document.slots.items()):
            kept = name != slot.pod.name or slot.memory.original is not None or slot.memory.moves
            if not kept and self._index.find(slot.job_uid) is None:
                del document.slots[name]
                self._slots.pop(slot.job_uid, None)

    def _store_originals(self, unsafe: Sequence[Unsafe]) -> None:
        """Write each document with new originals; one failure stops no other, an outage stops all."""
        jobs_of: dict[str, list[Unsafe]] = {}
        documents: dict[str, GrowthDocument] = {}
        for each in unsafe:
            documents[each.document.key] = each.document
            jobs_of.setdefault(each.document.key, []).append(each)
        left, stop = list(documents.values()), None
        with ThreadPoolExecutor(WRITES_AT_ONCE, thread_name_prefix="originals") as pool:
            while left:
                # First one alone, which shows whether the API server answers.
                batch = left if stop else left[: WRITES_AT_ONCE if self._has_stored else 1]
                left, self._has_stored = left[len(batch) :], True
                problems = [stop] * len(batch) if stop else list(pool.map(self._store, batch))
                for document, problem in zip(batch, problems, strict=True):
                    self._note(jobs_of[document.key], problem)
                    stop = problem if problem is not None and problem.stops_all else stop

    def _store(self, document: GrowthDocument) -> Unstored | None:
        try:
            self._job_growths.write_now(document)
        except ApiError as error:
            return Unstored(f"its original resources could not be stored: {error}", stops_all=error.is_unanswered)
        except NotLeadingError as error:
            return Unstored(str(error), stops_all=True)
        except SlopewiseError as error:
            return Unstored(f"its original resources could not be stored: {error}")
        return None

    def _note(self, jobs: Iterable[Unsafe], problem: Unstored | None) -> None:
        for _, slot, before in jobs:
            if problem is None:
                slot.note_stored()
                self._unstored.pop(slot.job_uid, None)
            else:
                self._put_off[slot.job_uid] = slot.memory
                # An earlier original is kept, also where its object cannot be created again: the pod was changed.
                slot.memory = slot.memory.altered(original=before.original, original_memory=before.original_memory)
                self._unstored[slot.job_uid] = problem

    def stored_original(self, job_uid: str) -> CpuAllocation | str:
        """A job's stored original CPU, or why it is not stored: then the job must not be changed."""
        if (problem := self._unstored.get(job_uid)) is not None:
            return problem.reason
        found, managed = self._slots.get(job_uid), self._index.find(job_uid)
        if found is not None and found[1].policy != self._policy:
            return "another policy manages it now"
        if found is not None and managed is not None and found[1].is_of_former(managed):
            return POD_REPLACED
        return self.original(job_uid) or "its original resources could not be stored, so it is not changed yet"

    def holds_originals(self) -> bool:
        """True while a pod lacks its original resources; ObservationError while that is unknown.

        Reads the store, since a pass may be under way and `load` begins a new one.
        """
        self._job_growths.refresh()
        return self._job_growths.holds_originals(self._policy)

    def original(self, job_uid: str) -> CpuAllocation | None:
        """What a job had before its first resize; None: it has that still."""
        return None if (found := self._slots.get(job_uid)) is None else found[1].memory.original

    def original_memory(self, job_uid: str) -> MemoryAllocation | None:
        """The memory that a job had before its first change; None: it has that still."""
        return None if (found := self._slots.get(job_uid)) is None else found[1].memory.original_memory

    def remembers(self, job_uid: str) -> bool:
        """Whether this policy has managed a job of that uid, also while it is between two pods."""
        return job_uid in self._slots

    def remembered(self) -> Iterator[Remembered]:
        """All jobs that this policy has managed, also those without a pod."""
        for uid, (document, _) in self._slots.items():
            yield Remembered(uid, document.workload, document.namespace)

    def moves_made(self, job_uid: str) -> int:
        """How often a job has been moved so far."""
        return 0 if (found := self._slots.get(job_uid)) is None else found[1].memory.moves_total

    def retire(self, job_uids: Collection[str] | None = None) -> None:
        """Delete the JobGrowths of these jobs (None: all of this policy), which it no longer manages.

        One that still holds an original, or another job of it, stays; one that has pods of another policy is its.
        """
        with self._job_growths.lock:
            for document in self._job_growths.of(self._policy):
                slots = document.slots_of(self._policy)
                let_go = job_uids is None or all(slot.job_uid in job_uids for slot in slots)
                if let_go and all(slot.memory.original is None for slot in slots):
                    self._job_growths.drop(document, self._policy)
                    for slot in slots:
                        self._slots.pop(slot.job_uid, None)


def _with_stored(memory: JobMemory, slot: Slot) -> JobMemory:
    """The memory with its stored original, which is never overwritten, only cleared after a restore or with its pod.

    A policy that has just taken over a workload has no original for it, or takes resized CPU for the original.
    """
    stored, stored_memory = slot.stored_original, slot.stored_memory
    if stored is None or (memory.original is None and not slot.adopted):
        return memory
    of_memory = memory.original_memory if stored_memory is None else stored_memory
    if memory.original == stored and memory.original_memory == of_memory:
        return memory
    return memory.altered(original=stored, original_memory=of_memory)


def _is_lasting(before: JobMemory, now: JobMemory) -> bool:
    """Whether a change must be written at once: a restart without it would decide otherwise."""
    return before is not now and (
        before.original != now.original
        or before.original_memory != now.original_memory
        or before.memory_resizes.at_seconds != now.memory_resizes.at_seconds
        or before.memory_resizes.refused_at_seconds != now.memory_resizes.refused_at_seconds
        or (before.change is not now.change and before.change != now.change)
        or before.decided.job_class != now.decided.job_class
        or before.backoff.until_seconds != now.backoff.until_seconds
        or before.last_resized_at_seconds != now.last_resized_at_seconds
        or before.decided.marks != now.decided.marks
        or (before.placement is not now.placement and _placed(before) != _placed(now))
        or before.moves_total != now.moves_total
        or before.moves != now.moves
        or before.stop != now.stop
    )


def _placed(memory: JobMemory) -> tuple[str | None, frozenset[str]]:
    """The class and the marks that the policy of `spec.placement` has given the job."""
    placement = memory.placement or PolicyMemory()
    return placement.job_class, placement.marks


class Remembered(NamedTuple):
    """A job that a policy has managed before."""

    job_uid: str
    workload: OwnerRef
    namespace: str
