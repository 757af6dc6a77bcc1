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
from pathlib import Path

import psutil

from slopewise.adapters.local.cleanup import MadeCgroup
from slopewise.adapters.local.crash_journal import Journal
from slopewise.adapters.local.limiters.base import CPU_PERIOD_SECONDS
from slopewise.adapters.local.limiters.cgroup_files import ASIDE, UNIFIED, CgroupFiles
from slopewise.adapters.local.limiters.cgroup_jobs import CgroupLimiter
from slopewise.errors import MissingToolError
from slopewise.model import CpuAllocation

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


class CgroupV2Limiter(CgroupLimiter):
    """The newer cgroups, one hierarchy for all controllers."""

    description = "cgroup v2: quota (cpu.max) and weight (cpu.weight)"

    def __init__(self, own: Path, journal: Journal, files: CgroupFiles | None = None) -> None:
        """`own`: the directory of our own cgroup."""
        super().__init__({UNIFIED: own}, journal, files)
        self._own, self._run = own, self._runs[0]
        self._aside = self._run / ASIDE

    def _make_run(self) -> None:
        if "cpu" not in self._files.read(self._own / "cgroup.controllers").split():
            raise MissingToolError(f"{self._own} has no cpu controller")
        is_missing = "cpu" not in self._files.read(self._own / "cgroup.subtree_control").split()
        if is_missing and not self._is_root:
            self._refuse_strangers()
        self._enabled = ("cpu",) if is_missing else ()
        self._journal.record(MadeCgroup(path=self._run, enabled=self._enabled))
        self._files.make(self._run)
        if is_missing and not self._is_root:
            self._files.make(self._aside)
            self._files.move_all(self._own, self._aside)
        for directory in (self._own, self._run) if is_missing else (self._run,):
            self._files.write(directory / "cgroup.subtree_control", "+cpu")

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

    def _cpu_seconds(self, directories: Sequence[Path]) -> float:
        lines = map(str.split, self._files.read(directories[0] / "cpu.stat").splitlines())
        return next(int(number) for name, number in lines if name == "usage_usec") / 1e6
