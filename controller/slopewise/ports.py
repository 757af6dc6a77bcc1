"""The four ports of a pass: Observer, Actuator, Memory, Clock.

Their implementations are all that differs between a cluster, one machine, a dry run and the simulator. A dry run is an
Actuator that carries nothing out; the code has no `if dry_run`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from slopewise.errors import ActuationError
from slopewise.model import CpuAllocation, Decision, MemoryAllocation, MemoryState, Observation, Outcome, Restored


class Observer(Protocol):
    """The only read of the outside world."""

    def observe(self) -> Observation:
        """The state of jobs and nodes at one moment; ObservationError holds the pass."""
        ...


class Actuator(Protocol):
    """The only write to the outside world. Targets are absolute, so that writes are idempotent."""

    def carry_out(self, decision: Decision) -> Outcome[Decision]:
        """Resize a job, place or move it, or have it save and end for good; also one that was signalled already.

        `infeasible`, with a reason, where that is not possible here. May raise `ActuationError`, which counts as failed
        (`attempt`).
        """
        ...

    def restore(self, job_uid: str, original: CpuAllocation, memory: MemoryAllocation | None = None) -> Restored:
        """Restore what a job had before the first change, or return what the restore waits for.

        `memory`: None, or a part that is None, stays as it is.

        A deleted job is no error. May raise `ActuationError`, which counts as failed.
        """
        ...


def attempt(actuator: Actuator, decision: Decision) -> Outcome[Decision]:
    """The outcome of one decision; its failure does not stop the others."""
    try:
        return actuator.carry_out(decision)
    except ActuationError as error:
        return Outcome(decision, "failed", str(error))


class Memory(Protocol):
    """State that survives a restart: first and best evaluations, classes, intervals, original resources."""

    def load(self) -> MemoryState:
        """The last saved state; an empty one when there is none."""
        ...

    def save(self, state: MemoryState) -> None:
        """Store all of `state`, or raise and keep the former state."""
        ...


class Clock(Protocol):
    """Time; the simulator has a clock of its own."""

    def now(self) -> float:
        """Unix time in seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for durations."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one pass."""

    observer: Observer
    actuator: Actuator
    memory: Memory
    clock: Clock
