"""The user's settings of a pass besides its policy, the durations of its verbs, and when the next pass is due."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from slopewise.estimators import growth
from slopewise.feedback import move_tracking, rollback
from slopewise.feedback.rollback import RollbackSettings
from slopewise.model import Bounds, ClusterSnapshot, MemoryState
from slopewise.ports import Clock


@dataclass(frozen=True, slots=True)
class PassSettings:
    """How a pass measures, what it may change, and when a change is rolled back."""

    policy_name: str
    measuring: growth.Measuring
    bounds: Bounds
    rollback: RollbackSettings
    first_changes_a_pass: int | None = None
    """Workloads that one pass may change for the first time; None: any number. Each costs a write of its originals,
    which the other changes of the pass wait for."""


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Durations of the verbs of one pass, in seconds."""

    clock: Clock
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timing(self, verb: str) -> Iterator[None]:
        """Record the duration of the block as `verb`, also when it raises."""
        start = self.clock.monotonic()
        try:
            yield
        finally:
            self.seconds[verb] = self.clock.monotonic() - start


def next_pass_at_seconds(
    snapshot: ClusterSnapshot, memory: MemoryState, settings: PassSettings, *, outstanding: bool
) -> float:
    """When the next pass is due; `outstanding`: a decided change was not made."""
    due_at = [node.requeue_at_seconds for node in (*memory.nodes.values(), *memory.placement_nodes.values())]
    first_evaluation = growth.first_evaluation_at_seconds(snapshot, memory, settings.measuring)
    confirmation_requeue = growth.confirm_at_seconds(snapshot, memory)
    move_requeue = move_tracking.requeue_at_seconds(memory, snapshot, settings.bounds.moving)
    due_at += [at for at in (first_evaluation, confirmation_requeue, move_requeue) if at is not None]
    one_interval = snapshot.taken_at_seconds + settings.measuring.interval_seconds
    if outstanding or rollback.watches(memory, snapshot, settings.rollback):
        due_at.append(one_interval)  # not only when a node in back-off is due
    return min(due_at, default=one_interval)
