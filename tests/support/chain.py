"""A leader and a replica that waits, again and again: for tests that kill the leader at a write of their choice."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from support.controller_process import ControllerProcess
from support.fault_stage import Stage
from support.gateway import DroppedError, Gateway, Request

QUIET_SECONDS = 1.5
"""Without a write for so long, all that was to be written is written."""

Start = Callable[[Gateway, bool], ControllerProcess]
"""Starts a replica behind this gateway; True: and waits until it leads."""


class Chain:
    """A leader and one that waits; whenever the leader is killed, the other leads and a new one waits."""

    def __init__(self, stage: Stage, start: Start | None = None) -> None:
        """`start`: instead of `stage.controller`."""
        self.stage = stage
        # Less than two seconds without a write would lose a leader on a busy machine; each life here waits for a tenth.
        stage.lease_seconds = 6.0
        self._start_one = start or (lambda gateway, leading: stage.controller(gateway, leading=leading))
        self.gateway, self.leader = self._start(leading=True)
        self.next_gateway, self.next = self._start(leading=False)
        self.killed_at: Request | None = None

    def _start(self, *, leading: bool) -> tuple[Gateway, ControllerProcess]:
        gateway = self.stage.gateway()
        return gateway, self._start_one(gateway, leading)

    def begin(self) -> None:
        """Count from here on."""
        if not self.leader.is_running():
            raise AssertionError("the leader has ended, and no test has killed it")
        self.stage.resized.clear()
        self.gateway.requests.clear()

    def kill_at(self, is_meant: Callable[[Request], bool], number: int, moment: str) -> None:
        """Let the leader be killed at the write of this number, from now on, of those that are meant: before it is sent
        or after it was done. By kind rather than by number alone, because statuses are written beside the pass: which
        write is the seventh differs each time."""
        numbers, victim, process = itertools.count(), self.gateway, self.leader

        def before(request: Request) -> None:
            if request.acts and is_meant(request) and next(numbers) == number:
                self.killed_at = request
                if moment == "before":
                    process.kill()
                    raise DroppedError

        def after(request: Request, _: int) -> None:
            if request is self.killed_at:
                process.kill()
                raise DroppedError

        self.killed_at = None
        victim.before, victim.after = before, after

    def disarm(self) -> None:
        """Kill no leader from now on."""
        self.gateway.before, self.gateway.after = lambda _: None, lambda _, __: None

    def is_over(self) -> bool:
        """The leader is dead, or writes no more."""
        if not self.leader.is_running():
            return True
        writes = [each for each in self.gateway.requests if each.acts]
        return bool(writes) and time.monotonic() - writes[-1].at_seconds > QUIET_SECONDS

    def take_over(self) -> None:
        """The one that waited leads. Its wait for the lease is cut short: other tests are about that.

        The one that waits from now on is started when it leads: it would take the free lease at once, and the other
        looks again after up to a second.
        """
        self.leader.kill()
        self.stage.kubectl.run("delete", "lease", "--all", "-n", self.stage.namespace)
        self.gateway, self.leader = self.next_gateway, self.next
        self.leader.wait_until_leading()
        self.next_gateway, self.next = self._start(leading=False)
