"""Limits CPU through cgroup v1: `cpu.cfs_quota_us` for limits, `cpu.shares` for requests, `cpuacct.usage` for use.

The controllers `cpu` and `cpuacct` may be mounted apart (two directories a job) or together (one).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slopewise.adapters.local.crash_journal import Journal
from slopewise.adapters.local.limiters.base import CPU_PERIOD_SECONDS
from slopewise.adapters.local.limiters.cgroup_files import CgroupFiles
from slopewise.adapters.local.limiters.cgroup_jobs import CgroupLimiter
from slopewise.model import CpuAllocation

_PERIOD_US = round(CPU_PERIOD_SECONDS * 1_000_000)
_MIN_QUOTA_US = 1000
"""The kernel refuses less: 10 millicores at our period."""

_SHARES_PER_CORE = 1024
_MIN_SHARES = 2
_MAX_SHARES = 262_144


class CgroupV1Limiter(CgroupLimiter):
    """The older cgroups, one hierarchy per controller."""

    description = "cgroup v1: quota (cpu.cfs_quota_us) and weight (cpu.shares)"

    def __init__(self, cpu: Path, cpuacct: Path, journal: Journal, files: CgroupFiles | None = None) -> None:
        """`cpu`, `cpuacct`: the directories of our own cgroup in both hierarchies; the same when co-mounted."""
        together = cpu.resolve() == cpuacct.resolve()
        super().__init__({"cpu": cpu} if together else {"cpu": cpu, "cpuacct": cpuacct}, journal, files)

    def _read_allocation(self, directory: Path) -> CpuAllocation:
        quota_us = int(self._files.read(directory / "cpu.cfs_quota_us"))
        period_us = int(self._files.read(directory / "cpu.cfs_period_us"))
        shares = int(self._files.read(directory / "cpu.shares"))
        return CpuAllocation(
            limit_millicores=None if quota_us < 0 else round(quota_us * 1000 / period_us),
            request_millicores=round(shares * 1000 / _SHARES_PER_CORE),
        )

    def _write_limit(self, directory: Path, millicores: int | None) -> None:
        """Worked example: 250 millicores are 25,000 µs of each 100,000 µs."""
        quota_us = -1 if millicores is None else max(_MIN_QUOTA_US, millicores * _PERIOD_US // 1000)
        self._files.write(directory / "cpu.cfs_period_us", str(_PERIOD_US))
        self._files.write(directory / "cpu.cfs_quota_us", str(quota_us))

    def _write_request(self, directory: Path, millicores: int) -> None:
        """Worked example: 250 millicores weigh 256 shares, as the kubelet writes them."""
        shares = round(millicores * _SHARES_PER_CORE / 1000)
        self._files.write(directory / "cpu.shares", str(min(max(shares, _MIN_SHARES), _MAX_SHARES)))

    def _cpu_seconds(self, directories: Sequence[Path]) -> float:
        return int(self._files.read(directories[-1] / "cpuacct.usage")) / 1e9
