"""Where `marginal` places arriving jobs, and the one kind of move that it makes: to a node that idles.

Placement: the node on which the values of all milestones come later by least. A node's milestones (90 %, 99 % and the
end of each job) are blocks of work and value, in order of value per work; a new block delays all that are worth less.

Moves: a node whose jobs leave idle at least half of what a job can use takes it: the job of least index of the most
crowded node. Jobs that share a node while another one idles are nearly all of what moves can gain.

A node counts as what other pods leave of it, for both.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from slopewise.allocation import promisable
from slopewise.estimators.move_cost import cost_of
from slopewise.estimators.speed import useful_cores
from slopewise.model import Arrival, ClusterSnapshot, Job, MemoryState, Migrate, Node, Place
from slopewise.policies.shared.marginal_index import SIZE_EXPONENT, Weights
from slopewise.policies.shared.placement import can_move, place_each, refused_nodes
from slopewise.policies.shared.prospects import Prospects, expected_work

MIN_PAUSES_LEFT = 10.0
"""A job is moved only with so many times the pause of its move left."""

MIN_MOVE_GAP_SECONDS = 20.0

IDLE_RATIO = 0.5
"""Of what a job can use, so much must idle on the node that takes it."""

TYPICAL_90, TYPICAL_99 = 0.23, 0.46
"""Where in its work a job of kappa 10 reaches 90 % and 99 %."""

Block = tuple[float, float]
"""Value and work."""


@dataclass(slots=True)
class Load:
    """The jobs of one node, as far as placement looks at them."""

    node: Node
    """As large as its capacity for managed jobs."""
    useful: float = 0.0
    blocks: list[Block] = field(default_factory=list)
    _ratios: list[float] = field(default_factory=list)
    _works: list[float] = field(default_factory=list)
    _values: list[float] = field(default_factory=list)
    _rises: dict[tuple[float, tuple[Block, ...]], float] = field(default_factory=dict)
    """Of jobs that were considered since the last one was added: those that arrive together are often alike."""

    def add(self, useful: float, blocks: Sequence[Block]) -> None:
        """Count a job here."""
        self.useful += useful
        self.blocks += blocks
        self.settle()

    def settle(self) -> None:
        """Sort the blocks."""
        self.blocks.sort(key=lambda block: -block[0] / block[1])
        self._ratios = [-value / work for value, work in self.blocks]
        self._works = list(accumulate((work for _, work in self.blocks), initial=0.0))
        self._values = list(accumulate((value for value, _ in self.blocks), initial=0.0))
        self._rises = {}

    def rise(self, useful: float, blocks: tuple[Block, ...]) -> float:
        """By how much the sum of value x finish time rises with a job of these blocks."""
        found = self._rises.get((useful, blocks))
        if found is None:
            found = self._rises[useful, blocks] = self._rise(useful, blocks)
        return found

    def _rise(self, useful: float, blocks: Sequence[Block]) -> float:
        cores = self.node.cpu_cores
        own = math.fsum(value * work for value, work in blocks) / min(cores, useful)
        if self.useful + useful <= cores:
            return own
        waited = 0.0
        for value, work in blocks:
            at = bisect_left(self._ratios, -value / work)
            waited += value * self._works[at] + work * (self._values[-1] - self._values[at])
        return own + waited / cores


def milestones(works: Sequence[float], weights: Weights, weight: float) -> list[Block]:
    """Blocks of the work to 90 %, to 99 % and to the end (ascending, from now), joined so that value per work falls."""
    blocks: list[Block] = []
    before = 0.0
    for until, value in zip(works, (weights.at_90, weights.at_99, weights.end), strict=True):
        work = max(0.0, until - before)
        if until <= 0:
            continue
        blocks.append((weight * value, max(work, 1e-6)))
        before = max(before, until)
        while len(blocks) > 1 and blocks[-1][0] * blocks[-2][1] >= blocks[-2][0] * blocks[-1][1]:
            (value_b, work_b), (value_a, work_a) = blocks.pop(), blocks.pop()
            blocks.append((value_a + value_b, work_a + work_b))
    return blocks


def loads(snapshot: ClusterSnapshot, expected: Prospects, weights: Weights) -> dict[str, Load]:
    """The nodes with their jobs, and with those that are on their way to them."""
    found = {node.name: Load(promisable(node)) for node in snapshot.nodes}
    for job in snapshot.jobs:
        if job.state.ended or job.node not in found:
            continue
        load = found[job.node]
        load.useful += useful_cores(job, load.node)
        prospect = expected.by_uid.get(job.uid)
        if prospect is not None and math.isfinite(prospect.total):
            works = [prospect.work_to(0.9), prospect.work_to(0.99), prospect.left]
            size = _size(prospect.total, expected.median_work)
            load.blocks += milestones(works, weights, job.objectives.weight * size)
        else:
            load.blocks += _typical(expected.median_work, weights, job.objectives.weight)
    here = {job.uid for job in snapshot.jobs}
    for moving in snapshot.moving:
        if moving.job_uid not in here and moving.node in found:
            found[moving.node].useful += 1.0
    for load in found.values():
        load.settle()
    return found


def _size(work: float, median: float) -> float:
    return math.pow(median / max(work, 1e-9), SIZE_EXPONENT)


def _typical(work: float, weights: Weights, weight: float) -> list[Block]:
    return milestones([TYPICAL_90 * work, TYPICAL_99 * work, work], weights, weight)


def places(
    snapshot: ClusterSnapshot, memory: MemoryState, expected: Prospects, weights: Weights, found: Mapping[str, Load]
) -> tuple[Place, ...]:
    """Arriving jobs, each where the cost rises least."""
    blocks: dict[str, tuple[Block, ...]] = {}
    for arrival in snapshot.waiting:
        work = expected_work(arrival, memory.classes, expected.median_work)
        size = _size(work, expected.median_work)
        blocks[arrival.uid] = tuple(_typical(work, weights, arrival.objectives.weight * size))

    def needs(arrival: Arrival, node: Node) -> tuple[float, tuple[Block, ...]]:
        capacity = found[node.name].node.cpu_cores
        return min(capacity, arrival.useful_parallelism_cores or capacity), blocks[arrival.uid]

    def cost(arrival: Arrival, node: Node) -> float:
        return found[node.name].rise(*needs(arrival, node))

    def placed(arrival: Arrival, node: Node) -> str:
        rise = cost(arrival, node)
        found[node.name].add(*needs(arrival, node))
        return f"placed on {node.name}, where the milestones of all jobs are delayed least (cost {rise:.3g})"

    return place_each(snapshot, memory, cost, placed)


def moves(
    snapshot: ClusterSnapshot, memory: MemoryState, expected: Prospects, found: Mapping[str, Load]
) -> tuple[Migrate, ...]:
    """To each node that idles, emptiest first, the job of least index from the most crowded node."""
    if len(found) < 2 or snapshot.waiting:
        return ()
    now, room = snapshot.taken_at_seconds, snapshot.memory_room_bytes()
    on_node, whole = snapshot.jobs_by_node(), {node.name: node for node in snapshot.nodes}
    decided: list[Migrate] = []
    by_idle = sorted(found.values(), key=lambda load: (load.useful - load.node.cpu_cores, load.node.name))
    for target in by_idle:
        idle = target.node.cpu_cores - target.useful
        if idle <= 0:
            break
        donors = [load for load in found.values() if load.useful > load.node.cpu_cores and load is not target]
        for donor in sorted(donors, key=lambda load: (-load.useful / load.node.cpu_cores, load.node.name)):
            jobs = _movable(on_node[donor.node.name], memory, expected, now)
            fits = _fits(target, whole[target.node.name], donor, idle, room)
            chosen = next((job for job in jobs if fits(job)), None)
            if chosen is None:
                continue
            useful = useful_cores(chosen, donor.node)
            because = (
                f"{target.node.name} leaves {idle:.3g} cores idle, {donor.node.name} has jobs for "
                f"{donor.useful:.3g} of {donor.node.cpu_cores:.3g} cores, this one's next work is worth least"
            )
            decided.append(Migrate(chosen.uid, donor.node.name, target.node.name, because))
            donor.useful -= useful
            target.useful += useful
            room[target.node.name] -= chosen.memory_to_move_bytes or 0.0
            on_node[donor.node.name] = [job for job in on_node[donor.node.name] if job is not chosen]
            break
    return tuple(decided)


def _movable(jobs: Sequence[Job], memory: MemoryState, expected: Prospects, now_seconds: float) -> list[Job]:
    """Jobs that may move now and have enough left, least index first."""
    found = []
    for job in jobs:
        prospect, known = expected.by_uid.get(job.uid), memory.jobs[job.uid]
        if prospect is None or not can_move(job):
            continue
        if known.moved_at_seconds is not None and now_seconds - known.moved_at_seconds < MIN_MOVE_GAP_SECONDS:
            continue
        if prospect.left >= MIN_PAUSES_LEFT * cost_of(job, known, 1.0, now_seconds).unweighted_seconds:
            found.append((prospect.index, job.uid, job))
    return [job for _, _, job in sorted(found, key=lambda each: each[:2])]


def _fits(target: Load, whole: Node, donor: Load, idle: float, room: Mapping[str, float]) -> Callable[[Job], bool]:
    """Whether a job may go from the donor to the target; `whole`: the target with what other pods take of it."""

    def fits(job: Job) -> bool:
        # What other pods leave may be all that the job can use there, and less than it has: 0.2 of 16 cores.
        has = useful_cores(job, donor.node) * donor.node.cpu_cores / donor.useful
        useful = min(useful_cores(job, whole), max(useful_cores(job, target.node), has))
        return (
            idle >= IDLE_RATIO * useful
            and donor.useful - useful_cores(job, donor.node) > 0
            and (job.memory_to_move_bytes or 0.0) <= room[target.node.name]
            and target.node.name not in refused_nodes(job)
        )

    return fits
