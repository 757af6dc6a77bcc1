"""The CPU that this process gets: its affinity, its quota, and under weights what it uses while it waits for more.

Times are in seconds, CPU in cores. A file that cannot be read limits nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Callable, NamedTuple

CGROUPS = "/sys/fs/cgroup"
PROC = "/proc/self"

WAITED_SHARE = 0.15
"""Waits of the threads, as a share of the time in which they ran or wanted to, above which the CPU is short. One thread
too many on five cores waits for 1 / 6 of its time; the daemons of an idle machine cost below 0.05."""


class Reading(NamedTuple):
    """The CPU of one interval. None: there is no interval yet, or the system does not say."""

    limit_cores: float
    """The least of affinity and quota."""
    used_cores: float | None = None
    waited_share: float | None = None
    """From 0 to 1. At the first reading: since the process began."""
    steps_per_second: float | None = None
    """None: not counted, or too few of them to tell."""


def in_effect_cores(reading: Reading, ranks: int = 1) -> float:
    """The limit, divided by the processes that share it; less where this process waited, and used less.

    Before the first step its imports used one thread, whose use is no measure: where that waited half of its time, the
    limit is taken to be half. LightGBM lays out a fit for the threads that it begins with.
    """
    limit = reading.limit_cores / ranks
    if reading.waited_share is None or reading.waited_share <= WAITED_SHARE:
        return limit
    return limit * (1.0 - reading.waited_share) if reading.used_cores is None else min(limit, reading.used_cores)


def affinity_cores() -> int:
    """The cores that this process may run on: what a library counts at its start."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not on macOS
        return os.cpu_count() or 1


def limit_cores(cgroups: str | None = None, proc: str | None = None) -> float:
    """The least of the affinity and of all quotas up the tree."""
    quotas = (_quota(folder) for folder in cgroup_folders(cgroups or CGROUPS, proc or PROC))
    return min([float(affinity_cores()), *(quota for quota in quotas if quota is not None)])


def cgroup_folders(cgroups: str, proc: str) -> Iterator[str]:
    """The folders of this process's cgroup with a CPU controller and of those above it, of version 1 and version 2.

    A container without a namespace of its own has the path of its host; what is mounted is then its own cgroup.
    """
    for line in _text(f"{proc}/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if not names:
            places = [cgroups] if os.path.exists(f"{cgroups}/cgroup.controllers") else [f"{cgroups}/unified"]  # noqa: PTH110
        elif "cpu" in names.split(","):
            places = [f"{cgroups}/{names}", f"{cgroups}/cpu"]
        else:
            continue
        steps = [step for step in path.split("/") if step]
        if ".." in steps:  # of a process that was moved out of the namespace
            steps = []
        place = next(filter(os.path.isdir, places), "")
        while place:
            yield "/".join([place, *steps])
            if not steps:
                break
            steps.pop()


def _quota(folder: str) -> float | None:
    """`cpu.max` of version 2, `cpu.cfs_quota_us` and `cpu.cfs_period_us` of version 1, in cores."""
    words = _text(f"{folder}/cpu.max").split()
    if not words:
        words = [*_text(f"{folder}/cpu.cfs_quota_us").split(), *_text(f"{folder}/cpu.cfs_period_us").split()]
    try:
        quota, period = map(float, words)
    except ValueError:  # `max 100000`, or no such file
        return None
    return quota / period if quota > 0 and period > 0 else None


class CpuReader:
    """Reads the CPU of the time since it was last asked."""

    def __init__(
        self,
        cgroups: str = CGROUPS,
        proc: str = PROC,
        *,
        now: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.process_time,
    ) -> None:
        self._cgroups, self._proc = cgroups, proc
        self._now, self._used = now, used
        self._at: float | None = None
        self._cpu_seconds = 0.0
        self._pressure_seconds: float | None = None
        self._threads: dict[str, tuple[float, float]] = {}

    def read(self) -> Reading:
        """Without use at the first call, whose waits are those since the process began."""
        now, used = self._now(), self._used()
        waited = self._waited_share(None if self._at is None else now - self._at)
        reading = Reading(limit_cores(self._cgroups, self._proc), waited_share=waited)
        if self._at is not None and now > self._at:
            reading = reading._replace(used_cores=(used - self._cpu_seconds) / (now - self._at))
        self._at, self._cpu_seconds = now, used
        return reading

    def _waited_share(self, interval: float | None) -> float | None:
        """Of the threads of this process, as its use is; of its whole cgroup where the kernel does not say theirs."""
        threads, self._threads = self._threads, self._run_queue()
        before, self._pressure_seconds = self._pressure_seconds, None if self._threads else self._pressure()
        if before is not None and self._pressure_seconds is not None and interval:
            return min(1.0, (self._pressure_seconds - before) / interval)
        ran = sum(run - threads.get(thread, (0.0, 0.0))[0] for thread, (run, _) in self._threads.items())
        waited = sum(wait - threads.get(thread, (0.0, 0.0))[1] for thread, (_, wait) in self._threads.items())
        return waited / (ran + waited) if ran + waited > 0 else None

    def _pressure(self) -> float | None:
        """How long some of the cgroup's processes have waited for CPU. The root's file is about the whole machine."""
        for folder in cgroup_folders(self._cgroups, self._proc):
            if os.path.exists(f"{folder}/cgroup.type"):  # noqa: PTH110 - not in version 1, nor in the root of version 2
                break
        else:
            return None
        _, _, total = _text(f"{folder}/cpu.pressure").partition("\n")[0].partition("total=")
        return int(total) / 1e6 if total.isdecimal() else None

    def _run_queue(self) -> dict[str, tuple[float, float]]:
        """By thread: how long it ran, and how long it waited in a run queue."""
        times = {}
        for thread in _listed(f"{self._proc}/task"):
            words = _text(f"{self._proc}/task/{thread}/schedstat").split()
            if len(words) == 3 and words[2] != "0":  # run, wait, and how often: `0 0 0` where the kernel counts none
                times[thread] = int(words[0]) / 1e9, int(words[1]) / 1e9
        return times


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123 - pathlib takes 10 ms to import
            return file.read()
    except OSError:
        return ""


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)  # noqa: PTH208
    except OSError:
        return []
