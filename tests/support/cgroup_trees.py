"""File trees that behave as the kernel's cgroups do."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from slopewise.adapters.local.limiters.cgroup_files import CgroupFiles

StartPython = Callable[[str], subprocess.Popen[bytes]]
"""Starts Python code as the leader of a session of its own."""


class FileTree(CgroupFiles):
    """cgroup v1 as plain files: a cgroup is born with its control files, and a busy one cannot be removed."""

    born_with = {
        "cgroup.procs": "",
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "-1",
        "cpu.shares": "1024",
        "cpuacct.usage": "0",
    }

    def __init__(self) -> None:
        self.roots: list[Path] = []
        self.delegated: list[Path] = []

    def is_delegated(self, directory: Path) -> bool:
        return directory in self.delegated

    def plant(self, root: Path) -> Path:
        """A hierarchy's own cgroup, with this process in it."""
        self.roots.append(root)
        root.mkdir(parents=True)
        self._populate(root)
        (root / "cgroup.procs").write_text(str(os.getpid()))
        return root

    def of_process(self, pid: int) -> dict[str, Path]:
        found = {}
        for root in self.roots:
            for procs in root.rglob("cgroup.procs"):
                if str(pid) in procs.read_text().split():
                    found[self.controller_of(root)] = procs.parent
        return found

    def controller_of(self, root: Path) -> str:
        return root.name

    def make(self, directory: Path) -> None:
        super().make(directory)
        self._populate(directory)

    def remove(self, directory: Path) -> None:
        entries = list(directory.iterdir())
        if self.pids(directory) or any(entry.is_dir() for entry in entries):
            raise OSError(errno.EBUSY, "Device or resource busy", str(directory))
        for entry in entries:
            entry.unlink()
        super().remove(directory)

    def move(self, pid: int, directory: Path) -> None:
        hierarchy = next(root for root in self.roots if directory.is_relative_to(root))
        self.read(directory / "cgroup.procs")  # is there
        for procs in hierarchy.rglob("cgroup.procs"):
            pids = [other for other in procs.read_text().split() if other != str(pid)]
            procs.write_text(" ".join(pids))
        with (directory / "cgroup.procs").open("a") as procs_file:
            procs_file.write(f" {pid}")

    def _populate(self, directory: Path) -> None:
        for name, content in self.born_with.items():
            (directory / name).write_text(content)


class ReadOnlyTree(FileTree):
    """What a user without rights sees."""

    def make(self, directory: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(directory))


class UnifiedTree(FileTree):
    """cgroup v2 as plain files, with its rules: no internal processes, and controllers handed down from above."""

    offered = "cpu memory io pids"

    def controller_of(self, root: Path) -> str:
        return ""

    def plant(self, root: Path) -> Path:
        super().plant(root)
        (root / "cgroup.controllers").write_text(self.offered)
        return root

    def _populate(self, directory: Path) -> None:
        parent = directory.parent / "cgroup.subtree_control"
        (directory / "cgroup.type").write_text("domain")
        (directory / "cgroup.procs").write_text("")
        (directory / "cgroup.subtree_control").write_text("")
        (directory / "cpu.stat").write_text("usage_usec 0\nuser_usec 0\n")
        self._hand_down(directory, parent.read_text() if parent.exists() else "")

    def _hand_down(self, directory: Path, controllers: str) -> None:
        (directory / "cgroup.controllers").write_text(controllers)
        for name, content in {"cpu.max": "max 100000", "cpu.weight": "100"}.items():
            if "cpu" not in controllers.split():
                (directory / name).unlink(missing_ok=True)
            elif not (directory / name).exists():
                (directory / name).write_text(content)

    def write(self, file: Path, value: str) -> None:
        if file.name != "cgroup.subtree_control":
            super().write(file, value)
            return
        directory, sign, name = file.parent, value[0], value[1:]
        children = [entry for entry in directory.iterdir() if entry.is_dir()]
        active = set(self.read(file).split())
        if sign == "+":
            self._demand(name in self.read(directory / "cgroup.controllers").split(), errno.ENOENT, file)
            self._demand(self._may_hold_both(directory) or not self.pids(directory), errno.EBUSY, file)
        else:
            used_below = any(name in self.read(child / "cgroup.subtree_control").split() for child in children)
            self._demand(not used_below, errno.EBUSY, file)
        active = active | {name} if sign == "+" else active - {name}
        file.write_text(" ".join(sorted(active)))
        for child in children:
            self._hand_down(child, " ".join(sorted(active)))

    def move(self, pid: int, directory: Path) -> None:
        control = self.read(directory / "cgroup.subtree_control")
        self._demand(self._may_hold_both(directory) or not control, errno.EBUSY, directory)
        super().move(pid, directory)

    @staticmethod
    def _may_hold_both(directory: Path) -> bool:
        return not (directory / "cgroup.type").exists()

    @staticmethod
    def _demand(allowed: bool, number: int, file: Path) -> None:
        if not allowed:
            raise OSError(number, os.strerror(number), str(file))
