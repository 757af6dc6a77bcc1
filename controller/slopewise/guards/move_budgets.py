"""Guards that see the migrations of a pass together: budget of the node, concurrency, gain, memory.

A `Ledger` has what the allowed moves leave of each node's budget, memory and cores, and of the concurrent moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from slopewise.guards.framework import Guard, routine
from slopewise.guards.move_gain import Speeds
from slopewise.model import BUDGET_SECONDS, ClusterSnapshot, JobUid, MemoryState, Migrate, Move, MoveBounds, Veto

_GIB = 2.0**30

Unit = tuple[Move, ...]
"""Moves that are made all or none: those of a workload's pods."""


class Ledger:
    """What the allowed moves leave for the next ones."""

    def __init__(self, snapshot: ClusterSnapshot, memory: MemoryState, under_way: Iterable[str]) -> None:
        """`under_way`: uids of the jobs that are being moved already."""
        self._entered: list[Migrate] = []
        self._snapshot = snapshot
        self._memory = memory
        self.room = snapshot.memory_room_bytes()
        needs = {job.uid: job.memory_to_move_bytes for job in snapshot.jobs}
        needs |= {arrival.uid: arrival.memory_request_bytes for arrival in snapshot.waiting}
        self._needs = needs
        self._frees = {job.uid: job.memory_request_bytes or 0.0 for job in snapshot.jobs}
        self.left = _departures(memory, snapshot.taken_at_seconds)
        self.under_way = {JobUid.of(uid).workload for uid in under_way}
        self._speeds: Speeds | None = None

    def need(self, moves: Sequence[Move]) -> float:
        """The memory that these jobs reserve together, in bytes."""
        return sum(self._needs.get(move.job_uid) or 0.0 for move in moves)

    @property
    def speeds(self) -> Speeds:
        """Computed for the first migration; most passes have none."""
        if self._speeds is None:
            self._speeds = Speeds(self._snapshot, self._memory)
            if self._entered:
                self._speeds.count(self._entered)
        return self._speeds

    def enter(self, moves: Sequence[Move]) -> None:
        """Count these moves as allowed."""
        migrations = migrations_of(moves)
        for move in moves:
            self.room[move.node] -= self.need([move])
            if isinstance(move, Migrate):
                self.room[move.from_node] += self._frees.get(move.job_uid, 0.0)
        for workload, node in {(JobUid.of(move.job_uid).workload, move.from_node) for move in migrations}:
            self.left[node] += 1
            self.under_way.add(workload)
        self._entered += migrations
        if migrations and self._speeds is not None:
            self._speeds.count(migrations)


@dataclass(frozen=True, slots=True)
class UnitContext:
    """The inputs of a guard of one unit: moves allowed before it, and the bounds."""

    ledger: Ledger
    limits: MoveBounds | None

    def bounded(self, unit: Unit) -> tuple[tuple[Migrate, ...], MoveBounds] | None:
        """Its migrations and what bounds them; None: nothing does."""
        migrations = migrations_of(unit)
        return (migrations, self.limits) if migrations and self.limits is not None else None


@routine()
def node_budget(context: UnitContext, unit: Unit) -> Unit | Veto:
    """At most `maxPerNodePerHour` moves away from one node."""
    if (bounded := context.bounded(unit)) is None:
        return unit
    migrations, limits = bounded
    for node in sorted({move.from_node for move in migrations}):
        made = context.ledger.left[node]
        if made >= limits.max_per_node_per_hour:
            return Veto(f"{made} moves away from {node} within an hour, bound {limits.max_per_node_per_hour}")
    return unit


@routine()
def concurrency(context: UnitContext, unit: Unit) -> Unit | Veto:
    """At most `maxConcurrent` moves at the same time."""
    if (bounded := context.bounded(unit)) is None:
        return unit
    _, limits = bounded
    now = len(context.ledger.under_way)
    return unit if now < limits.max_concurrent else Veto(f"{now} under way, bound {limits.max_concurrent}")


@routine()
def gain(context: UnitContext, unit: Unit) -> Unit | Veto:
    """The gain within the horizon exceeds the cost, unless the move relieves its node of another shortage.

    The reason of an allowed migration has both figures.
    """
    if (bounded := context.bounded(unit)) is None:
        return unit
    migrations, limits = bounded
    balance = context.ledger.speeds.balance(migrations, limits.horizon_seconds)
    relieves = any(move.relieves is not None for move in migrations)
    if not balance.pays and not relieves:
        return Veto(str(balance))
    return tuple(replace(move, reason=f"{move.reason}; {balance}") for move in unit)


def memory_capacity(context: UnitContext, unit: Unit) -> Unit | Veto:
    """The target has the memory that its jobs reserve."""
    node, room = unit[0].node, context.ledger.room
    needed = context.ledger.need(unit)
    if needed <= room[node]:
        return unit
    return Veto(f"needs {needed / _GIB:.3g} GiB, {node} has {max(0.0, room[node]) / _GIB:.3g} GiB left")


JOINT_GUARDS: tuple[Guard[UnitContext, Unit], ...] = (node_budget, concurrency, gain, memory_capacity)


def migrations_of(moves: Sequence[Move]) -> tuple[Migrate, ...]:
    """Those that are not placements."""
    return tuple(move for move in moves if isinstance(move, Migrate))


def _departures(memory: MemoryState, now_seconds: float) -> Counter[str]:
    """Moves away from each node within the hour; the pods of one workload count as one."""
    made = {
        (JobUid.of(uid).workload, record.from_node, record.at_seconds)
        for uid, known in memory.jobs.items()
        for record in known.moves
        if now_seconds - record.at_seconds < BUDGET_SECONDS
    }
    return Counter(node for _, node, _ in made)
