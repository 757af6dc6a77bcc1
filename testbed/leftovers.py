"""Removes shims, containers and mounts that the cluster's components leave when they end or are killed.

Only what belongs to the cluster is removed. Each function may be called when nothing is left.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from slopewise.adapters.local.limiters.identity import ProcessIdentity, identify
from slopewise.errors import SlopewiseError
from testbed import cgroups
from testbed.processes import signal_process
from testbed.settings import Node

_GONE_SECONDS = 10.0
_POLL_SECONDS = 0.05
_MOUNT_POINT = 4
_MNT_DETACH = 2


def kill_strays(programs: Path, folder: Path) -> int:
    """Kill programs that we built and that work below `folder`: shims, and what a killed `up` had no time to note."""
    return _kill_until_gone(lambda: _strays(programs, folder), f"programs below {folder}")


def kill_containers(node: Node | None = None) -> int:
    """Kill all processes in the pods' cgroups, of one node or of all; how many were there."""
    return _kill_until_gone(lambda: _identities(cgroups.processes(node)), "containers")


def signal_containers(node: Node, number: int) -> None:
    """Signal all processes in the pods' cgroups of a node, e.g. SIGSTOP."""
    for found in _identities(cgroups.processes(node)):
        signal_process(found, number)


def unmount(folder: Path) -> int:
    """Detach every mount below `folder`, the last one first; how many there were."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = _mounts(folder)
    for path in found:
        if libc.umount2(os.fsencode(path), _MNT_DETACH) != 0:
            raise SlopewiseError(f"{path}: cannot be unmounted ({os.strerror(ctypes.get_errno())}).")
    return len(found)


def _mounts(folder: Path) -> list[Path]:
    paths = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        path = Path(line.split()[_MOUNT_POINT].encode().decode("unicode_escape"))
        if path.is_relative_to(folder):
            paths.append(path)
    return paths[::-1]


def _strays(programs: Path, folder: Path) -> list[ProcessIdentity]:
    """Both must be ours, program and folder: another test-bed's shims run the same programs elsewhere."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = Path(process.exe()).is_relative_to(programs) and Path(process.cwd()).is_relative_to(folder)
        except (psutil.Error, OSError):
            continue
        if ours:
            found += _identities([process.pid])
    return found


def _identities(pids: list[int]) -> list[ProcessIdentity]:
    found = []
    for pid in pids:
        try:
            found.append(identify(pid))
        except ProcessLookupError:
            continue
    return found


def _kill_until_gone(find: Callable[[], list[ProcessIdentity]], what: str) -> int:
    """Kill until none is found: a process that is being killed may just have started another one."""
    seen: set[ProcessIdentity] = set()
    deadline = time.monotonic() + _GONE_SECONDS
    while alive := [found for found in find() if not _is_zombie(found.pid)]:
        if time.monotonic() >= deadline:
            pids = ", ".join(str(found.pid) for found in alive)
            raise SlopewiseError(f"{what}: still there after SIGKILL: {pids}; look at them with ps.")
        for found in alive:
            signal_process(found, signal.SIGKILL)
        seen.update(alive)
        time.sleep(_POLL_SECONDS)
    return len(seen)


def _is_zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
