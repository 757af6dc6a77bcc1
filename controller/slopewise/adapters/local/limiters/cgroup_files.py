"""Makes, reads, writes and removes cgroups, and moves processes between them.

The journal removes the cgroups of a killed controller with the same `remove_run` as the limiters.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

RUN_PREFIX = "slopewise-"
"""Every cgroup and every temporary folder of ours starts so; nothing else is ever removed."""

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
        return any(_attribute(directory, name) == b"1" for name in ("user.delegate", "trusted.delegate"))

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


def _attribute(path: Path, name: str) -> bytes | None:
    try:
        return os.getxattr(path, name)
    except OSError:  # not there, or `trusted` and we are not root
        return None


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
