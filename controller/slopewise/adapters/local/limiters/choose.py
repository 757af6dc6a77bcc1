"""Chooses the limiter that works on this machine by trying it: cgroup v2, cgroup v1, stop and continue.

The output and the report show the `description` of the chosen limiter. Everything that a run makes lies below this
process's own cgroups; other cgroups are never changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from slopewise.adapters.local.crash_journal import Journal
from slopewise.adapters.local.limiters.cgroup_files import PROC_SELF, UNIFIED, CgroupFiles, own_cgroups
from slopewise.adapters.local.limiters.cgroup_jobs import CgroupLimiter
from slopewise.adapters.local.limiters.cgroup_v1 import CgroupV1Limiter
from slopewise.adapters.local.limiters.cgroup_v2 import CgroupV2Limiter
from slopewise.adapters.local.limiters.duty_cycle import DutyCycleLimiter
from slopewise.errors import MissingToolError


def own_quota_cores(proc_self: Path = PROC_SELF) -> float:
    """The CPU quota of our own cgroup in cores, infinite without one; in a container of 1 CPU on 64 cores it is 1."""
    try:
        own = own_cgroups(proc_self)
    except OSError:
        return math.inf
    quotas = [
        _quota_cores(own[name], files)
        for name, files in ((UNIFIED, ["cpu.max"]), ("cpu", ["cpu.cfs_quota_us", "cpu.cfs_period_us"]))
        if name in own
    ]
    return min(quotas, default=math.inf)


def _quota_cores(folder: Path, files: Sequence[str]) -> float:
    try:
        quota, period = " ".join((folder / name).read_text(encoding="utf-8") for name in files).split()
        return math.inf if quota in ("max", "-1") else int(quota) / int(period)
    except (OSError, ValueError):  # the root cgroup of v2 has no such file
        return math.inf


Limiter = CgroupLimiter | DutyCycleLimiter
"""Admits, limits, weighs, measures and releases jobs.

A job is admitted once, as the leader of a process group of its own, and released once; between the two it is known by
its `job_uid`. Targets are absolute, and setting one twice does no harm. Unknown jobs and failed writes raise
`ActuationError`; use of a job that is gone has nothing but the time of reading, and network is never observable,
because jobs share the machine's. To release and to restore one that has ended are no errors.
"""


def choose_limiter(
    journal: Journal, choice: str = "auto", *, proc_self: Path = PROC_SELF, files: CgroupFiles | None = None
) -> Limiter:
    """The best way that works here: cgroup v2, cgroup v1, stop and continue.

    `choice` is the user's `--actuator`. MissingToolError when cgroups are asked for and cannot be used. `proc_self` and
    `files` let tests lay out another machine.
    """
    if choice == "duty-cycle":
        return DutyCycleLimiter("as asked for", journal.run_id)
    refusals = []
    for version, limiter in _candidates(journal, proc_self, files or CgroupFiles()).items():
        if limiter is None:
            refusals.append(f"{version}: not mounted")
            continue
        try:
            limiter.prepare()
        except MissingToolError as refusal:
            refusals.append(f"{version}: {refusal}")
        else:
            return limiter
    if choice == "cgroup":
        raise MissingToolError(
            f"--actuator cgroup: no cgroup can be used here ({'; '.join(refusals)}); "
            "run as root, or use --actuator duty-cycle."
        )
    return DutyCycleLimiter(f"no cgroups: {'; '.join(refusals)}", journal.run_id)


def _candidates(journal: Journal, proc_self: Path, files: CgroupFiles) -> dict[str, CgroupLimiter | None]:
    try:
        own = own_cgroups(proc_self)
    except OSError:  # no /proc, or one without cgroups
        own = {}
    unified, cpu, cpuacct = (own.get(name) for name in (UNIFIED, "cpu", "cpuacct"))
    return {
        "cgroup v2": CgroupV2Limiter(unified, journal, files) if unified else None,
        "cgroup v1": CgroupV1Limiter(cpu, cpuacct, journal, files) if cpu and cpuacct else None,
    }
