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
from slopewise.model import Arrival, ClusterSnapshot, Job, MemoryState, Migrate, Node, Place
from slopewise.policies.marginal.forecast import Forecast, expected_work, median_work
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
    def crowding(self) -> float:
        return self.useful / self.node.cpu_cores

    @property
    def idle(self) -> float:
        return self.node.cpu_cores - self.useful


def _loads(snapshot: ClusterSnapshot, found: Mapping[str, Forecast], usual: float) -> dict[str, _Load]:
    """The nodes with their jobs, and with those that are on their way to them."""
    loads = {node.name: _Load(promisable(node)) for node in snapshot.nodes}
    for job in snapshot.jobs:
        load = loads.get(job.node)
        if load is not None and not job.state.ended:
            load.useful += useful_cores(job, load.node)
            load.left += found[job.uid].left if job.uid in found else usual
    here = {job.uid for job in snapshot.jobs}
    for moving in snapshot.moving:
        if moving.job_uid not in here and moving.node in loads:
            loads[moving.node].useful += 1.0
    return loads


def places(snapshot: ClusterSnapshot, memory: MemoryState, found: Mapping[str, Forecast]) -> tuple[Place, ...]:
    """Arriving jobs, each on the node where it has most CPU if all share; of equal ones that with least work left."""
    usual = median_work(found.values())
    loads = _loads(snapshot, found, usual) if snapshot.waiting else {}

    def useful(arrival: Arrival, load: _Load) -> float:
        return min(load.node.cpu_cores, arrival.useful_parallelism_cores or math.inf)

    def share(arrival: Arrival, load: _Load) -> float:
        own = useful(arrival, load)
        return own * min(1.0, load.node.cpu_cores / (load.useful + own))

    def cost(arrival: Arrival, node: Node) -> float:
        load = loads[node.name]
        return 1e-6 * load.left / (load.left + usual) - share(arrival, load)

    def placed(arrival: Arrival, node: Node) -> str:
        load = loads[node.name]
        has = share(arrival, load)
        load.useful += useful(arrival, load)
        load.left += expected_work(arrival, memory.classes, usual)
        return f"placed on {node.name}, where its share is largest: {has:.3g} of {load.node.cpu_cores:.3g} cores"

    return place_each(snapshot, memory, cost, placed)


def moves(snapshot: ClusterSnapshot, memory: MemoryState, found: Mapping[str, Forecast]) -> tuple[Migrate, ...]:
    """To each node that idles, emptiest first, the job of least index from the most crowded node."""
    if len(snapshot.nodes) < 2 or snapshot.waiting:
        return ()
    loads = _loads(snapshot, found, 0.0)
    room, on_node = snapshot.memory_room_bytes(), snapshot.jobs_by_node()
    decided = []
    for target in sorted(loads.values(), key=lambda load: (-load.idle, load.node.name)):
        donors = [load for load in loads.values() if load.idle < 0]
        for donor in sorted(donors, key=lambda load: (-load.crowding, load.node.name)) if target.idle > 0 else ():
            candidates = [
                (found[job.uid].index, job.uid, job)
                for job in on_node[donor.node.name]
                if job.uid in found
                and _may_move(job, memory, found[job.uid], snapshot.taken_at_seconds)
                and _fits(job, donor, target)
                and (job.memory_to_move_bytes or 0.0) <= room[target.node.name]
            ]
            if not candidates:
                continue
            job = min(candidates)[2]
            because = (
                f"{target.node.name} leaves {target.idle:.3g} cores idle, {donor.node.name} has jobs for "
                f"{donor.useful:.3g} of {donor.node.cpu_cores:.3g} cores, this one's next work is worth least"
            )
            decided.append(Migrate(job.uid, donor.node.name, target.node.name, because))
            useful = useful_cores(job, donor.node)
            donor.useful -= useful
            target.useful += useful
            room[target.node.name] -= job.memory_to_move_bytes or 0.0
            on_node[donor.node.name].remove(job)
            break
    return tuple(decided)


def _may_move(job: Job, memory: MemoryState, forecast: Forecast, now_seconds: float) -> bool:
    known = memory.jobs[job.uid]
    moved_at = known.moved_at_seconds
    if not can_move(job) or (moved_at is not None and now_seconds - moved_at < MIN_MOVE_GAP_SECONDS):
        return False
    return forecast.left >= MIN_PAUSES_LEFT * cost_of(job, known, 1.0, now_seconds).unweighted_seconds


def _fits(job: Job, donor: _Load, target: _Load) -> bool:
    """Whether half of what the job can use idles on the target, which must be more than it has now.

    What other pods leave of the target may be all that the job can use there, and less than it has: 0.2 of 16 cores.
    """
    useful = useful_cores(job, donor.node)
    needs = max(useful_cores(job, target.node), useful / donor.crowding)
    return target.idle >= IDLE_RATIO * needs and donor.useful > useful and target.node.name not in refused_nodes(job)
