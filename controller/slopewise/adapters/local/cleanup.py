"""The entries of a crash journal, and how the process, cgroup, folder or file of each is cleaned up.

Only what provably belongs to a run of Slopewise is touched. Cleaning up is idempotent.
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

from slopewise.adapters.local.limiters.cgroup_files import RUN_PREFIX, CgroupFiles, is_run, remove_run
from slopewise.adapters.local.limiters.identity import ProcessIdentity
from slopewise.adapters.local.limiters.process_group import group_members, running

RUN_VARIABLE = "SLOPEWISE_RUN_ID"
"""Environment variable of every process that a run starts; its children inherit it."""

GROUP_VARIABLE = "SLOPEWISE_GROUP"
"""Environment variable with the process group in which a process was started, also after it left the group."""

_MOVE_ROUNDS = 100
_KILL_TRIES = 100
_KILL_PAUSE_SECONDS = 0.02
_STARTING_TRIES = 50
_STARTING_PAUSE_SECONDS = 0.01


class StartedCommand(BaseModel):
    """The command, folder and port of a user's job, by which a later controller recognises and continues it."""

    arguments: tuple[str, ...]
    working_directory: Path | None
    log_path: Path
    port: int
    """The port of its metrics."""
    arrived_at_seconds: float
    started_at_seconds: float
    """Unix seconds."""
    submission: int = 0
    attempt: int = 0
    """Which job of this name it is, and how often it was started again (`jobs_file.Queueing`)."""


class StartedProcess(BaseModel):
    """A process group that the run started.

    `ours`: it ends with the run; otherwise it is the user's and keeps running.
    """

    kind: Literal["process"] = "process"
    name: str
    pid: int
    started_ticks: int
    boot_id: str
    ours: bool
    command: StartedCommand | None = None
    """Of a user's job."""
    mark: str | None = None
    """The earlier run whose mark it carries, when it was taken over from that run."""

    def __str__(self) -> str:
        return f"{self.name!r} (process group {self.pid})"

    def clean_up(self, run_id: str) -> str | None:
        """End the group, or let it run on; returns a message, or None when nothing was left."""
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

        While the leader exists, the group's number is its own. Afterwards the number may belong to another program,
        so only processes with the run's mark count.
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


class _Fact(BaseModel):
    """An entry that the next run reads; there is nothing to clean up."""

    def clean_up(self, run_id: str) -> str | None:
        """Nothing."""
        return None


class EndedJob(_Fact):
    """A user's job whose end was observed; no controller starts it again by itself."""

    kind: Literal["ended"] = "ended"
    name: str
    boot_id: str
    status: int | None
    """None: not known."""
    at_seconds: float
    arrived_at_seconds: float
    cpu_seconds: float | None
    stopped_at_target: str = ""
    """Why it was stopped at its target; empty: it was not."""


class RunOf(_Fact):
    """The identity of a run's jobs, by which the same command finds them after a crash."""

    kind: Literal["run"] = "run"
    jobs: str
    """The jobs file as an absolute path, or a digest of what came on standard input."""
    started_at_seconds: float
    memory: Path | None = None
    """The file of the run's Memory."""


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


class MovedProcess(BaseModel):
    """One process, and the cgroups that it came from: one for each hierarchy."""

    pid: int
    started_ticks: int
    cgroups: tuple[Path, ...]


class MovedProcesses(BaseModel):
    """The processes of an attached job, which were moved into cgroups of the run; the first is that which was named."""

    kind: Literal["moved"] = "moved"
    name: str
    directories: tuple[Path, ...]
    """Of the run: one for each hierarchy."""
    processes: tuple[MovedProcess, ...]

    def __str__(self) -> str:
        return f"{self.name!r} (process {self.processes[0].pid})"

    def clean_up(self, run_id: str) -> str | None:
        """Put them back before the cgroup is removed; returns a message, or None when none was left there."""
        ours = all(directory.parent.name == f"{RUN_PREFIX}{run_id}" for directory in self.directories)
        return f"put {self} back into its cgroup" if ours and self.put_back(CgroupFiles()) else None

    def put_back(self, files: CgroupFiles) -> bool:
        """Move all to where they came from; True when there were any.

        One that was started since goes where its parent came from. What cannot go there, because the cgroup is gone,
        stays for the removal of the run's.
        """
        known = {
            each.pid: each for each in self.processes if ProcessIdentity(each.pid, each.started_ticks).exists
        }  # fmt: skip
        tried: set[tuple[Path, int]] = set()
        for place, directory in enumerate(self.directories):
            for _ in range(_MOVE_ROUNDS):
                pids = files.pids(directory) if directory.is_dir() else []
                left = [pid for pid in pids if (directory, pid) not in tried]
                for pid in left:
                    tried.add((directory, pid))
                    with suppress(OSError):
                        files.move(pid, self._origin(pid, known).cgroups[place])
                if not left:
                    break
        return bool(tried)

    def _origin(self, pid: int, known: Mapping[int, MovedProcess]) -> MovedProcess:
        """Of a process: its own, else that of the nearest one above it, else that of the first."""
        with suppress(psutil.Error):
            while pid not in known and pid > 1:
                pid = psutil.Process(pid).ppid()
        return known.get(pid, self.processes[0])


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
    """A file outside the run's folders that names the run, such as the targets file of a user's Prometheus."""

    kind: Literal["file"] = "file"
    path: Path

    def __str__(self) -> str:
        return f"the file {self.path}"

    def clean_up(self, run_id: str) -> str | None:
        """Remove it if it still belongs to this run; a later run may have replaced it."""
        try:
            ours = run_id in self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        if not ours:
            return None
        self.path.unlink(missing_ok=True)
        return f"removed {self}"


JournalEntry = StartedProcess | MovedProcesses | MadeCgroup | MadeFolder | MadeFile | EndedJob | RunOf
JOURNAL_ENTRY: TypeAdapter[JournalEntry] = TypeAdapter(Annotated[JournalEntry, Field(discriminator="kind")])
ORDER = (StartedProcess, MovedProcesses, MadeCgroup, MadeFolder, MadeFile, EndedJob, RunOf)
"""Processes come first because they keep cgroups busy and write into folders; the moved go before their cgroups do."""


def current_boot_id() -> str:
    """An id that changes with every start of the machine, because pids and start times restart then."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def started_in_group(run_id: str, group: int) -> list[int]:
    """The processes that come from this run's process group, those that have left it (`setsid`) included."""
    marks = {RUN_VARIABLE: run_id, GROUP_VARIABLE: str(group)}
    return [pid for pid in psutil.pids() if _carries(pid, marks)]


def _carries(pid: int, marks: Mapping[str, str]) -> bool:
    try:
        return marks.items() <= _environment(psutil.Process(pid)).items()
    except psutil.Error:
        return False


def _environment(process: psutil.Process) -> Mapping[str, str]:
    """The environment of a process, also where the kernel is still starting its program.

    Linux closes the files of the old program, by which the parent knows that the start succeeded, before it shows
    the environment of the new one: on a busy machine a third of all reads right after `Popen` were empty.
    """
    for _ in range(_STARTING_TRIES):
        environment = process.environ()
        if environment or not process.exe():  # A kernel thread has no program.
            return environment
        time.sleep(_STARTING_PAUSE_SECONDS)
    return {}
