"""Identifies a process by its pid and start time, so that a reused pid is not mistaken for the old process.

Every signal to a recorded pid checks it first. Standard library only, because the duty cycle's helper loads it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_START_TIME = 19
"""Place of `starttime` (field 22 of /proc/PID/stat) among the fields that follow the command's name."""


class ProcessIdentity(NamedTuple):
    """A process of this boot; `started_ticks` are clock ticks since the boot."""

    pid: int
    started_ticks: int

    @property
    def exists(self) -> bool:
        """True while this very process is there, be it as a zombie."""
        return started_ticks(self.pid) == self.started_ticks

    def signal_group(self, number: int) -> bool:
        """Signal the process group that this process leads; False when there is none that we may signal.

        As long as the leader exists its pid is taken, so the group that bears this number is its own.
        """
        if not self.exists:
            return False
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def started_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since the boot; None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[_START_TIME])


def identify(pid: int) -> ProcessIdentity:
    """The identity of a process that runs now; ProcessLookupError when it does not."""
    ticks = started_ticks(pid)
    if ticks is None:
        raise ProcessLookupError(pid)
    return ProcessIdentity(pid, ticks)


def leads_own_group(pid: int) -> bool:
    """True when a signal to the group of this number reaches that process and its children, and not us."""
    try:
        return pid > 1 and os.getpgid(pid) == pid != os.getpgrp()
    except ProcessLookupError:
        return False
