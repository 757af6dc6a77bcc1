"""Places arriving jobs by the CPU that they need to keep a promise (deadline or objective); for `dqoes` and `deadline`.

A job with a promise goes to the node with the least free CPU that still fits its need: there the promises that are kept
stay kept, and this one is kept too, so most are. Free is what the needs of a node's jobs leave. Where none fits it goes
where most is free. One without a promise goes where it would share most.

What would take CPU from the needs of timed jobs on every node is held back instead, as long as the user and its own
deadline allow (`estimators/holding.py`). A need that is above every node is not worth waiting for. A job that is not
timed yet takes an even share until it is: one that wants a whole core, and may need a tenth of it, does not wait for a
whole core.

Worked example: needs of 0.3 cores on n1 and 0.6 on n2, a core each. A need of 0.4 goes to n2, one of 0.5 to n1, and one
of 0.9 waits. A newcomer that is not timed wants one core and takes half of one: it goes to n1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from slopewise.allocation import capacity_cores
from slopewise.estimators.holding import hold_until_seconds
from slopewise.model import Arrival, ClusterSnapshot, JobMemory, MemoryState, Node, Place
from slopewise.policies.shared.placement import Order, place_each
from slopewise.policies.shared.sizing import size_millicores

_NO_FIT_CORES = 1e9
"""More than any node has: nodes that do not fit come after all that do."""

_ROUNDING = 1e-9

_DEFAULT_CORES = 1.0
"""What a job without a word about its CPU is taken to use: one thread."""


@dataclass(slots=True)
class NodeRoom:
    """How much of a node is taken, jobs placed in this pass included."""

    node_cores: float
    evenly: bool = False
    """No job's CPU is changed: every job takes what it can use, and where that is too much they share evenly."""
    taken_cores: float = 0.0
    """What its jobs need to keep their promises, or can use where they share evenly, or want until they are timed."""
    needed_cores: float = 0.0
    """The part of it that timed jobs need."""
    jobs: int = 0
    sharing: int = 0
    """Jobs that share what the others do not need."""
    untimed: int = 0
    """Jobs with a promise whose need is not known yet."""

    def add(self, cores: float | None, *, timed: bool = True) -> None:
        """Count a job that takes so much; None: it shares what is left."""
        self.jobs += 1
        self.sharing += cores is None
        self.untimed += not timed
        self.taken_cores += cores or 0.0
        self.needed_cores += (cores or 0.0) if timed else 0.0

    @property
    def free_cores(self) -> float:
        """What a newcomer with a promise would find; below 0 where the needs do not fit."""
        free = self.node_cores - self.taken_cores
        return max(free, self.even_cores) if self.evenly else free

    @property
    def even_cores(self) -> float:
        """An even share, with one more job."""
        return self.node_cores / (self.jobs + 1)

    @property
    def spare_cores(self) -> float:
        """What timed jobs do not need, and jobs that are not timed yet do not take for now."""
        return self.node_cores - self.needed_cores - self.untimed * self.even_cores

    @property
    def share_cores(self) -> float:
        """What one more job without a promise would have."""
        return max(0.0, self.free_cores) / (self.sharing + 1)


Rooms = Callable[[], Mapping[str, NodeRoom]]
"""The room on every node, by name; worked out where it is asked for, the same from then on, and updated."""


class Need(NamedTuple):
    """The CPU with which an arrival keeps its promise, or what it can use where it is not timed yet."""

    cores: float
    timed: bool
    by_class: bool = False
    """Known from other jobs of its workload class: it is to start with that much."""

    def __str__(self) -> str:
        if self.by_class:
            return f"by jobs of its class it needs {self.cores:.3g} cores"
        return f"{'needs' if self.timed else 'not timed yet, wants'} {self.cores:.3g} cores"

    def taken_on(self, room: NodeRoom) -> float:
        """What it takes there for now: an even share at most until it is timed itself.

        Its class only says what to expect. To wait for that kept fewer deadlines: 15.4 of 20 in `deadline-ample` (24
        seeds), against 15.8 so, and 16.0 without classes.
        """
        return self.cores if self.timed and not self.by_class else min(self.cores, room.even_cores)


NeedOf = Callable[[Arrival, Node], Need | None]
"""None: the arrival states no promise that the policy keeps."""


class Placed(NamedTuple):
    """The node of each arrival that has one, and why others are to wait, by uid."""

    places: tuple[Place, ...]
    held: Mapping[str, str]


def wanted_cores(arrival: Arrival, node: Node) -> float:
    """What an arrival wants before it is timed: what it says it can use, else its request, else one core."""
    requested = arrival.request_millicores / 1000
    return min(capacity_cores(node), arrival.useful_parallelism_cores or requested or _DEFAULT_CORES)


def need_on(
    node: Node,
    arrival: Arrival,
    memory: MemoryState,
    measured_cores: Callable[[JobMemory, float], float | None],
    class_cores: Callable[[], float | None],
) -> Need:
    """What an arrival needs on a node: by its own paces, else by jobs of its class, else what it wants.

    `measured_cores`: its need by the memory of its former process, where it has what it wants; `class_cores`: that by
    its class; None: not known. Worked example: never timed, jobs of its class need 0.4 cores, it may use one: 0.4.
    """
    wanted, known = wanted_cores(arrival, node), memory.arriving.get(arrival.uid)
    needs = None if known is None else measured_cores(known, wanted)
    if needs is not None:
        return Need(needs, timed=True)
    of_class = class_cores()
    return Need(wanted, timed=False) if of_class is None else Need(of_class, timed=True, by_class=True)


def place_by_need(
    snapshot: ClusterSnapshot,
    memory: MemoryState,
    rooms: Mapping[str, NodeRoom],
    need_of: NeedOf,
    order: Order,
    *,
    promise: str,
    max_hold_seconds: float,
) -> Placed:
    """The node of each waiting job; `rooms` by node, which are updated. `promise` names what `need_of` goes by."""
    held: dict[str, str] = {}
    may_wait = {
        each.uid
        for each in snapshot.waiting
        if snapshot.taken_at_seconds < hold_until_seconds(each, memory.arriving.get(each.uid), max_hold_seconds)
        and _fits_alone(each, snapshot.nodes, need_of)
    }

    def cost(arrival: Arrival, node: Node) -> float:
        room, need = rooms[node.name], need_of(arrival, node)
        if need is None:
            return -room.share_cores
        if need.cores <= room.free_cores:
            return room.free_cores
        waits = arrival.uid in may_wait and need.taken_on(room) > room.spare_cores * (1 + _ROUNDING)
        return math.inf if waits else _NO_FIT_CORES - room.free_cores

    def placed(arrival: Arrival, node: Node) -> str:
        room, need = rooms[node.name], need_of(arrival, node)
        free, share = max(0.0, room.free_cores), room.share_cores
        if need is None:
            room.add(wanted_cores(arrival, node) if room.evenly else None)
            return f"no {promise} stated: {node.name} leaves it most ({share:.3g} cores)"
        room.add(need.cores, timed=need.timed)
        how = "least free CPU that fits it" if need.cores <= free else "fits nowhere, and most is free here"
        return f"{need}: {how} ({free:.3g} cores)"

    def unplaced(arrival: Arrival, nodes: Sequence[Node]) -> None:
        if arrival.uid in may_wait and nodes:
            held[arrival.uid] = _held_reason(arrival, nodes, rooms, need_of)

    places = place_each(snapshot, memory, cost, placed, order, unplaced)
    return Placed(_sized(places, snapshot, need_of), held)


def _sized(places: Sequence[Place], snapshot: ClusterSnapshot, need_of: NeedOf) -> tuple[Place, ...]:
    """The places, with the request of each arrival whose class says what it needs."""
    arrivals, nodes = {each.uid: each for each in snapshot.waiting}, {node.name: node for node in snapshot.nodes}

    def sized(place: Place) -> Place:
        arrival, node = arrivals[place.job_uid], nodes[place.node]
        need = need_of(arrival, node)
        if need is None or not need.by_class:
            return place
        return replace(place, request_millicores=size_millicores(need.cores, arrival, node))

    return tuple(map(sized, places))


def _fits_alone(arrival: Arrival, nodes: Sequence[Node], need_of: NeedOf) -> bool:
    """Whether some node could keep its promise if the others' jobs were not there."""
    needs = ((node, need_of(arrival, node)) for node in nodes if node.name not in arrival.refused_nodes)
    return any(need is not None and need.cores <= capacity_cores(node) for node, need in needs)


def _held_reason(arrival: Arrival, nodes: Sequence[Node], rooms: Mapping[str, NodeRoom], need_of: NeedOf) -> str:
    freest = max(nodes, key=lambda node: (rooms[node.name].spare_cores, node.name))
    room, need = rooms[freest.name], need_of(arrival, freest)
    sure = need is None or (need.timed and not need.by_class)
    for_now = "" if need is None or sure else f", takes {need.taken_on(room):.3g} until it is timed"
    return f"{need}{for_now}; most free is {max(0.0, room.spare_cores):.3g} on {freest.name}"
