"""Guards that see the migrations of a pass together: what one of them takes, those after it do not have.

Before them: `migration_guards`, which ask of each job alone. After them: the actuator. A `Ledger` is what the moves
that were allowed so far leave of each node's budget and memory, of its cores, and of what may be under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from controller.bounds import BUDGET_SECONDS, MoveBounds, Veto
from controller.migration_guards import workload_of
from controller.model import ClusterSnapshot, MemoryState, Migrate, Move
from controller.move_gain import Speeds

_GIB = 2.0**30


class Ledger:
    """What the moves that are allowed take from those after them."""

    def __init__(self, snapshot: ClusterSnapshot, memory: MemoryState, under_way: Iterable[str]) -> None:
        """`under_way`: uids of the jobs that are being moved already."""
        self._entered: list[Migrate] = []
        self._snapshot = snapshot
        self._memory = memory
        self.room = snapshot.memory_room_bytes()
        needs = {job.uid: job.memory_request_bytes for job in snapshot.jobs}
        needs |= {arrival.uid: arrival.memory_request_bytes for arrival in snapshot.waiting}
        self._needs = needs
        self.left = _departures(memory, snapshot.taken_at_seconds)
        self.under_way = {workload_of(uid) for uid in under_way}
        self._speeds: Speeds | None = None

    def need(self, moves: Sequence[Move]) -> float:
        """The memory that these jobs reserve together, in bytes."""
        return sum(self._needs.get(move.job_uid) or 0.0 for move in moves)

    @property
    def speeds(self) -> Speeds:
        """Worked out when the first migration has come so far; most passes have none."""
        if self._speeds is None:
            self._speeds = Speeds(self._snapshot, self._memory)
            if self._entered:
                self._speeds.count(self._entered)
        return self._speeds

    def enter(self, moves: Sequence[Move]) -> None:
        """These are allowed."""
        migrations = migrations_of(moves)
        for move in moves:
            needed = self.need([move])
            self.room[move.node] -= needed
            if isinstance(move, Migrate):
                self.room[move.from_node] += needed
        for workload, node in {(workload_of(move.job_uid), move.from_node) for move in migrations}:
            self.left[node] += 1
            self.under_way.add(workload)
        self._entered += migrations
        if migrations and self._speeds is not None:
            self._speeds.count(migrations)


@dataclass(frozen=True, slots=True)
class Together:
    """Moves that are made all or none: one, or those of a workload's pods; and what was allowed before them."""

    moves: tuple[Move, ...]
    ledger: Ledger
    limits: MoveBounds | None

    @property
    def bounded(self) -> tuple[tuple[Migrate, ...], MoveBounds] | None:
        """Its migrations and what bounds them; None: nothing does."""
        migrations = migrations_of(self.moves)
        return (migrations, self.limits) if migrations and self.limits is not None else None


Figures = str
"""What a guard adds to the reason of a move that it lets through."""


def node_budget(together: Together) -> Veto | Figures | None:
    """Away from one node, at most so many moves an hour."""
    if together.bounded is None:
        return None
    migrations, limits = together.bounded
    for node in sorted({move.from_node for move in migrations}):
        made = together.ledger.left[node]
        if made >= limits.max_per_node_per_hour:
            return Veto(f"{made} moves away from {node} within an hour, bound {limits.max_per_node_per_hour}")
    return None


def concurrency(together: Together) -> Veto | Figures | None:
    """At most so many moves at the same time."""
    if together.bounded is None:
        return None
    _, limits = together.bounded
    now = len(together.ledger.under_way)
    return None if now < limits.max_concurrent else Veto(f"{now} under way, bound {limits.max_concurrent}")


def gain(together: Together) -> Veto | Figures | None:
    """More is gained within the horizon than the move costs, unless it relieves its node of another shortage."""
    if together.bounded is None:
        return None
    migrations, limits = together.bounded
    balance = together.ledger.speeds.balance(migrations, limits.horizon_seconds)
    relieves = any(move.relieves is not None for move in migrations)
    return str(balance) if balance.pays or relieves else Veto(str(balance))


def memory_capacity(together: Together) -> Veto | Figures | None:
    """The target has the memory that its jobs reserve."""
    node, room = together.moves[0].node, together.ledger.room
    needed = together.ledger.need(together.moves)
    if needed <= room[node]:
        return None
    return Veto(f"needs {needed / _GIB:.3g} GiB, {node} has {max(0.0, room[node]) / _GIB:.3g} GiB left")


JOINT_GUARDS: tuple[Callable[[Together], Veto | Figures | None], ...] = (
    node_budget,
    concurrency,
    gain,
    memory_capacity,
)


def migrations_of(moves: Sequence[Move]) -> tuple[Migrate, ...]:
    """Those that are not placements."""
    return tuple(move for move in moves if isinstance(move, Migrate))


def _departures(memory: MemoryState, now_seconds: float) -> Counter[str]:
    """Moves away from each node within the hour; the pods of one workload count as one."""
    made = {
        (workload_of(uid), record.from_node, record.at_seconds)
        for uid, known in memory.jobs.items()
        for record in known.moves
        if now_seconds - record.at_seconds < BUDGET_SECONDS
    }
    return Counter(node for _, node, _ in made)
