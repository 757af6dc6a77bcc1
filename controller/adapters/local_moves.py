"""One job on its way from one node of this machine to another: its process saves, ends, and is started again there.

Before it: `supervisor.py`, which a pass has asked for the move and which looks after it ten times a second. After it:
`processes.py`, whose signals these are. Nothing here waits: a job that takes its whole grace to save holds up no other.

The command is told to end first, and alone: data loaders that died beside it would make it crash instead of saving.
What it leaves behind is told when it has ended. At the end of the grace, which counts for both, everything is killed;
the job then goes on from the last checkpoint that it has. It goes on only once all of it is gone: a process that hangs
in a read of a network disk outlives SIGKILL, and two writers of one checkpoint are worse than a job that waits.
"""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass, field
from typing import Literal

from controller.adapters.processes import ManagedProcess
from controller.model import MoveUnderWay

RESTART_SECONDS = 0.2
"""From a process's end to the start of the next: one look of 0.1 s, and what a shell and a cgroup take."""

RESUME_SECONDS = 60.0
"""A process that fails within this time of being started again is taken to have failed at resuming."""

MOST_STARTS = 2
"""Of a job after one move: a resume that fails twice would fail for ever, and the job has then failed."""


@dataclass(slots=True)
class LocalMove:
    """A move under way, from the decision to the start of the new process. Times are Unix seconds."""

    from_node: str
    node: str
    since_seconds: float
    ended_at_seconds: float | None = None
    """When the old process had gone, with all that it started."""
    was_killed: bool = False
    """It did not end within its grace."""
    _told: Literal["nobody", "the command", "all"] = field(init=False, default="nobody")
    _kill_at_seconds: float = field(init=False, default=math.inf)

    @property
    def is_told(self) -> bool:
        """True once the process was asked to end."""
        return self._told != "nobody"

    def has_left(self, process: ManagedProcess, grace_seconds: float, now_seconds: float) -> bool:
        """Go on with the old process; True once it and all that it started have ended."""
        if not self.is_told:
            process.ask_to_end()
            self._told, self._kill_at_seconds = "the command", now_seconds + grace_seconds
            return False
        if self._is_over(process):
            self.ended_at_seconds = now_seconds
            return True
        if now_seconds >= self._kill_at_seconds:
            self.was_killed = True
            process.signal(signal.SIGKILL)  # again with each look: what was just being forked has not heard the first
        return False

    def _is_over(self, process: ManagedProcess) -> bool:
        if not process.has_ended():
            return False
        if process.is_over():
            return True
        if self._told == "the command":
            process.signal(signal.SIGTERM)
            self._told = "all"
        return False

    def under_way(self, job_uid: str) -> MoveUnderWay:
        """The move as the pass sees it."""
        step = "killed, and not gone yet" if self.was_killed else "saving and ending"
        return MoveUnderWay(job_uid, self.from_node, self.node, self.since_seconds, step)


@dataclass(frozen=True, slots=True)
class MoveMade:
    """A move whose new process was started. Between the three times, in Unix seconds, it saved and it was started."""

    from_node: str
    node: str
    asked_at_seconds: float
    ended_at_seconds: float
    started_at_seconds: float
