"""Stops and continues process groups, so that each runs a given fraction of the time.

This helper of `duty_cycle.py` is a process of its own because the controller may be killed: its end of this process's
standard input then closes, and every group is continued before the exit. A killed controller leaves no training
stopped.

Standard input, one JSON object a line: `{"pid": 4711, "started_ticks": 123456, "fraction": 0.25}`; a fraction
of 1 or more lets the group run freely and forgets it. Few imports, no third-party ones: it starts in
milliseconds and stays small.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from typing import NamedTuple

from slopewise.adapters.local.limiters.identity import ProcessIdentity

PERIOD_SECONDS = 0.1


class Event(NamedTuple):
    """A signal to one group, at a fraction of the period."""

    at: float
    group: ProcessIdentity
    signal: int


def plan(fractions: dict[ProcessIdentity, float]) -> list[Event]:
    """The signals of one period, in order of time.

    The groups run one after the other, not all at once at the start of the period: four groups at 0.25 on
    one core would otherwise fight for it during the first quarter and leave it idle for the rest.
    Worked example: 0.5, 0.25 and 0.5 run in [0, 0.5), [0.5, 0.75) and [0.75, 1) with [0, 0.25).
    """
    events, offset = [], 0.0
    for group, fraction in fractions.items():
        end = (offset + fraction) % 1.0
        events += [Event(offset, group, signal.SIGCONT), Event(end, group, signal.SIGSTOP)]
        offset = end
    return sorted(events, key=lambda event: event.at)


class Cycler:
    """Keeps every group's fraction until standard input ends."""

    def __init__(self, commands: int) -> None:
        """`commands`: the file descriptor of standard input."""
        self._commands = commands
        self._unread = b""
        self._fractions: dict[ProcessIdentity, float] = {}

    def run(self) -> None:
        """Cycle until the commands end, then continue every group."""
        try:
            while self._cycle():
                pass
        finally:
            for group in self._fractions:
                group.signal_group(signal.SIGCONT)

    def _cycle(self) -> bool:
        """One period; a command cuts it short. False when there will be no more commands."""
        started = time.monotonic()
        for event in plan(self._fractions):
            if self._commanded_before(started + event.at * PERIOD_SECONDS):
                return self._obey()
            if not event.group.signal_group(event.signal):
                self._fractions.pop(event.group, None)
        if self._commanded_before(started + PERIOD_SECONDS if self._fractions else None):
            return self._obey()
        return True

    def _commanded_before(self, deadline: float | None) -> bool:
        """Wait until `deadline` (None: without end), or until there is something to read."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        return bool(select.select([self._commands], [], [], left)[0])

    def _obey(self) -> bool:
        received = os.read(self._commands, 65_536)
        *lines, self._unread = (self._unread + received).split(b"\n")
        for command in map(json.loads, lines):
            group = ProcessIdentity(command["pid"], command["started_ticks"])
            group.signal_group(signal.SIGCONT)
            self._fractions.pop(group, None)
            if command["fraction"] < 1.0:
                self._fractions[group] = command["fraction"]
        return bool(received)


def main() -> None:
    """Run until the end of standard input or SIGTERM; a Ctrl-C and a closed terminal are ignored."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Cycler(sys.stdin.fileno()).run()


if __name__ == "__main__":
    main()
