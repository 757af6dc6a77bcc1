"""Lists the processes of a process group, and sums their CPU use, also of those that have ended."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

_SCAN_SERVES_SECONDS = 0.2

CLOCK_SECONDS = 1.0
"""The wall clock and the times of start, which count from the boot, may be so far apart."""


def process_groups() -> dict[int, list[int]]:
    """The pids of every process group's processes, zombies included: one look at the whole of /proc."""
    groups: dict[int, list[int]] = {}
    for pid in psutil.pids():
        with suppress(OSError):  # it has just ended
            groups.setdefault(os.getpgid(pid), []).append(pid)
    return groups


def group_members(group: int) -> list[int]:
    """The pids of the group's processes, zombies included."""
    return process_groups().get(group, [])


def process_tree(pid: int) -> list[int]:
    """A process, and all that it has started, parents first; empty: it has ended."""
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except (psutil.NoSuchProcess, ValueError):  # no number of one
        return []


def running(pids: Iterable[int]) -> list[int]:
    """Those of `pids` that still run: neither gone nor zombies that wait to be collected."""
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                found.append(pid)
    return found


@dataclass(slots=True)
class GroupScan:
    """Who is in which group, from a look that serves for 0.2 s: a pass over 100 jobs looks once, not 100 times."""

    list_groups: Callable[[], dict[int, list[int]]] = process_groups
    monotonic_seconds: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _groups: dict[int, list[int]] = field(init=False, default_factory=dict)
    _stale_at_seconds: float = field(init=False, default=-math.inf)

    def members(self, group: int) -> list[int]:
        """The pids of the group's processes, zombies included, as they were at most 0.2 s ago."""
        with self._lock:
            now = self.monotonic_seconds()
            if now >= self._stale_at_seconds:
                self._groups = self.list_groups()
                self._stale_at_seconds = now + _SCAN_SERVES_SECONDS
            return self._groups.get(group, [])

    def forget(self) -> None:
        """Read the processes again the next time: a group was just started."""
        with self._lock:
            self._stale_at_seconds = -math.inf


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """CPU time and block I/O since the start, and resident memory now, of one process or of several."""

    cpu_seconds: float = 0.0
    block_io_bytes: float = 0.0
    memory_bytes: float = 0.0

    def __add__(self, other: ProcessUse) -> ProcessUse:
        return ProcessUse(
            self.cpu_seconds + other.cpu_seconds,
            self.block_io_bytes + other.block_io_bytes,
            self.memory_bytes + other.memory_bytes,
        )


class ProcessMeter:
    """Adds up what changing processes use, so that the totals never go back.

    The kernel adds the CPU time and the I/O of an ended child to those of the parent that collects it. So a
    process that is gone is kept on our books only when no parent of it is left among the others. Example: a
    shell (0.1 s) ran a training (5 s) that has ended: the shell now shows 5.1 s; with the training's own 5 s
    it would be 10.1 s.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[psutil.Process, tuple[int, ProcessUse]] = {}
        self._gone = ProcessUse()
        self._highest = ProcessUse()
        self._read_at_seconds = math.inf

    def read(self, pids: Iterable[int]) -> ProcessUse:
        """Read the processes that are there now and return the totals of all that were ever read.

        Passes and the sampler between them ask from threads of their own; one after the other, or a process
        that ends meanwhile would be booked twice.
        """
        with self._lock:
            return self._read(pids)

    def _read(self, pids: Iterable[int]) -> ProcessUse:
        before, self._read_at_seconds = self._read_at_seconds, time.time()
        now = self._processes(pids, before)
        there = {process.pid for process in now}
        for process, (parent, use) in self._last.items():
            if process not in now and parent not in there:
                self._gone += ProcessUse(use.cpu_seconds, use.block_io_bytes)
        self._last = now
        total = sum((use for _, use in now.values()), self._gone)
        self._highest = ProcessUse(
            max(self._highest.cpu_seconds, total.cpu_seconds),
            max(self._highest.block_io_bytes, total.block_io_bytes),
            total.memory_bytes,
        )
        return self._highest

    def _processes(self, pids: Iterable[int], before_seconds: float) -> dict[psutil.Process, tuple[int, ProcessUse]]:
        """What one used before it came among the others, by `attach`, is not counted: that was others' use."""
        found = {}
        for pid in pids:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                former = self._last.get(process, (0, ProcessUse()))[1]
                use = _use(process, former)
                if process not in self._last and math.inf > before_seconds > process.create_time() + CLOCK_SECONDS:
                    self._gone += ProcessUse(-use.cpu_seconds, -use.block_io_bytes)
                found[process] = (process.ppid(), use)
        return found


def _use(process: psutil.Process, former: ProcessUse) -> ProcessUse:
    with process.oneshot():
        return ProcessUse(
            cpu_seconds=sum(process.cpu_times()[:4]),  # user, system, and those of collected children
            block_io_bytes=_block_io_bytes(process, former.block_io_bytes),
            memory_bytes=float(process.memory_info().rss),
        )


def _block_io_bytes(process: psutil.Process, former: float) -> float:
    """Bytes read from and written to storage; the former figure where the kernel does not let us look."""
    try:
        counters = process.io_counters()
    except (psutil.AccessDenied, OSError):
        return former
    return float(counters.read_bytes + counters.write_bytes)
