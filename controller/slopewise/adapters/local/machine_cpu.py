"""Measures the CPU that other programs on this machine use: the kernel's busy time less that of the run's processes.

What they leave of a node is what its jobs are promised. The demo compares only runs in which other programs used
similar amounts. Time that a hypervisor gave to other machines (steal) is use of others, too.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from slopewise.adapters.local.limiters.process_group import ProcessMeter, process_tree
from slopewise.model import Node

_STAT = Path("/proc/stat")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# proc(5): user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of user and nice.
_BUSY = (0, 1, 2, 5, 6, 7)
_COUNTED_RATIO = 0.5
"""Least share of the elapsed time that a kernel must have counted; a sandbox may show constant zeros."""

SMOOTHED_SECONDS = 60.0
"""Over which the use of others is averaged: three passes of 20 s, so that a compiler of some seconds changes little."""

_LEAST_SECONDS = 5.0
"""Between two counts: a clock tick of 0.01 s is then 0.2 %."""


@dataclass(frozen=True, slots=True)
class CpuCount:
    """Counters at one moment, in seconds; only differences are meaningful."""

    at_seconds: float
    busy_seconds: float
    """Busy time of these cores, by any process."""
    counted_seconds: float
    """All time that the kernel has counted, idle or not."""
    ours_seconds: float
    sessions_seconds: float = 0.0
    """Of the jobs of this user's other sessions."""


@dataclass(frozen=True, slots=True)
class OtherUse:
    """Means over some time, in cores."""

    other_cores: float
    """Used by other processes, by the kernel for them, and by other machines while these cores had work."""
    session_cores: float = 0.0
    """Of `other_cores`: used by the jobs of this user's other sessions."""


@dataclass(slots=True)
class MachineCpu:
    """Reads the CPU time of a set of cores."""

    cpus: Collection[int]
    ours: Callable[[], Iterable[int]] = lambda: process_tree(os.getpid())
    """The pids of the run's processes."""
    stat: Path = _STAT
    monotonic_seconds: Callable[[], float] = time.monotonic
    sessions: Callable[[], Iterable[int]] = tuple
    """The processes of the jobs of other sessions."""
    _meter: ProcessMeter = field(init=False, default_factory=ProcessMeter)
    _sessions_meter: ProcessMeter = field(init=False, default_factory=ProcessMeter)

    @property
    def cores(self) -> int:
        """How many they are."""
        return len(self.cpus)

    def count(self) -> CpuCount | None:
        """The counters now; None where the kernel does not show them."""
        with suppress(OSError, ValueError, IndexError):
            names = {f"cpu{number}" for number in self.cpus}
            lines = [line.split() for line in self.stat.read_text().splitlines()]
            ticks = [[int(each) for each in fields[1:]] for fields in lines if fields and fields[0] in names]
            return CpuCount(
                self.monotonic_seconds(),
                sum(sum(of_cpu[place] for place in _BUSY) for of_cpu in ticks) / _TICKS_PER_SECOND,
                sum(sum(of_cpu[: _BUSY[-1] + 1]) for of_cpu in ticks) / _TICKS_PER_SECOND,
                self._meter.read(self.ours()).cpu_seconds,
                self._sessions_meter.read(self.sessions()).cpu_seconds,
            )
        return None

    def use(self, before: CpuCount | None, after: CpuCount | None) -> OtherUse | None:
        """What everything else used between two counts; None where the kernel did not count.

        Worked example: in 10 s two cores were busy for 15 s, 12 s of it by the run: others used 0.3 cores.
        """
        if before is None or after is None or after.at_seconds <= before.at_seconds:
            return None
        elapsed = after.at_seconds - before.at_seconds
        if after.counted_seconds - before.counted_seconds < _COUNTED_RATIO * elapsed * self.cores:
            return None
        ours = after.ours_seconds - before.ours_seconds
        others = max(0.0, after.busy_seconds - before.busy_seconds - ours)
        theirs = min(others, after.sessions_seconds - before.sessions_seconds)
        return OtherUse(others / elapsed, theirs / elapsed)


class RunningJobs(NamedTuple):
    """How many run now."""

    own: int
    of_others: int
    """Of this user's other sessions."""


class LeftByOthers:
    """What other programs and the jobs of other sessions leave of each node, by their use in the last minute."""

    def __init__(
        self, machines: Mapping[str, MachineCpu], running: Callable[[], RunningJobs] = lambda: RunningJobs(1, 0)
    ) -> None:
        """`machines`: the cores of each node, by its name."""
        self._machines = machines
        self._running = running
        self._counts: dict[str, deque[CpuCount]] = {name: deque() for name in machines}

    def of(self, node: Node) -> Node:
        """The node with its `available_cores`; None there for the first five seconds, and where nothing is counted.

        Worked example: of 2 cores others used 0.5 over the last minute: 1.5 are left. Was 0.4 of that the job of
        another session, and runs one here: 1.9 are for both, of which its even part is 0.95; it leaves 1.5.
        """
        machine, counts = self._machines[node.name], self._counts[node.name]
        now = machine.count()
        if now is None:
            return node
        if not counts or now.at_seconds - counts[-1].at_seconds >= _LEAST_SECONDS:
            counts.append(now)
        while len(counts) > 2 and now.at_seconds - counts[1].at_seconds >= SMOOTHED_SECONDS:
            counts.popleft()
        use = machine.use(counts[0], now) if now.at_seconds - counts[0].at_seconds >= _LEAST_SECONDS else None
        if use is None:
            return node
        own, of_others = self._running()
        shared = max(0.0, node.cpu_cores - use.other_cores + use.session_cores)
        even = shared * own / (own + of_others) if of_others else 0.0
        return replace(node, available_cores=max(even, shared - use.session_cores))
