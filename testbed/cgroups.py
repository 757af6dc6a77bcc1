"""Makes and removes the cluster's own cgroup in each hierarchy, and touches no other.

The kubelets make the pods' cgroups below `node_cgroup`. On a cgroup v1 machine a kubelet demands that its root
exists in every controller.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from slopewise.errors import SlopewiseError
from testbed.settings import NODES, Node

OURS = "slopewise-testbed"
_CGROUPS = Path("/sys/fs/cgroup")
_MOUNT_POINT = 4
_REMOVE_SECONDS = 5.0
_POLL_SECONDS = 0.05


def node_cgroup(node: Node) -> str:
    """The cgroup that holds all pods of a node, as a kubelet's `cgroupRoot`."""
    return f"/{OURS}/{node.name}"


def hierarchies(mountinfo: str | None = None) -> list[Path]:
    """Where this machine's cgroups are mounted: one folder for v2, one for each controller for v1.

    Only below /sys/fs/cgroup: what builders of images mount elsewhere shows the same cgroups a second time.
    """
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    found = []
    for line in text.splitlines():
        fields = line.split()
        path = Path(fields[_MOUNT_POINT])
        if fields[fields.index("-") + 1] in ("cgroup", "cgroup2") and path.is_relative_to(_CGROUPS):
            found.append(path)
    return list(dict.fromkeys(found))


def make() -> None:
    """Make the cgroups of all nodes, each with every controller that its parent has."""
    for hierarchy in hierarchies():
        for node in NODES:
            folder = hierarchy / node_cgroup(node).lstrip("/")
            for level in (folder.parent, folder):
                level.mkdir(exist_ok=True)
                _inherit_cpuset(level)
                _pass_controllers_on(level.parent)
            _weigh(folder.parent)


def _weigh(folder: Path) -> None:
    """Give all pods together the weight of eight processes, not of one.

    Otherwise processes beside the cluster would have half of the machine, and the pods' shares would not hold.
    """
    for name, weight in (("cpu.shares", 8192), ("cpu.weight", 800)):
        if (folder / name).exists():
            (folder / name).write_text(str(weight))


def processes(node: Node | None = None) -> list[int]:
    """The processes of all pods of a node, or of all nodes."""
    below = node_cgroup(node).lstrip("/") if node else OURS
    pids: set[int] = set()
    for hierarchy in hierarchies():
        for folder in _bottom_up(hierarchy / below):
            with suppress(OSError):
                pids.update(map(int, (folder / "cgroup.procs").read_text().split()))
    return sorted(pids)


def remove() -> None:
    """Remove our cgroups, empty by now; SlopewiseError when processes are still in them after 5 s."""
    deadline = time.monotonic() + _REMOVE_SECONDS
    while left := [folder for hierarchy in hierarchies() for folder in _bottom_up(hierarchy / OURS)]:
        if time.monotonic() >= deadline:
            raise SlopewiseError(f"{left[0]}: cannot be removed; end the processes in its cgroup.procs.")
        for folder in left:
            with suppress(OSError):  # EBUSY while a process that was killed is still ending
                folder.rmdir()
        time.sleep(_POLL_SECONDS if any(folder.exists() for folder in left) else 0)


def _bottom_up(folder: Path) -> Iterator[Path]:
    for path, _, _ in os.walk(folder, topdown=False):
        yield Path(path)


def _pass_controllers_on(parent: Path) -> None:
    """With cgroup v2 a cgroup has the controllers that its parent passes on; v1 has no such file."""
    available = parent / "cgroup.controllers"
    for controller in available.read_text().split() if available.exists() else ():
        (parent / "cgroup.subtree_control").write_text(f"+{controller}")


def _inherit_cpuset(folder: Path) -> None:
    """With cgroup v1 a new cpuset has no processors, and no process could enter it."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        path = folder / name
        if path.exists() and not path.read_text().strip():
            path.write_text((folder.parent / name).read_text())
