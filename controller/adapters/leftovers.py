"""What a run may leave behind, and how each kind is cleaned up. Only ever what is provably ours is touched.

Before it: the lines of a journal, validated. After it: `journal.py`, which cleans them up in the order of
`ORDER` and tells what was done. Cleaning up twice is the same as once.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import psutil
from pydantic import BaseModel, Field, TypeAdapter

from controller.adapters.limiters.cgroup_files import RUN_PREFIX, CgroupFiles, is_run, remove_run
from controller.adapters.limiters.identity import ProcessIdentity
from controller.adapters.limiters.process_group import group_members, running

RUN_VARIABLE = "SLOPEWISE_RUN_ID"
"""Environment variable that every process we start carries, and its children inherit."""

GROUP_VARIABLE = "SLOPEWISE_GROUP"
"""Environment variable that tells of a process, wherever it went, in which group it was started."""

_KILL_TRIES = 100
_KILL_PAUSE_SECONDS = 0.02


class StartedCommand(BaseModel):
    """What a user's job was started with: enough to know it again, and to go on with it."""

    arguments: tuple[str, ...]
    working_directory: Path | None
    log_path: Path
    port: int
    """Where it serves its metrics."""
    arrived_at_seconds: float
    started_at_seconds: float
    """Unix seconds."""


class StartedProcess(BaseModel):
    """A process group that we started. `ours`: ended with the run; otherwise it is the user's, and runs on."""

    kind: Literal["process"] = "process"
    name: str
    pid: int
    started_ticks: int
    boot_id: str
    ours: bool
    command: StartedCommand | None = None
    """Of a user's job."""
    mark: str | None = None
    """The run whose mark it carries, where that is an earlier one, from which it was taken over."""

    def __str__(self) -> str:
        return f"{self.name!r} (process group {self.pid})"

    def clean_up(self, run_id: str) -> str | None:
        """End the group, or let it run on; tells what was done, None when nothing was left."""
        if not self.members(run_id):
            return None
        if self.ours:
            self._kill(run_id)
            return f"ended {self}"
        self._signal(run_id, signal.SIGCONT)
        return f"let {self} run on without limits"

    @property
    def leader_runs(self) -> bool:
        """True while the process itself runs, whatever has become of what it started."""
        same = self.boot_id == current_boot_id() and ProcessIdentity(self.pid, self.started_ticks).exists
        return same and bool(running([self.pid]))

    def members(self, run_id: str) -> list[int]:
        """The group's running processes.

        While the leader exists, the number of the group is its own. After that only those count that carry
        the run's mark: the number may belong to a stranger by now.
        """
        if self.boot_id != current_boot_id():
            return []
        members = running(group_members(self.pid))
        if ProcessIdentity(self.pid, self.started_ticks).exists:
            return members
        return [pid for pid in members if _carries(pid, {RUN_VARIABLE: self.mark or run_id})]

    def _kill(self, run_id: str) -> None:
        for _ in range(_KILL_TRIES):
            if not self._signal(run_id, signal.SIGKILL):
                return
            time.sleep(_KILL_PAUSE_SECONDS)
        raise TimeoutError(f"{self} does not end")

    def _signal(self, run_id: str, number: int) -> bool:
        members = self.members(run_id)
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return bool(members)


class EndedJob(BaseModel):
    """A user's job that ended while its controller looked: it is over, and never started again by itself."""

    kind: Literal["ended"] = "ended"
    name: str
    boot_id: str
    status: int | None
    """None: not known."""
    at_seconds: float
    arrived_at_seconds: float
    cpu_seconds: float | None

    def clean_up(self, run_id: str) -> str | None:
        """Nothing is left of it."""
        return None


class RunOf(BaseModel):
    """Which jobs a run is of, so that the same command knows after a crash that it is the same."""

    kind: Literal["run"] = "run"
    jobs: str
    """The jobs file as an absolute path, or a digest of what came on standard input."""
    started_at_seconds: float
    memory: Path | None = None
    """Where the run keeps what is remembered between passes."""

    def clean_up(self, run_id: str) -> str | None:
        """Nothing is left of it."""
        return None


class MadeCgroup(BaseModel):
    """A run's cgroup; `enabled`: the controllers that the run switched on in the cgroup above (v2)."""

    kind: Literal["cgroup"] = "cgroup"
    path: Path
    enabled: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"the cgroup {self.path}"

    def clean_up(self, run_id: str) -> str | None:
        """Lift the limits by moving what still runs to the cgroup above, and remove it with all its jobs."""
        if self.path.name != f"{RUN_PREFIX}{run_id}" or not is_run(self.path):
            return None
        remove_run(CgroupFiles(), self.path, self.enabled)
        return f"removed {self}"


class MadeFolder(BaseModel):
    """A temporary folder."""

    kind: Literal["folder"] = "folder"
    path: Path

    def __str__(self) -> str:
        return f"the folder {self.path}"

    def clean_up(self, run_id: str) -> str | None:
        """Remove it with all that is in it."""
        ours = self.path.name.startswith(RUN_PREFIX) and run_id in self.path.name
        if not ours or self.path.is_symlink() or not self.path.is_dir():
            return None
        shutil.rmtree(self.path)
        return f"removed {self}"


class MadeFile(BaseModel):
    """A file outside our folders that names this run, such as what a user's Prometheus is to scrape."""

    kind: Literal["file"] = "file"
    path: Path

    def __str__(self) -> str:
        return f"the file {self.path}"

    def clean_up(self, run_id: str) -> str | None:
        """Remove it while it is this run's; a later run may have written it anew."""
        try:
            ours = run_id in self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        if not ours:
            return None
        self.path.unlink(missing_ok=True)
        return f"removed {self}"


Leftover = StartedProcess | MadeCgroup | MadeFolder | MadeFile | EndedJob | RunOf
LEFTOVER: TypeAdapter[Leftover] = TypeAdapter(Annotated[Leftover, Field(discriminator="kind")])
ORDER = (StartedProcess, MadeCgroup, MadeFolder, MadeFile, EndedJob, RunOf)
"""Processes first: they hold cgroups busy, and write into folders."""


def current_boot_id() -> str:
    """Changes with every start of the machine, after which pids and start times begin anew."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def started_in_group(run_id: str, group: int) -> list[int]:
    """The processes that come from this run's process group, those that have left it (`setsid`) included."""
    marks = {RUN_VARIABLE: run_id, GROUP_VARIABLE: str(group)}
    return [pid for pid in psutil.pids() if _carries(pid, marks)]


def _carries(pid: int, marks: Mapping[str, str]) -> bool:
    try:
        return marks.items() <= psutil.Process(pid).environ().items()
    except psutil.Error:
        return False
