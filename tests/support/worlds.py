"""Small worlds for unit tests: jobs, nodes and snapshots with one line each, and fakes with the ports' shapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from slopewise.errors import ActuationError, ObservationError
from slopewise.model import (
    ClusterSnapshot,
    CpuAllocation,
    Decision,
    Decisions,
    Evaluation,
    Growth,
    Job,
    JobMemory,
    JobState,
    Levels,
    MemoryAllocation,
    MemoryState,
    Migrate,
    Move,
    Node,
    NodeMemory,
    Observation,
    Outcome,
    Place,
    PolicyMemory,
    Resize,
    ResizeMemory,
    Restored,
    Stop,
    Usage,
)

START = 1_000_000.0


def a_node(
    name: str = "n1",
    cpu_cores: float = 1.0,
    requests_max_millicores: int | None = None,
    available_cores: float | None = None,
) -> Node:
    return Node(name, cpu_cores, 8 * 2**30, requests_max_millicores, available_cores)


def a_job(
    uid: str,
    *,
    node: str = "n1",
    level: float | None = 1.0,
    at: float = START,
    age: float = 0.0,
    cpu_seconds: float | None = 0.0,
    limit: int | None = None,
    request: int = 1000,
    finite: bool = True,
    restarted: bool = False,
    samples: int = 4,
    series: str = 'training_loss{stage="eval"}',
    objective: str = "min",
    state: JobState = JobState.TRAINING,
    useful_cores: float | None = None,
    started_at: float = START,
    life: float | None = None,
) -> Job:
    evaluation = None
    if level is not None:
        evaluation = Evaluation(level, samples, at - age, series, objective, finite)  # type: ignore[arg-type]
    usage = None if cpu_seconds is None else Usage(at, cpu_seconds_total=cpu_seconds)
    allocation = CpuAllocation(limit, request)
    return Job(
        uid,
        uid,
        "team",
        node,
        state,
        started_at,
        allocation,
        evaluation,
        usage,
        useful_parallelism_cores=useful_cores,
        restarted=restarted,
        process_started_at_seconds=life,
    )


def a_snapshot(jobs: Sequence[Job], nodes: Sequence[Node] = (), at: float = START) -> ClusterSnapshot:
    return ClusterSnapshot(at, tuple(nodes) or (a_node(),), tuple(jobs), scrape_interval_seconds=5.0)


def known(
    *,
    efficiency: float | None = None,
    measured_at: float = START,
    job_class: str | None = None,
    wanted: float | None = None,
    **more: object,
) -> JobMemory:
    """A job's memory with a growth efficiency (1/s per whole node) measured at a time; `more`: other fields."""
    growth = None
    if efficiency is not None:
        growth = Growth(measured_at, 20.0, efficiency, 1.0, {"cpu": efficiency})
    decided = {name: more.pop(name) for name in PolicyMemory.__struct_fields__ if name in more}
    fields: dict[str, Any] = {"levels": Levels('training_loss{stage="eval"}', 1.0, 0.5), "growth": growth, **more}
    return JobMemory(**fields).with_decided(job_class=job_class, wanted_cores=wanted, **decided)


def remembering(
    jobs: dict[str, JobMemory],
    *,
    evaluated_at: float | None = None,
    interval: float = 20.0,
    node: str = "n1",
    on_node: Iterable[str] | None = None,
) -> MemoryState:
    """Memory of jobs and, when `evaluated_at` is given, of one node that was evaluated then."""
    nodes = {}
    if evaluated_at is not None:
        uids = frozenset(jobs if on_node is None else on_node)
        nodes[node] = NodeMemory(uids, evaluated_at, interval)
    return MemoryState(jobs, nodes)


@dataclass
class FakeObserver:
    """Yields the given snapshots in turn; an exception among them is raised instead."""

    snapshots: list[ClusterSnapshot | ObservationError]

    def observe(self) -> Observation:
        snapshot = self.snapshots.pop(0)
        if isinstance(snapshot, ObservationError):
            raise snapshot
        return Observation(snapshot)


@dataclass
class FakeActuator:
    """Remembers what it was asked to do, in order; fails for the jobs named in `refuses`."""

    refuses: frozenset[str] = frozenset()
    done: list[Resize] = field(default_factory=list)
    moved: list[Move] = field(default_factory=list)
    stopped: list[Stop] = field(default_factory=list)
    sized: list[ResizeMemory] = field(default_factory=list)
    restored: dict[str, CpuAllocation] = field(default_factory=dict)
    restored_memory: dict[str, MemoryAllocation] = field(default_factory=dict)
    restores: dict[str, Restored] = field(default_factory=dict)
    """What becomes of restoring a job; applied where nothing is said."""

    def carry_out(self, decision: Decision) -> Outcome[Decision]:
        refused = decision.job_uid in self.refuses
        match decision:
            case Place() | Migrate():
                self.moved.append(decision)
                return Outcome(decision, "applied")
            case _ if refused:
                raise ActuationError(f"{decision.job_uid} is gone")
            case Resize():
                self.done.append(decision)
            case ResizeMemory():
                self.sized.append(decision)
            case Stop():
                self.stopped.append(decision)
        return Outcome(decision, "applied")

    def restore(self, job_uid: str, original: CpuAllocation, memory: MemoryAllocation | None = None) -> Restored:
        if job_uid in self.refuses:
            raise ActuationError(f"{job_uid} cannot be reached")
        self.restored[job_uid] = original
        if memory is not None:
            self.restored_memory[job_uid] = memory
        return self.restores.get(job_uid, Restored("applied"))


@dataclass
class FakeMemory:
    """Keeps every state that was saved."""

    state: MemoryState = field(default_factory=MemoryState)
    saved: list[MemoryState] = field(default_factory=list)

    def load(self) -> MemoryState:
        return self.state

    def save(self, state: MemoryState) -> None:
        self.state = state
        self.saved.append(state)


@dataclass
class FakeClock:
    """Stands still unless it is moved."""

    seconds: float = START

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds


def limits(decisions: Decisions) -> dict[str, float]:
    """The cores that a policy wants for each job; 0 where it wants none in particular."""
    return {uid: known.decided.wanted_cores or 0.0 for uid, known in decisions.memory.jobs.items()}


def classes(decisions: Decisions) -> dict[str, str | None]:
    """The class that a policy has put each job into."""
    return {uid: known.decided.job_class for uid, known in decisions.memory.jobs.items()}
