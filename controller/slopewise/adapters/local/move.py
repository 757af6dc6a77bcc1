"""Ends the process of one job so that it saves: to move it to another node of this machine, or to stop it for good.

A moved job is started again on the other node; one that is stopped at its target is not. `supervisor.py` polls moves
and stops ten times a second. Nothing here waits, so a job that saves for its whole grace delays no other.

SIGTERM goes first to the command only, because it would crash instead of saving if its data loaders died. The
processes that it leaves behind get SIGTERM once it has ended. After the grace, which covers both, everything is
killed, and the job resumes from its last checkpoint. The new process starts only once every old one is gone: a
process that hangs in a read of a network disk outlives SIGKILL, and two writers would spoil the checkpoint.
"""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass, field
from typing import Literal

from slopewise.adapters.local.launcher import ManagedProcess
from slopewise.model import MoveUnderWay

RESTART_SECONDS = 0.2
"""From a process's end to the next start: one poll of 0.1 s, and the time of a shell and a cgroup."""

RESUME_SECONDS = 60.0
"""A process that fails within this time of a restart counts as having failed to resume."""

MAX_STARTS = 2
"""Starts of a job after one move; a job that fails to resume twice has failed."""


@dataclass(slots=True)
class Ending:
    """The end of a process that is to save, from the decision on. Times are Unix seconds."""

    since_seconds: float
    reason: str = ""
    ended_at_seconds: float | None = None
    """When the process and all that it started had ended."""
    was_killed: bool = False
    """It did not end within its grace."""
    _signalled: Literal["none", "the command", "all"] = field(init=False, default="none")
    kill_at_seconds: float = field(init=False, default=math.inf)

    @classmethod
    def of_the_rest(cls, process: ManagedProcess, grace_seconds: float, now_seconds: float) -> Ending:
        """The end of what a process that has ended by itself has left behind; it is signalled now."""
        ending = cls(now_seconds)
        ending._signalled, ending.kill_at_seconds = "all", now_seconds + grace_seconds
        process.signal(signal.SIGTERM)
        process.signal(signal.SIGCONT)
        return ending

    @property
    def is_signalled(self) -> bool:
        """True once the process was sent SIGTERM."""
        return self._signalled != "none"

    def has_left(self, process: ManagedProcess, grace_seconds: float, now_seconds: float) -> bool:
        """Advance the end of the process; True once it and all that it started have ended."""
        if not self.is_signalled:
            process.ask_to_end()
            self._signalled, self.kill_at_seconds = "the command", now_seconds + grace_seconds
            return False
        if self._is_over(process):
            self.ended_at_seconds = now_seconds
            return True
        if now_seconds >= self.kill_at_seconds:
            self.was_killed = True
            process.signal(signal.SIGKILL)  # each poll again: a process just being forked missed the first
        return False

    def _is_over(self, process: ManagedProcess) -> bool:
        if not process.has_ended():
            return False
        if process.is_over():
            return True
        if self._signalled == "the command":
            process.signal(signal.SIGTERM)
            self._signalled = "all"
        return False


@dataclass(slots=True)
class LocalMove(Ending):
    """A move under way, from the decision to the start of the new process."""

    from_node: str = ""
    node: str = ""

    def under_way(self, job_uid: str) -> MoveUnderWay:
        """The move as the pass sees it."""
        step = "killed, and not gone yet" if self.was_killed else "saving and ending"
        return MoveUnderWay(job_uid, self.from_node, self.node, self.since_seconds, step)


@dataclass(frozen=True, slots=True)
class MoveMade:
    """A move whose new process was started. Times are Unix seconds: between the first two it saved, then it started."""

    from_node: str
    node: str
    asked_at_seconds: float
    ended_at_seconds: float
    started_at_seconds: float
