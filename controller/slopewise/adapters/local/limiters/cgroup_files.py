"""Makes, reads, writes and removes cgroups, and moves processes between them.

The journal removes the cgroups of a killed controller with the same `remove_run` as the limiters.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

RUN_PREFIX = "slopewise-"
"""Every cgroup and every temporary folder of ours starts so; nothing else is ever removed."""

ASIDE = "0-controller"
"""The cgroup of a run (v2) in which those stand that it is no limiter of."""

PROC_SELF = Path("/proc/self")
UNIFIED = ""
"""The name under which the kernel lists the one hierarchy of cgroup v2, which holds every controller."""

_REMOVAL_TRIES = 100
_REMOVAL_PAUSE_SECONDS = 0.01


class CgroupFiles:
    """A cgroup hierarchy as files. Every method may raise OSError."""

    def make(self, directory: Path) -> None:
        """Make a cgroup; the kernel fills it with its control files."""
        directory.mkdir()

    def remove(self, directory: Path) -> None:
        """Remove a cgroup without processes."""
        directory.rmdir()

    def read(self, file: Path) -> str:
        """A control file's text, without the newline."""
        return file.read_text(encoding="utf-8").strip()

    def write(self, file: Path, value: str) -> None:
        """Write a control file that is there; a cgroup that is gone is not made again as a plain file."""
        descriptor = os.open(file, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)

    def pids(self, directory: Path) -> list[int]:
        """The processes of a cgroup, without those of its children."""
        return [int(pid) for pid in self.read(directory / "cgroup.procs").split()]

    def is_delegated(self, directory: Path) -> bool:
        """True when systemd or a container's runtime handed the cgroup over to the account that runs in it."""
        for name in ("user.delegate", "trusted.delegate"):
            with suppress(OSError):  # not there, or `trusted` and we are not root
                if os.getxattr(directory, name) == b"1":
                    return True
        return False

    def of_process(self, pid: int) -> dict[str, Path]:
        """The cgroups of a process, by controller, as far as they are seen from here."""
        return own_cgroups(process=Path(f"/proc/{pid}"))

    def move(self, pid: int, directory: Path) -> None:
        """Put a process, with all its threads, into a cgroup. One that has just ended is no error."""
        with suppress(ProcessLookupError):
            self.write(directory / "cgroup.procs", str(pid))

    def move_all(self, source: Path, target: Path) -> None:
        """Move every process out of `source`; those that fork meanwhile are seen on the next look."""
        for _ in range(_REMOVAL_TRIES):
            pids = self.pids(source)
            if not pids:
                return
            for pid in pids:
                self.move(pid, target)

    def empty_and_remove(self, directory: Path, refuge: Path) -> None:
        """Move the processes of a cgroup to `refuge` and remove it.

        EBUSY lasts a few milliseconds when a process of it was just killed and has not ended yet: try on for
        up to a second.
        """
        for attempt in range(_REMOVAL_TRIES):
            self.move_all(directory, refuge)
            try:
                self.remove(directory)
            except OSError as error:
                if error.errno != errno.EBUSY or attempt == _REMOVAL_TRIES - 1:
                    raise
                time.sleep(_REMOVAL_PAUSE_SECONDS)
            else:
                return


def manages(directory: Path) -> bool:
    """True for the cgroup of a job of some run, and those below it.

    No unit of systemd, such as `slopewise-up.service`, is a run: only their names have a dot.
    """
    pairs = pairwise(directory.parts)
    return any(over.startswith(RUN_PREFIX) and "." not in over and name != ASIDE for over, name in pairs)


def is_run(directory: Path) -> bool:
    """True for a cgroup that a run of ours made: the only ones that may be removed."""
    return directory.name.startswith(RUN_PREFIX) and (directory / "cgroup.procs").is_file()


def remove_run(files: CgroupFiles, run: Path, enabled: Iterable[str] = ()) -> None:
    """Remove a run's cgroup with all its jobs; what still runs moves to the cgroup above, without limits.

    `enabled`: the controllers that this run switched on in the cgroup above (v2 only). They are switched off
    first, since a cgroup of v2 that hands controllers down cannot take processes in.
    """
    for controller in enabled:
        files.write(run / "cgroup.subtree_control", f"-{controller}")
    for controller in enabled:
        with suppress(OSError):  # another run beside this one uses it too (EBUSY): it stays switched on
            files.write(run.parent / "cgroup.subtree_control", f"-{controller}")
    for job in [entry for entry in run.iterdir() if entry.is_dir()]:
        files.empty_and_remove(job, run.parent)
    files.empty_and_remove(run, run.parent)


def own_cgroups(proc_self: Path = PROC_SELF, process: Path | None = None) -> dict[str, Path]:
    """The directory of our own cgroup for each controller of v1 that is mounted, and for `UNIFIED` (v2).

    `process`: that of another one (`/proc/PID`), as far as it is seen from here.
    """
    mounts = _mounts(proc_self / "mountinfo")
    found = {}
    for line in ((process or proc_self) / "cgroup").read_text(encoding="utf-8").splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            directory = _directory(path, mounts.get(name, []))
            if directory is not None:
                found[name] = directory
    return found


def _mounts(mountinfo: Path) -> dict[str, list[tuple[str, Path]]]:
    """Per controller: (the part of the hierarchy that is mounted, where it is mounted)."""
    mounts: dict[str, list[tuple[str, Path]]] = {}
    for line in mountinfo.read_text(encoding="utf-8").splitlines():
        place, _, kind = line.partition(" - ")
        root, point = place.split()[3:5]
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point)  # a space is \040
        filesystem, _, options = kind.split(" ", 2)
        names = {"cgroup": options.split(","), "cgroup2": [UNIFIED]}.get(filesystem, [])
        for name in names:
            mounts.setdefault(name, []).append((root, Path(point)))
    return mounts


def _directory(path: str, mounts: list[tuple[str, Path]]) -> Path | None:
    """`path` as seen through the first mount that shows it: /docker/ab of a mount of /docker is its ab."""
    for root, point in mounts:
        if Path(path).is_relative_to(root) and ".." not in Path(path).parts:
            return point / Path(path).relative_to(root)
    return None
