"""The Memory port on a cluster: what must survive a restart lives in the status of the custom resources.

`KubeMemory` is one policy's view of the process's one `GrowthBook`. Originals are written before `save` returns;
everything else is written soon (`status_writer.py`). A job whose original could not be stored is not resized:
`OnlyStored` stands in front of the actuator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from controller.adapters.kube.absences import Remembered
from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.contracts import Roster
from controller.adapters.kube.growth_book import GrowthBook
from controller.adapters.kube.growth_objects import GrowthDocument, Slot
from controller.errors import ActuationError, SlopewiseError
from controller.model import (
    CpuAllocation,
    JobMemory,
    MemoryState,
    Move,
    MoveOutcome,
    NodeMemory,
    Outcome,
    Resize,
    Restored,
)
from controller.ports import Actuator

ORIGINALS_A_PASS = 100
"""Jobs of as many workloads are changed for the first time in one pass (`PassSettings.first_changes_a_pass`): storing
their originals is one or two calls of some 5 ms each, and all resizes of a pass wait for the last."""

WRITES_AT_ONCE = 10
"""So 100 originals are stored in a tenth of the time, and the first resize comes within a second of its decision."""


@dataclass(frozen=True, slots=True)
class Unstored:
    """Why a job's original is not safe, so that the job must not be changed."""

    why: str
    stops_all: bool = False
    """The same will happen to every other job of this pass."""


class Unsafe(NamedTuple):
    """A job whose original must be stored before it may be changed."""

    document: GrowthDocument
    slot: Slot
    before: JobMemory
    """What was remembered of it until now."""


class KubeMemory:
    """The Memory port of one policy."""

    def __init__(
        self,
        policy: str,
        book: GrowthBook,
        roster: Roster,
        *,
        intervals: Mapping[str, tuple[float, float]],
        on_nodes: Callable[[Mapping[str, NodeMemory]], None] = lambda nodes: None,
    ) -> None:
        """`intervals`: of each node, when it was looked at and its interval, as stored; `on_nodes` stores new ones."""
        self._policy = policy
        self._book = book
        self._roster = roster
        self._intervals: Mapping[str, tuple[float, float]] | None = intervals
        self._on_nodes = on_nodes
        self._nodes: Mapping[str, NodeMemory] = {}
        self._slots: dict[str, tuple[GrowthDocument, Slot]] = {}
        self._unstored: dict[str, Unstored] = {}
        self._put_off: dict[str, JobMemory] = {}
        """What `save` was given in this pass, with an original that could not be stored: once is enough."""
        self._asked = False
        """An original was stored in this pass, or it was tried."""
        self._met: set[str] = set()
        """Jobs whose pods were looked at in this pass: a pass saves twice within a second."""

    def load(self) -> MemoryState:
        """All that is known of this policy's jobs, also of those that are between two pods just now.

        ObservationError while the JobGrowths are not read: an empty memory would take what we changed for originals.
        """
        self._book.refresh()
        self._put_off, self._asked, self._met = {}, False, set()
        with self._book.lock:
            self._slots = {
                slot.job_uid: (document, slot)
                for document in self._book.of(self._policy)
                if not self._is_over(document)
                for slot in document.slots.values()
            }
        jobs = {}
        for uid, (_, slot) in self._slots.items():
            slot.adopted = False
            jobs[uid] = slot.memory
        if self._intervals is not None:
            self._nodes = dict(self._remembered_nodes(self._intervals))
            self._intervals = None
        return MemoryState(jobs, self._nodes)

    def _is_over(self, document: GrowthDocument) -> bool:
        """The object was deleted with its workload; or by a person, and then it is made anew while a pod is there."""
        if not document.lost:
            return False
        if any(self._roster.find(slot.job_uid) for slot in document.slots.values()):
            self._book.changed(document, transition=True)
            return False
        self._book.close(document)
        return True

    def _remembered_nodes(self, intervals: Mapping[str, tuple[float, float]]) -> Iterator[tuple[str, NodeMemory]]:
        """Who was on a node is told by the jobs: hundreds of uids a node need not be stored twice."""
        on_node: dict[str, set[str]] = {name: set() for name in intervals}
        for uid, (_, slot) in self._slots.items():
            on_node.get(slot.pod.node, set()).add(uid)
        for name, (looked_at, interval) in intervals.items():
            yield name, NodeMemory(frozenset(on_node[name]), looked_at, interval)

    def save(self, state: MemoryState) -> None:
        """Keep `state`; jobs that are not in it are kept as they were. Originals are stored when this returns.

        Never raises for a job: `unstored` tells whose original is not safe, and that job has none meanwhile.
        """
        with self._book.lock:
            unsafe = [found for uid, memory in state.jobs.items() if (found := self._keep(uid, memory)) is not None]
        self._store_originals(unsafe)
        for document, slot, before in unsafe:
            self._book.changed(document, transition=_is_lasting(before, slot.memory))
        if state.nodes != self._nodes:
            self._nodes = state.nodes
            self._on_nodes(state.nodes)

    def _keep(self, uid: str, memory: JobMemory) -> Unsafe | None:
        """Keep one job's memory; where its original must be stored now, that is what is returned."""
        if memory is self._put_off.get(uid):
            return None
        found = self._slots.get(uid)
        if found is not None and memory is found[1].memory and not self._moved(found[1]) and found[1].is_safe:
            return None
        if found is None and (found := self._open(uid)) is None:
            if memory.original is not None:
                self._unstored[uid] = Unstored("its pod is gone")
            return None
        document, slot = found
        before, slot.memory = slot.memory, _with_stored(memory, slot)
        self._moved(slot)
        if slot.memory.original is None:
            slot.stored_original = None
        if not slot.is_safe:
            return Unsafe(document, slot, before)
        self._book.changed(document, transition=_is_lasting(before, slot.memory))
        return None

    def _moved(self, slot: Slot) -> bool:
        """Whether another pod is in the slot than in the last pass, or the same one somewhere else."""
        if slot.job_uid in self._met:
            return False
        self._met.add(slot.job_uid)
        managed = self._roster.find(slot.job_uid)
        return managed is not None and slot.meet(managed)

    def _open(self, uid: str) -> tuple[GrowthDocument, Slot] | None:
        """The slot of a job that is new to this policy, be the workload new or taken over from another policy.

        What another policy remembered means nothing to this one, except the originals.
        """
        managed = self._roster.find(uid)
        if managed is None:
            return None
        document = self._book.open(managed.workload, managed.pod.namespace)
        if document.policy != self._policy:
            document.policy = self._policy
            for slot in document.slots.values():
                slot.memory = JobMemory(original=slot.memory.original)
        slot = document.slots.setdefault(managed.slot, Slot(uid, JobMemory()))
        if slot.memory.original is not None:
            slot.adopted = True
        self._slots[uid] = (document, slot)
        return document, slot

    def _store_originals(self, unsafe: Sequence[Unsafe]) -> None:
        """Write each document whose jobs have new originals; one that fails stops no other, an outage stops all."""
        jobs_of: dict[str, list[Unsafe]] = {}
        documents: dict[str, GrowthDocument] = {}
        for each in unsafe:
            documents[each.document.key] = each.document
            jobs_of.setdefault(each.document.key, []).append(each)
        left, stop = list(documents.values()), None
        with ThreadPoolExecutor(WRITES_AT_ONCE, thread_name_prefix="originals") as pool:
            while left:
                # First one alone, which tells whether anybody answers.
                batch = left if stop else left[: WRITES_AT_ONCE if self._asked else 1]
                left, self._asked = left[len(batch) :], True
                problems = [stop] * len(batch) if stop else list(pool.map(self._store, batch))
                for document, problem in zip(batch, problems, strict=True):
                    self._note(jobs_of[document.key], problem)
                    stop = problem if problem is not None and problem.stops_all else stop

    def _store(self, document: GrowthDocument) -> Unstored | None:
        try:
            self._book.write_now(document)
        except ApiError as error:
            return Unstored(f"its original resources could not be stored: {error}", stops_all=error.status == 0)
        except ActuationError as error:
            return Unstored(str(error), stops_all=True)
        except SlopewiseError as error:
            return Unstored(f"its original resources could not be stored: {error}")
        return None

    def _note(self, jobs: Iterable[Unsafe], problem: Unstored | None) -> None:
        for _, slot, before in jobs:
            if problem is None:
                slot.stored_original = slot.memory.original
                self._unstored.pop(slot.job_uid, None)
            else:
                self._put_off[slot.job_uid] = slot.memory
                # One that it had is kept, also where its object was deleted and cannot be made anew: it was changed.
                slot.memory = slot.memory.altered(original=before.original)
                self._unstored[slot.job_uid] = problem

    def unstored(self, job_uid: str) -> Unstored | None:
        """Why this job's original is not safe; None: it is, or it has none."""
        return self._unstored.get(job_uid)

    def original(self, job_uid: str) -> CpuAllocation | None:
        """What a job had before our first change; None: it has that still."""
        found = self._slots.get(job_uid)
        return None if found is None else found[1].memory.original

    def remembers(self, job_uid: str) -> bool:
        """Whether this policy has managed a job of that uid, also while it is between two pods."""
        return job_uid in self._slots

    def remembered(self) -> Iterator[Remembered]:
        """All jobs that this policy has managed, also those without a pod."""
        for uid, (document, _) in self._slots.items():
            yield Remembered(uid, document.workload, document.namespace)

    def moves_made(self, job_uid: str) -> int:
        """How often a job has been moved so far."""
        found = self._slots.get(job_uid)
        return 0 if found is None else found[1].memory.moves_total

    def retire(self, job_uids: Collection[str] | None = None) -> None:
        """Delete the JobGrowths of these jobs (None: all of this policy), now that it manages them no more.

        One that still holds an original, or another job, stays.
        """
        with self._book.lock:
            for document in self._book.of(self._policy):
                slots = document.slots.values()
                let_go = job_uids is None or all(slot.job_uid in job_uids for slot in slots)
                if let_go and all(slot.memory.original is None for slot in slots):
                    self._book.retire(document)
                    for slot in slots:
                        self._slots.pop(slot.job_uid, None)


class OnlyStored:
    """An Actuator that lets no change through to a job whose original is not safely stored."""

    def __init__(self, actuator: Actuator, memory: KubeMemory) -> None:
        self._actuator = actuator
        self._memory = memory

    def resize(self, resize: Resize) -> Outcome:
        """As the actuator does it; `failed`, and nothing sent, without a stored original."""
        problem = self._memory.unstored(resize.job_uid)
        return self._actuator.resize(resize) if problem is None else Outcome(resize, "failed", problem.why)

    def move(self, move: Move) -> MoveOutcome:
        """As the actuator does it: a move changes no resources."""
        return self._actuator.move(move)

    def restore(self, job_uid: str, original: CpuAllocation) -> Restored:
        """As the actuator does it: the way back is always open."""
        return self._actuator.restore(job_uid, original)


def _with_stored(memory: JobMemory, slot: Slot) -> JobMemory:
    """What is stored as original is never overwritten, only cleared once it is back.

    A policy that has just taken a workload over knows of no original, or takes for one what the former policy left.
    """
    stored = slot.stored_original
    if stored is None or memory.original == stored or (memory.original is None and not slot.adopted):
        return memory
    return memory.altered(original=stored)


def _is_lasting(before: JobMemory, now: JobMemory) -> bool:
    """Whether something changed that must not be lost for a minute: a restart would decide otherwise without it."""
    return before is not now and (
        before.original != now.original
        or (before.change is not now.change and before.change != now.change)
        or before.job_class != now.job_class
        or before.alone_until_seconds != now.alone_until_seconds
        or before.last_resized_at_seconds != now.last_resized_at_seconds
        or before.marks != now.marks
        or before.moves_total != now.moves_total
        or before.moves != now.moves
    )
