"""Chooses the limiter that works on this machine by trying it: cgroup v2, cgroup v1, stop and continue.

The output and the report show the `description` of the chosen limiter. Everything that a run makes lies below this
process's own cgroups; other cgroups are never changed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from slopewise.adapters.local.crash_journal import Journal
from slopewise.adapters.local.limiters.base import Limiter
from slopewise.adapters.local.limiters.cgroup_files import CgroupFiles
from slopewise.adapters.local.limiters.cgroup_jobs import CgroupLimiter
from slopewise.adapters.local.limiters.cgroup_v1 import CgroupV1Limiter
from slopewise.adapters.local.limiters.cgroup_v2 import CgroupV2Limiter
from slopewise.adapters.local.limiters.duty_cycle import DutyCycleLimiter
from slopewise.errors import MissingToolError, UsageError

PROC_SELF = Path("/proc/self")
UNIFIED = ""
"""The name under which the kernel lists the one hierarchy of cgroup v2, which holds every controller."""


def own_cgroups(proc_self: Path = PROC_SELF) -> dict[str, Path]:
    """The directory of our own cgroup for each controller of v1 that is mounted, and for `UNIFIED` (v2)."""
    mounts = _mounts(proc_self / "mountinfo")
    found = {}
    for line in (proc_self / "cgroup").read_text(encoding="utf-8").splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            directory = _directory(path, mounts.get(name, []))
            if directory is not None:
                found[name] = directory
    return found


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


def _mounts(mountinfo: Path) -> dict[str, list[tuple[str, Path]]]:
    """Per controller: (the part of the hierarchy that is mounted, where it is mounted)."""
    mounts: dict[str, list[tuple[str, Path]]] = {}
    for line in mountinfo.read_text(encoding="utf-8").splitlines():
        place, _, kind = line.partition(" - ")
        root, point = place.split()[3:5]
        filesystem, _, options = kind.split(" ", 2)
        names = {"cgroup": options.split(","), "cgroup2": [UNIFIED]}.get(filesystem, [])
        for name in names:
            mounts.setdefault(name, []).append((root, Path(_unescaped(point))))
    return mounts


def _directory(path: str, mounts: list[tuple[str, Path]]) -> Path | None:
    """`path` as seen through the first mount that shows it: /docker/ab of a mount of /docker is its ab."""
    for root, point in mounts:
        if Path(path).is_relative_to(root) and ".." not in Path(path).parts:
            return point / Path(path).relative_to(root)
    return None


def _unescaped(point: str) -> str:
    r"""Decode the octal escapes of mountinfo, which writes a space as \040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point)


ActuatorChoice = Literal["auto", "cgroup", "duty-cycle"]


def choose_limiter(
    journal: Journal,
    choice: str = "auto",
    *,
    proc_self: Path = PROC_SELF,
    files: CgroupFiles | None = None,
) -> Limiter:
    """The best way that works here: cgroup v2, cgroup v1, stop and continue.

    `choice` is the user's `--actuator`. UsageError for one that does not exist, MissingToolError when cgroups
    are asked for and cannot be used. `proc_self` and `files` let tests lay out another machine.
    """
    if choice not in get_args(ActuatorChoice):
        raise UsageError(f"--actuator {choice}: is none of {', '.join(get_args(ActuatorChoice))}; use one of them.")
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
