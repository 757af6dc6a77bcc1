"""What a policy does that keeps promises (objectives or deadlines) on several nodes; for `dqoes` and `deadline`.

A promise is that a step, or a response, takes no longer than so many seconds; the need of a job on a node is the CPU
with which it does. Arriving jobs are placed by need (`need_placement.py`), each node is divided by what its jobs need,
and a job whose node cannot keep its promise is moved to one that can (`promise_moves.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Generic, Protocol, TypeVar

from slopewise.allocation import capacity_cores, promisable
from slopewise.model import (
    Arrival,
    ClusterSnapshot,
    Decisions,
    Job,
    JobMemory,
    MemoryState,
    Migrate,
    Move,
    Node,
    NodeMemory,
    Objectives,
)
from slopewise.policies import Setting, parameter
from slopewise.policies.shared.need_placement import Need, NodeRoom, Rooms, need_on, place_by_need
from slopewise.policies.shared.node_passes import NodeDecision, decide_by_node
from slopewise.policies.shared.pace_models import had_cores, speed
from slopewise.policies.shared.promise_moves import moves_for_promises
from slopewise.policies.shared.silence import JobsOfNode, without_a_report

_SWITCH = "true or false"


def placement_parameter(*, source: str) -> Any:
    """Whether arriving jobs are placed."""
    return parameter(True, unit=_SWITCH, source=source, description="choose the node of arriving jobs")


def moves_parameter(promise: str) -> Any:
    """Whether jobs are moved whose promise their node cannot keep."""
    description = f"move a job whose {promise} its node cannot keep to a node that can"
    return parameter(True, unit=_SWITCH, source="ours", description=description)


def missed_evaluations_parameter(promise: str) -> Any:
    """After how many evaluations that is."""
    return parameter(
        3,
        ge=1,
        le=100,
        unit="evaluations",
        source="ours",
        description=f"in a row at which its node could not keep its {promise}, before a job is moved",
    )


class PromiseParameters(Protocol):
    """What the parameters of each such policy have."""

    @property
    def placement(self) -> bool: ...  # noqa: D102
    @property
    def moves(self) -> bool: ...  # noqa: D102
    @property
    def missed_evaluations(self) -> int: ...  # noqa: D102


@dataclass(slots=True)
class PromiseCase:
    """One job, its promise and its need on its node; `PromisePolicy._assess` makes it, and `_divide` completes it.

    It is not frozen: four copies of each would be half the time of a decision for 10,000 jobs.
    """

    job: Job
    known: JobMemory
    useful_cores: float
    listed: str
    needs_cores: float | None = None
    """With this its promise is kept here. None: with nothing it is, or nothing is known, or it has none."""
    is_kept: bool = False
    """Its need fits beside those that come first."""
    limit_cores: float = 0.0


@dataclass(frozen=True, slots=True)
class At:
    """The moment of a pass, and its cluster."""

    now_seconds: float
    scrape_interval_seconds: float
    largest: Node
    """By its capacity, and of that size."""


P = TypeVar("P", bound=PromiseParameters)
C = TypeVar("C", bound=PromiseCase)


class PromisePolicy(ABC, Generic[P, C]):
    """Placement and moves by need; each policy says what a job needs, and divides a node."""

    NAME: str
    PROMISE: str
    """`objective` or `deadline`."""

    def __init__(self, parameters: P, setting: Setting) -> None:
        self._parameters, self._setting = parameters, setting

    @abstractmethod
    def _assess(self, job: Job, known: JobMemory, node: Node, had_cores: float, at: At) -> C:
        """What the job needs on this node from then on; `had_cores`: what it might use by its paces."""

    @abstractmethod
    def _divide(self, node: Node, cases: Sequence[C]) -> None:
        """Which promises are kept, and the limit of each job; cases are in order of uid."""

    @abstractmethod
    def _verdicts(self, node: Node, cases: Sequence[C], last: NodeMemory | None, now_seconds: float) -> NodeDecision:
        """The decision on one node that is due."""

    @abstractmethod
    def _room(self, node: Node, cases: Iterable[C]) -> NodeRoom:
        """What the jobs of a node take of it."""

    @abstractmethod
    def _is_asked(self, objectives: Objectives) -> bool:
        """Whether its owner states such a promise."""

    @abstractmethod
    def _asked_seconds(self, arrival: Arrival, known: JobMemory, at: At) -> float | None:
        """The most that a step or response of a job that has run before may take; None: not known."""

    @abstractmethod
    def _turn(self, arrival: Arrival, need: Need | None) -> float:
        """The arrival with the least is placed first; `need`: on the largest node; None: no promise is stated."""

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Place what arrives, decide on every node that is due, and move what its node cannot keep its promise to."""
        if not snapshot.nodes:
            return Decisions(self.NAME, (), {}, MemoryState(memory.jobs))
        silence, jobs_on = without_a_report(snapshot), snapshot.jobs_by_node()
        nodes, control = {node.name: node for node in snapshot.nodes}, self._setting.control
        largest = max(map(promisable, snapshot.nodes), key=lambda node: node.cpu_cores)
        now = At(snapshot.taken_at_seconds, snapshot.scrape_interval_seconds, largest)

        @cache
        def cases_on(name: str) -> tuple[Node, list[C]]:
            here = JobsOfNode.of(jobs_on[name], memory.jobs, silence)
            node, jobs = here.left_on(nodes[name], memory.jobs, control, reserves=True), here.reporting
            had = had_cores(jobs, node, control)
            cases = [
                self._assess(job, memory.jobs[job.uid], node, cores, now) for job, cores in zip(jobs, had, strict=True)
            ]
            self._divide(node, cases)
            return node, cases

        @cache
        def rooms() -> Mapping[str, NodeRoom]:
            return {name: self._room(*cases_on(name)) for name in nodes}

        def decide_node(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> NodeDecision:
            return self._verdicts(*cases_on(node.name), last, snapshot.taken_at_seconds)

        def need_of(arrival: Arrival, node: Node) -> Need | None:
            def measured_cores(known: JobMemory, wanted: float) -> float | None:
                found, seconds = speed(known, wanted), self._asked_seconds(arrival, known, now)
                return None if found is None or seconds is None else found.limit_for(seconds)

            return need_on(node, arrival, memory, measured_cores) if self._is_asked(arrival.objectives) else None

        def rank(arrival: Arrival) -> float:
            return self._turn(arrival, need_of(arrival, largest))

        moves: tuple[Move, ...] = ()
        if self._parameters.placement and snapshot.waiting:
            moves = place_by_need(snapshot, memory, rooms(), need_of, rank, promise=self.PROMISE)
        decided = decide_by_node(
            self.NAME, snapshot, memory, control, decide_node, moves, silence=silence, reserves=True
        )
        return replace(decided, moves=(*decided.moves, *self._leaving(snapshot, decided.memory, rooms, now)))

    def _leaving(self, snapshot: ClusterSnapshot, memory: MemoryState, rooms: Rooms, now: At) -> tuple[Migrate, ...]:
        """The jobs that leave nodes which cannot keep their promises."""

        def need_there(job: Job, known: JobMemory, node: Node, away_seconds: float) -> float | None:
            had = min(capacity_cores(node), known.wanted_cores or node.cpu_cores)
            later = replace(now, now_seconds=now.now_seconds + away_seconds)
            one = self._assess(job, known, promisable(node), had, later)
            return None if one.needs_cores is None or one.needs_cores > one.useful_cores else one.needs_cores

        if not self._parameters.moves:
            return ()
        evaluations = self._parameters.missed_evaluations
        return moves_for_promises(snapshot, memory, rooms, need_there, promise=self.PROMISE, evaluations=evaluations)
