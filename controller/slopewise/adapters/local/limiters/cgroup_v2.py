"""Limits CPU through cgroup v2: `cpu.max` for limits, `cpu.weight` for requests, `cpu.stat` for use.

NOT YET SEEN LIMITING CPU: where it was written the kernel keeps its CPU controller on v1.
The tests run against a file tree that keeps the kernel's rules (Documentation/admin-guide/cgroup-v2.rst); the
stepping aside and the way back were seen once on a real v2 hierarchy, with `hugetlb` in the place of `cpu`.

The rule that shapes this file is "no internal processes": a cgroup, save the root, either holds processes or
hands controllers down. The controller is a process in its own cgroup, so it moves into a leaf first:

    own                     before: the controller, its shell, make     after: none; hands cpu down
    own/slopewise-RUN                                                    none; hands cpu down
    own/slopewise-RUN/0-controller                                       the controller, its shell, make
    own/slopewise-RUN/1-mnist                                            a job
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from slopewise.adapters.local.cleanup import MadeCgroup
from slopewise.adapters.local.crash_journal import Journal
from slopewise.adapters.local.limiters.base import CPU_PERIOD_SECONDS
from slopewise.adapters.local.limiters.cgroup_files import ASIDE, UNIFIED, CgroupFiles
from slopewise.adapters.local.limiters.cgroup_jobs import CgroupLimiter
from slopewise.adapters.local.limiters.process_group import ProcessUse
from slopewise.errors import MissingToolError
from slopewise.model import CpuAllocation, Usage

_PERIOD_US = round(CPU_PERIOD_SECONDS * 1_000_000)
_MIN_QUOTA_US = 1000
_MILLICORES_PER_WEIGHT = 10
"""1000 millicores weigh 100, the kernel's default, so that a job without a change keeps its weight.

Kubernetes' own conversions map shares on weights and are not proportional near the ends; ratios are all that
counts here, and 10 millicores are fine enough for them."""
_WEIGHTS = range(1, 10_001)
_HIDDEN_PID = 0
"""How the kernel lists a process of another pid namespace. No process here can move it."""
_REMEDY = "start in a cgroup of its own with `systemd-run --user --scope -p Delegate=yes slopewise …`"
_DESIRED = ("memory", "io")
"""Controllers that give better figures than /proc does, where they can be had."""


class CgroupV2Limiter(CgroupLimiter):
    """The newer cgroups, one hierarchy for all controllers."""

    description = "cgroup v2: quota (cpu.max) and weight (cpu.weight)"

    def __init__(self, own: Path, journal: Journal, files: CgroupFiles | None = None) -> None:
        """`own`: the directory of our own cgroup."""
        super().__init__({UNIFIED: own}, journal, files)
        self._own, self._run = own, self._runs[0]
        self._aside = self._run / ASIDE

    def _make_run(self) -> None:
        offered = self._files.read(self._own / "cgroup.controllers").split()
        if "cpu" not in offered:
            raise MissingToolError(f"{self._own} has no cpu controller")
        handed_down = self._files.read(self._own / "cgroup.subtree_control").split()
        wanted = ["cpu", *(name for name in _DESIRED if name in offered)]
        missing = [name for name in wanted if name not in handed_down]
        if missing and not self._is_root:
            self._refuse_strangers()
        self._enabled = tuple(missing)
        self._journal.record(MadeCgroup(path=self._run, enabled=self._enabled))
        self._files.make(self._run)
        if missing and not self._is_root:
            self._files.make(self._aside)
            self._files.move_all(self._own, self._aside)
        for directory, names in ((self._own, missing), (self._run, wanted)):
            for name in names:
                self._files.write(directory / "cgroup.subtree_control", f"+{name}")

    @property
    def _is_root(self) -> bool:
        """The real root alone has no type, and alone may hold processes and hand controllers down."""
        return not (self._own / "cgroup.type").exists()

    def _refuse_strangers(self) -> None:
        """Moving ourselves and those that wait for us aside is our own business; a stranger's service is not.

        Where the whole cgroup was given to us, all in it move, and come back at the end. Example: `docker exec`
        in a container; its PID 1 is no ancestor of ours, yet in our cgroup.
        """
        pids = self._files.pids(self._own)
        strangers = [_HIDDEN_PID] if _HIDDEN_PID in pids else []
        # Delegated, or the top of what a container sees: no process here could use what is above it.
        is_top = not (self._own.parent / "cgroup.procs").exists()
        if not (is_top or self._files.is_delegated(self._own)):
            us = psutil.Process()  # with those that wait for us, and those that we started
            strangers = sorted({*pids} - {each.pid for each in (us, *us.parents(), *us.children(recursive=True))})
        if strangers:
            raise MissingToolError(f"{self._own} holds other processes too ({len(strangers)}); {_REMEDY}")

    def _refusal(self, error: OSError) -> str:
        """A login shell's cgroup belongs to systemd; one that a user may divide is to be had for the asking."""
        reason = super()._refusal(error)
        return f"{reason}; {_REMEDY}" if error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() else reason

    def _refuge(self, run: Path) -> Path:
        """Our own cgroup cannot take processes in while it hands controllers down, unless it is the root."""
        return self._aside if self._aside.is_dir() else run.parent

    def _read_allocation(self, directory: Path) -> CpuAllocation:
        quota_us, period_us = self._files.read(directory / "cpu.max").split()
        weight = int(self._files.read(directory / "cpu.weight"))
        return CpuAllocation(
            limit_millicores=None if quota_us == "max" else round(int(quota_us) * 1000 / int(period_us)),
            request_millicores=weight * _MILLICORES_PER_WEIGHT,
        )

    def _write_limit(self, directory: Path, millicores: int | None) -> None:
        """Worked example: 250 millicores are `25000 100000`."""
        quota = "max" if millicores is None else str(max(_MIN_QUOTA_US, millicores * _PERIOD_US // 1000))
        self._files.write(directory / "cpu.max", f"{quota} {_PERIOD_US}")

    def _write_request(self, directory: Path, millicores: int) -> None:
        """Worked example: 250 millicores weigh 25."""
        weight = round(millicores / _MILLICORES_PER_WEIGHT)
        self._files.write(directory / "cpu.weight", str(min(max(weight, _WEIGHTS[0]), _WEIGHTS[-1])))

    def _read_usage(self, now: float, directories: Sequence[Path], use: ProcessUse) -> Usage:
        directory = directories[0]
        cpu_microseconds = _keyed(self._files.read(directory / "cpu.stat"))["usage_usec"]
        return Usage(
            sampled_at_seconds=now,
            cpu_seconds_total=cpu_microseconds / 1e6,
            memory_bytes=self._working_set_bytes(directory, use.memory_bytes),
            block_io_bytes_total=self._block_io_bytes(directory, use.block_io_bytes),
        )

    def _working_set_bytes(self, directory: Path, fallback: float) -> float:
        """As the kubelet counts it: what is used, less the file cache that can be dropped at once."""
        with suppress(OSError):
            inactive = _keyed(self._files.read(directory / "memory.stat"))["inactive_file"]
            return float(max(0, int(self._files.read(directory / "memory.current")) - inactive))
        return fallback

    def _block_io_bytes(self, directory: Path, fallback: float) -> float:
        """Lines such as `254:0 rbytes=4096 wbytes=0 rios=1 …`, one for each device."""
        try:
            fields = self._files.read(directory / "io.stat").split()
        except OSError:
            return fallback
        return float(sum(int(entry[7:]) for entry in fields if entry.startswith(("rbytes=", "wbytes="))))


def _keyed(text: str) -> dict[str, int]:
    """A flat keyed file: one `name number` a line."""
    return {name: int(number) for name, number in (line.split() for line in text.splitlines())}
