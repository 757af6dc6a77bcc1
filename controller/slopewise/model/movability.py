"""What is known of a job that could be moved: its checkpoints, by which way it moves, and what refuses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MoveWay = Literal["suspend", "evict", "restart"]
"""How a running job is moved: its Job is suspended, pinned and resumed; its pod is evicted and the gated replacement
placed; or (on one machine) its process is ended and started again."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a job reports of its checkpoints (`training_checkpoint_*`)."""

    saved_at_seconds: float | None = None
    """When the last one was saved; None: none yet."""
    duration_seconds: float | None = None
    on_sigterm: bool = False
    """It says that it saves when it is signalled to end, and ends so that its owner starts it again."""


@dataclass(frozen=True, slots=True)
class Movability:
    """Whether and how a running job can be moved, as the platform knows; checked by `guards/moves.py`."""

    way: MoveWay | None = None
    """None: it cannot be moved (`blocked_reason`)."""
    blocked_reason: str | None = None
    """Why it can never be moved (a bare pod, a volume of its node, Kueue); None: it can."""
    backoff_reason: str | None = None
    """Why its last move could not begin (e.g. a disruption budget), and when the next attempt is; None: no back-off."""
    refused_nodes: Mapping[str, str] = field(default_factory=dict)
    """Nodes that do not accept it, by name, with the reason (a taint, a selector, a volume)."""
    grace_seconds: float | None = None
    """From SIGTERM to SIGKILL; None: not known."""
    restart_seconds: float = 0.0
    """From the old process's end to the new one's start."""
    members: tuple[str, ...] = ()
    """Uids of all jobs that move with it, itself included: the pods of a workload move all or none."""
