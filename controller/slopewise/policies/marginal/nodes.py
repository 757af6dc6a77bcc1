"""Where `marginal` places arriving jobs, and its one kind of move: to a node that idles.

Jobs that share a node while another one idles are nearly all of what moves can gain. A node counts as what other pods
leave of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from slopewise.allocation import promisable
from slopewise.estimators.move_cost import cost_of
from slopewise.estimators.speed import useful_cores
from slopewise.estimators.workload_classes import expected
from slopewise.model import Arrival, ClusterSnapshot, Job, MemoryState, Migrate, Node, Place
from slopewise.policies.marginal.forecast import Forecast, median_work
from slopewise.policies.shared.placement import can_move, place_each, refused_nodes

MIN_PAUSES_LEFT = 10.0
"""A job is moved only with so many times the pause of its move left."""

MIN_MOVE_GAP_SECONDS = 20.0
"""Between two moves of a job: the first one's effect has been seen at an evaluation."""

IDLE_RATIO = 0.5
"""Of what a job can use, so much must idle on the node that takes it."""


@dataclass(slots=True)
class _Load:
    """One node, as large as its capacity for managed jobs."""

    node: Node
    useful: float = 0.0
    """What its jobs can use together, in cores."""
    left: float = 0.0
    """Work, in core-seconds."""

    @property
    def idle(self) -> float:
        return self.node.cpu_cores - self.useful


def _loads(snapshot: ClusterSnapshot, found: Mapping[str, Forecast], usual: float) -> dict[str, _Load]:
    """The nodes with their jobs, and with those that are on their way to them."""
    loads = {node.name: _Load(promisable(node)) for node in snapshot.nodes}
    for name, jobs in snapshot.jobs_by_node().items():
        for job in jobs:
            loads[name].useful += useful_cores(job, loads[name].node)
            loads[name].left += found[job.uid].left if job.uid in found else usual
    here = {job.uid for job in snapshot.jobs}
    for moving in snapshot.moving:
        if moving.job_uid not in here and moving.node in loads:
            loads[moving.node].useful += 1.0
    return loads


def places(snapshot: ClusterSnapshot, memory: MemoryState, found: Mapping[str, Forecast]) -> tuple[Place, ...]:
    """Arriving jobs, each on the node where it has most CPU if all share; of equal ones that with least work left."""
    usual = median_work(found.values())
    loads = _loads(snapshot, found, usual) if snapshot.waiting else {}

    def useful_and_share(arrival: Arrival, node: Node) -> tuple[float, float]:
        load = loads[node.name]
        useful = min(load.node.cpu_cores, arrival.useful_parallelism_cores or math.inf)
        return useful, useful * min(1.0, load.node.cpu_cores / (load.useful + useful))

    def cost(arrival: Arrival, node: Node) -> float:
        left = loads[node.name].left
        return 1e-6 * left / (left + usual) - useful_and_share(arrival, node)[1]

    def placed(arrival: Arrival, node: Node) -> str:
        load, (useful, share) = loads[node.name], useful_and_share(arrival, node)
        load.useful += useful
        record = expected(arrival.workload_class, memory.classes)
        steps = record and (arrival.steps_planned or record.steps_planned)
        load.left += max(1e-3, steps * record.step_cpu_seconds) if record and steps else usual
        return f"placed on {node.name}, where its share is largest: {share:.3g} of {load.node.cpu_cores:.3g} cores"

    return place_each(snapshot, memory, cost, placed)


def moves(snapshot: ClusterSnapshot, memory: MemoryState, found: Mapping[str, Forecast]) -> tuple[Migrate, ...]:
    """To each node that idles, emptiest first, the job of least index from the most crowded node."""
    if len(snapshot.nodes) < 2 or snapshot.waiting:
        return ()
    loads = _loads(snapshot, found, 0.0)
    room, now = snapshot.memory_room_bytes(), snapshot.taken_at_seconds
    movable = {
        node: [job for job in jobs if job.uid in found and _may_move(job, memory, found[job.uid], now)]
        for node, jobs in snapshot.jobs_by_node().items()
    }

    def most_crowded_first() -> list[_Load]:
        donors = [load for name, load in loads.items() if load.idle < 0 and movable[name]]
        return sorted(donors, key=lambda load: (-load.useful / load.node.cpu_cores, load.node.name))

    crowded, least, decided = most_crowded_first(), dict[tuple[str, float], float](), list[Migrate]()
    for target in sorted(loads.values(), key=lambda load: (-load.idle, load.node.name)):
        name = target.node.name
        for donor in crowded if target.idle > 0 else ():
            here, key = movable[donor.node.name], (donor.node.name, target.node.cpu_cores)
            if key not in least:
                least[key] = min((_needed(job, donor, target) for job in here), default=math.inf)
            if target.idle < least[key]:  # 500 targets beside 500 donors are as good as one
                continue
            fitting = [j for j in here if _fits(j, donor, target) and (j.memory_to_move_bytes or 0.0) <= room[name]]
            if not fitting:
                continue
            job = min(fitting, key=lambda job: (found[job.uid].index, job.uid))
            because = (
                f"{name} leaves {target.idle:.3g} cores idle, {donor.node.name} has jobs for "
                f"{donor.useful:.3g} of {donor.node.cpu_cores:.3g} cores, this one's next work is worth least"
            )
            decided.append(Migrate(job.uid, donor.node.name, name, because))
            useful = useful_cores(job, donor.node)
            donor.useful -= useful
            target.useful += useful
            room[name] -= job.memory_to_move_bytes or 0.0
            here.remove(job)
            crowded = most_crowded_first()
            least = {each: needs for each, needs in least.items() if each[0] not in (donor.node.name, name)}
            break
    return tuple(decided)


def _may_move(job: Job, memory: MemoryState, forecast: Forecast, now_seconds: float) -> bool:
    known = memory.jobs[job.uid]
    since = math.inf if known.moved_at_seconds is None else now_seconds - known.moved_at_seconds
    if not can_move(job) or since < MIN_MOVE_GAP_SECONDS:
        return False
    return forecast.left >= MIN_PAUSES_LEFT * cost_of(job, known, 1.0, now_seconds).unweighted_seconds


def _fits(job: Job, donor: _Load, target: _Load) -> bool:
    """Whether enough idles on the target, and the job leaves others behind."""
    others = donor.useful > useful_cores(job, donor.node)
    return target.idle >= _needed(job, donor, target) and others and target.node.name not in refused_nodes(job)


def _needed(job: Job, donor: _Load, target: _Load) -> float:
    """What must idle on the target: half of what the job can use, which must be more than it has now.

    What other pods leave of the target may be all that the job can use there, and less than it has: 0.2 of 16 cores.
    """
    has = useful_cores(job, donor.node) / (donor.useful / donor.node.cpu_cores)
    return IDLE_RATIO * max(useful_cores(job, target.node), has)
