"""Places arriving jobs by the CPU that they need to keep an objective (deadline or pace); for `dqoes` and `deadline`.

A job with one goes to the node with the least free CPU that still fits its need: there the objectives that are kept
stay kept, and this one is kept too, so most are. Free is what the needs of a node's jobs leave. Where none fits it goes
where most is free. One without one goes where it would share most.

Worked example: needs of 0.3 cores on n1 and 0.6 on n2, a core each. A need of 0.4 goes to n2, one of 0.5 to n1, and one
of 0.9 to n1, where most is free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from slopewise.allocation import capacity_cores
from slopewise.model import Arrival, ClusterSnapshot, MemoryState, Node, Place
from slopewise.policies.shared.placement import Order, place_each

_NO_FIT_CORES = 1e9
"""More than any node has: nodes that do not fit come after all that do."""

_DEFAULT_CORES = 1.0
"""What a job without a word about its CPU is taken to use: one thread."""


@dataclass(slots=True)
class NodeRoom:
    """How much of a node is taken, jobs placed in this pass included."""

    node_cores: float
    evenly: bool = False
    """No job's CPU is changed: every job takes what it can use, and where that is too much they share evenly."""
    taken_cores: float = 0.0
    """What its jobs need to keep their objectives, or can use where they share evenly, or want until they are timed."""
    jobs: int = 0
    sharing: int = 0
    """Jobs that share what the others do not need."""

    def add(self, cores: float | None) -> None:
        """Count a job that takes so much; None: it shares what is left."""
        self.jobs += 1
        self.sharing += cores is None
        self.taken_cores += cores or 0.0

    @property
    def free_cores(self) -> float:
        """What a newcomer with an objective would find; below 0 where the needs do not fit."""
        free = self.node_cores - self.taken_cores
        return max(free, self.node_cores / (self.jobs + 1)) if self.evenly else free

    @property
    def share_cores(self) -> float:
        """What one more job without one would have."""
        return max(0.0, self.free_cores) / (self.sharing + 1)


Rooms = Callable[[], Mapping[str, NodeRoom]]
"""The room on every node, by name; worked out where it is asked for, the same from then on, and updated."""


class Need(NamedTuple):
    """The CPU with which an arrival keeps its objective, or what it can use where it is not timed yet."""

    cores: float
    timed: bool

    def __str__(self) -> str:
        return f"{'needs' if self.timed else 'not timed yet, wants'} {self.cores:.3g} cores"


NeedOf = Callable[[Arrival, Node], Need | None]
"""None: the arrival states no objective that the policy keeps."""


def wanted_cores(arrival: Arrival, node: Node) -> float:
    """What an arrival wants before it is timed: what it says it can use, else its request, else one core."""
    requested = arrival.request_millicores / 1000
    return min(capacity_cores(node), arrival.useful_parallelism_cores or requested or _DEFAULT_CORES)


def place_by_need(
    snapshot: ClusterSnapshot,
    memory: MemoryState,
    rooms: Mapping[str, NodeRoom],
    need_of: NeedOf,
    order: Order,
    *,
    objective: str,
) -> tuple[Place, ...]:
    """The node of each waiting job; `rooms` by node, which are updated. `objective` names what `need_of` goes by."""

    def cost(arrival: Arrival, node: Node) -> float:
        room, need = rooms[node.name], need_of(arrival, node)
        if need is None:
            return -room.share_cores
        return room.free_cores if need.cores <= room.free_cores else _NO_FIT_CORES - room.free_cores

    def placed(arrival: Arrival, node: Node) -> str:
        room, need = rooms[node.name], need_of(arrival, node)
        free, share = max(0.0, room.free_cores), room.share_cores
        if need is None:
            room.add(wanted_cores(arrival, node) if room.evenly else None)
            return f"no {objective} stated: {node.name} leaves it most ({share:.3g} cores)"
        room.add(need.cores)
        how = "least free CPU that fits it" if need.cores <= free else "fits nowhere, and most is free here"
        return f"{need}: {how} ({free:.3g} cores)"

    return place_each(snapshot, memory, cost, placed, order)
