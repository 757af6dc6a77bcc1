"""The four ports of a pass. The cluster, this machine, a dry run and the simulator differ only in these.

There is no `if simulate` and no `if dry_run` anywhere: a dry run is an Actuator that carries nothing out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from controller.model import (
    ClusterSnapshot,
    CpuAllocation,
    MemoryState,
    Move,
    MoveOutcome,
    Outcome,
    Resize,
    Restored,
)


class Observer(Protocol):
    """The only read of the outside world."""

    def observe(self) -> ClusterSnapshot:
        """The world at one moment, or `ObservationError`; then nothing may be changed."""
        ...


class Actuator(Protocol):
    """The only write to the outside world. Targets are absolute and writing one twice does no harm."""

    def resize(self, resize: Resize) -> Outcome:
        """Carry one resize out. May raise `ActuationError`; the pass turns it into a failed Outcome."""
        ...

    def move(self, move: Move) -> MoveOutcome:
        """Place an arriving job or migrate a running one; what cannot be done here is `infeasible`, and says why."""
        ...

    def restore(self, job_uid: str, original: CpuAllocation) -> Restored:
        """Give a job back what it had before our first change, or say what that waits for.

        A job that is gone is no error. May raise `ActuationError`, which counts as failed.
        """
        ...


class Memory(Protocol):
    """What must survive a restart: first and best evaluations, classes, intervals, original resources."""

    def load(self) -> MemoryState:
        """The last saved state; an empty one when there is none."""
        ...

    def save(self, state: MemoryState) -> None:
        """Store all of `state`, or raise and leave the former state as it was."""
        ...


class Clock(Protocol):
    """Time, so that the simulator can have its own."""

    def now(self) -> float:
        """Unix time in seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for durations."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """What one pass is plugged into."""

    observer: Observer
    actuator: Actuator
    memory: Memory
    clock: Clock
