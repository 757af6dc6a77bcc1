"""Finds the directories of this process's own cgroups, and its CPU quota.

Everything that a run makes lies below these directories; other cgroups are never changed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

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
