"""What a policy does that keeps objectives (paces or deadlines) on several nodes; for `dqoes` and `deadline`.

An objective is that a step, or a response, takes no longer than so many seconds; the need of a job on a node is the CPU
with which it does. Arriving jobs are placed by need (`need_placement.py`), each node is divided by what its jobs need,
and a job whose node cannot keep its objective is moved to one that can.

A job is a candidate for a move once its node could not keep its objective at so many evaluations in a row
(`PolicyMemory.unmet`, counted by `node_passes.py`), and the evaluation at hand is one of them. The cheapest move comes
first; it goes to the fullest node whose free CPU, beside the needs that are kept there, is its need. At most one job
leaves a node at an evaluation: the next evaluation sees what its CPU did for the others. On its new node the count
begins again. The pods of a Job move together, to a node on which all their needs fit.

Worked example: on n1, of one core, needs of 0.7 and 0.5; on n2 one of 0.4. After three evaluations the job with 0.5
moves to n2, and all three are kept.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

from slopewise.allocation import capacity_cores, promisable
from slopewise.estimators.move_cost import cost_of
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
from slopewise.policies import PolicyParameters, Setting, parameter
from slopewise.policies.shared.need_placement import Need, NodeRoom, Rooms, place_by_need, wanted_cores
from slopewise.policies.shared.node_passes import NodeDecision, decide_by_node
from slopewise.policies.shared.placement import can_move, refused_nodes
from slopewise.policies.shared.shares import had_cores, speed
from slopewise.policies.shared.silence import JobsOfNode, without_a_report

ROUNDING = 1e-9
"""Relative: by so much times, or needs that fill a node, may differ from their bound in floating point."""

_SWITCH = "true or false"


def placement_parameter(*, source: str) -> Any:
    """Whether arriving jobs are placed."""
    return parameter(True, unit=_SWITCH, source=source, description="choose the node of arriving jobs")


def moves_parameter(objective: str) -> Any:
    """Whether jobs are moved whose objective their node cannot keep."""
    description = f"move a job whose {objective} its node cannot keep to a node that can"
    return parameter(True, unit=_SWITCH, source="ours", description=description)


def missed_evaluations_parameter(objective: str) -> Any:
    """After how many evaluations that is."""
    return parameter(
        3,
        ge=1,
        le=100,
        unit="evaluations",
        source="ours",
        description=f"in a row at which its node could not keep its {objective}, before a job is moved",
    )


class NeedParameters(PolicyParameters):
    """What the parameters of each such policy have; each gives its own defaults and descriptions."""

    placement: bool
    moves: bool
    missed_evaluations: int


@dataclass(slots=True)
class NeedCase:
    """One job, its objective and its need on its node; `NeedPolicy._assess` makes it, and `_divide` completes it.

    It is not frozen: four copies of each would be half the time of a decision for 10,000 jobs.
    """

    job: Job
    known: JobMemory
    useful_cores: float
    listed: str
    needs_cores: float | None = None
    """With this its objective is kept here. None: with nothing it is, or nothing is known, or it has none."""
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


P = TypeVar("P", bound=NeedParameters)
C = TypeVar("C", bound=NeedCase)


class NeedPolicy(ABC, Generic[P, C]):
    """Placement and moves by need; each policy says what a job needs, and divides a node."""

    NAME: str
    OBJECTIVE: str
    """`objective` or `deadline`."""

    def __init__(self, parameters: P, setting: Setting) -> None:
        self._parameters, self._setting = parameters, setting

    @property
    def _longest_seconds(self) -> float:
        """Between two evaluations of a node."""
        return self._setting.interval_seconds

    @abstractmethod
    def _assess(self, job: Job, known: JobMemory, node: Node, had_cores: float, at: At) -> C:
        """What the job needs on this node from then on; `had_cores`: what it might use by its paces."""

    @abstractmethod
    def _divide(self, node: Node, cases: Sequence[C]) -> None:
        """Which objectives are kept, and the limit of each job; cases are in order of uid."""

    @abstractmethod
    def _verdicts(self, node: Node, cases: Sequence[C], last: NodeMemory | None, now_seconds: float) -> NodeDecision:
        """The decision on one node that is due."""

    @abstractmethod
    def _room(self, node: Node, cases: Iterable[C]) -> NodeRoom:
        """What the jobs of a node take of it."""

    @abstractmethod
    def _is_asked(self, objectives: Objectives) -> bool:
        """Whether its owner states such an objective."""

    @abstractmethod
    def _asked_seconds(self, arrival: Arrival, known: JobMemory, at: At) -> float | None:
        """The most that a step or response of a job that has run before may take; None: not known."""

    @abstractmethod
    def _turn(self, arrival: Arrival, need: Need | None) -> float:
        """The arrival with the least is placed first; `need`: on the largest node; None: no objective is stated."""

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Place what arrives, decide on every node that is due, and move what its node cannot keep its objective to."""
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
            """By the paces of its former process, else what it wants."""
            if not self._is_asked(arrival.objectives):
                return None
            cores, wanted, known = None, wanted_cores(arrival, node), memory.arriving.get(arrival.uid)
            if known is not None and (found := speed(known, wanted)) is not None:
                seconds = self._asked_seconds(arrival, known, now)
                cores = None if seconds is None else found.limit_for(seconds)
            return Need(wanted, timed=False) if cores is None else Need(cores, timed=True)

        def rank(arrival: Arrival) -> float:
            return self._turn(arrival, need_of(arrival, largest))

        moves: tuple[Move, ...] = ()
        if self._parameters.placement and snapshot.waiting:
            moves = place_by_need(snapshot, memory, rooms(), need_of, rank, objective=self.OBJECTIVE)
        decided = decide_by_node(
            self.NAME, snapshot, memory, control, decide_node, moves,
            silence=silence, reserves=True, longest_seconds=self._longest_seconds,
        )  # fmt: skip
        return replace(decided, moves=(*decided.moves, *self._leaving(snapshot, decided.memory, rooms, now)))

    def _leaving(self, snapshot: ClusterSnapshot, memory: MemoryState, rooms: Rooms, now: At) -> tuple[Migrate, ...]:
        """The jobs that leave nodes which cannot keep their objectives; `memory` is that after the evaluation.

        `rooms` is asked only where there are candidates, and updated.
        """
        evaluations = self._parameters.missed_evaluations if self._parameters.moves else math.inf
        if not (candidates := _candidates(snapshot, memory, evaluations)):
            return ()
        free_on, memory_room = rooms(), snapshot.memory_room_bytes()
        # Nodes to which a job is on its way that is on no node yet: its need does not show.
        here = {job.uid for job in snapshot.jobs}
        awaited = {move.node for move in snapshot.moving if move.job_uid not in here}
        moves: list[Migrate] = []
        left: set[str] = set()
        for each in candidates:
            leaves = {pod.node for pod in each.pods}
            reserved = math.fsum(pod.memory_request_bytes or 0.0 for pod in each.pods)
            if not left.isdisjoint(leaves):
                continue
            refused = {name for pod in each.pods for name in refused_nodes(pod)}
            fits = [
                (free_on[node.name].free_cores, node.name, needs)
                for node in snapshot.nodes
                if node.name not in leaves | refused | awaited
                and reserved <= memory_room[node.name]
                and (needs := self._needs_there(each, node, memory, now)) is not None
                and math.fsum(needs) <= free_on[node.name].free_cores
            ]
            if not fits:
                continue
            free, target, needs = min(fits)
            wants = "needs" if len(each.pods) == 1 else f"its {len(each.pods)} pods need"
            reason = (
                f"{each.job.node} has not kept its {self.OBJECTIVE} at {each.evaluations} evaluations in a row: "
                f"{wants} {math.fsum(needs):.3g} cores, {target} has {free:.3g} free"
            )
            moves += [Migrate(pod.uid, pod.node, target, reason, relieves=self.OBJECTIVE) for pod in each.pods]
            left |= leaves
            for need in needs:
                free_on[target].add(need)
            memory_room[target] -= reserved
        return tuple(moves)

    def _needs_there(self, candidate: _Candidate, node: Node, memory: MemoryState, now: At) -> list[float] | None:
        """The cores with which each pod keeps its objective on another node; None: with none, or it is not known."""
        later, needs = replace(now, now_seconds=now.now_seconds + candidate.away_seconds), []
        for pod in candidate.pods:
            known = memory.jobs[pod.uid]
            had = min(capacity_cores(node), known.decided.wanted_cores or node.cpu_cores)
            one = self._assess(pod, known, promisable(node), had, later)
            if one.needs_cores is None or one.needs_cores > one.useful_cores:
                return None
            needs.append(one.needs_cores)
        return needs


class _Candidate(NamedTuple):
    """A job that may be moved with all pods of its workload, and what that costs."""

    job: Job
    evaluations: int
    pods: tuple[Job, ...]
    """Itself among them."""
    away_seconds: float
    """Until the last of them is back."""
    cost_seconds: float


def _candidates(snapshot: ClusterSnapshot, memory: MemoryState, evaluations: float) -> Sequence[_Candidate]:
    """Jobs that may leave at this evaluation, cheapest move first."""
    now = snapshot.taken_at_seconds
    found = []
    for job in snapshot.jobs:
        unmet = memory.jobs[job.uid].decided.unmet
        if unmet is None or unmet.evaluations < evaluations or unmet.at_seconds != now or unmet.node != job.node:
            continue
        if can_move(job) and (pods := _moving_with(job, snapshot)):
            costs = [cost_of(pod, memory.jobs[pod.uid], 1.0, now) for pod in pods]
            away = max(cost.unweighted_seconds for cost in costs)
            total = math.fsum(cost.total_seconds for cost in costs)
            found.append(_Candidate(job, unmet.evaluations, pods, away, total))
    return sorted(found, key=lambda each: (each.cost_seconds, each.job.uid))


def _moving_with(job: Job, snapshot: ClusterSnapshot) -> tuple[Job, ...]:
    """The pods of its workload, which move together, in order of uid; none where they cannot.

    A Job is suspended whole. The pods of other owners would be evicted one by one, which for replicas of one server is
    an outage of all of them.
    """
    if job.movability is None or len(job.movability.members) < 2:
        return (job,)
    uids = set(job.movability.members)
    pods = sorted((each for each in snapshot.jobs if each.uid in uids), key=lambda each: each.uid)
    together = len(pods) == len(uids) and job.movability.way == "suspend" and all(map(can_move, pods))
    return tuple(pods) if together else ()
