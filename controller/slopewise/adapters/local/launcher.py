"""Starts and ends commands on this machine: trainings, and the Prometheus that scrapes them.

A command starts behind a gate: a shell that waits for one line and then becomes the command. Meanwhile the journal
records the process and the limiter puts it into its cgroup, so no instruction of the command runs unrecorded or
unlimited. If the controller is killed before it writes the line, the shell reads the end of the file and exits.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from slopewise.adapters.local.cleanup import (
    GROUP_VARIABLE,
    RUN_VARIABLE,
    StartedCommand,
    StartedProcess,
    started_in_group,
)
from slopewise.adapters.local.crash_journal import Journal
from slopewise.adapters.local.limiters.process_group import process_groups, running
from slopewise.errors import SlopewiseError, UsageError

Members = Callable[[], Sequence[int]]
"""Returns a command's processes, including those that left its group, e.g. `partial(limiter.members, job_uid)`."""

_GATE = f'read -r line || exit 125; export {GROUP_VARIABLE}=$$; exec "$@" </dev/null'
_POLL_SECONDS = 0.02
_KILL_SECONDS = 5.0
_COLLECT_SECONDS = 0.5
_TAIL_BYTES = 65_536
_BLOCK_BYTES = 1024 * 1024

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
)


def single_thread_environment() -> dict[str, str]:
    """Environment variables that hold the usual numerical libraries to one thread."""
    return dict.fromkeys(_THREAD_VARIABLES, "1")


@dataclass(frozen=True, slots=True)
class Command:
    """A command to start. `environment` is added to the controller's own, or is all with `whole_environment`.

    `ours=False`: it is the user's, and keeps running without limits when the controller is killed.
    """

    name: str
    arguments: Sequence[str]
    log_path: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    whole_environment: bool = False
    working_directory: Path | None = None
    ours: bool = True
    started_by: Sequence[str] = ()
    """A program with its arguments that starts the command, and then is it or its parent."""
    remembered: StartedCommand | None = None
    """What the journal records of a user's job, for the next controller after a crash."""


class Launcher:
    """Starts commands as leaders of sessions of their own, so that only the controller receives a Ctrl-C."""

    def __init__(self, journal: Journal) -> None:
        """`journal` records every process before the process does anything."""
        self._journal = journal

    @staticmethod
    def check(command: Command) -> None:
        """UsageError when there is no such command or folder; call it before the first of many is started."""
        folder = _folder(command)
        _find(command, folder, _environment(command).get("PATH"))

    def start(
        self, command: Command, admit: Callable[[int], None] | None = None, members: Members = tuple
    ) -> ManagedProcess:
        """Start a command; `admit` gets its pid before it runs, e.g. `partial(limiter.admit, job_uid)`.

        The processes that `members` returns end with the command. UsageError when there is no such command or
        folder. If `admit` raises, the command never runs.
        """
        before = ["/bin/sh", "-c", _GATE, "slopewise-gate", *command.started_by]
        popen = _popen(command, before, subprocess.PIPE, {RUN_VARIABLE: self._journal.run_id})
        process, gate = ManagedProcess(command.name, popen, command.log_path, members), popen.stdin
        assert gate is not None  # noqa: S101  it is a pipe
        try:
            self._journal.record_process(command.name, process.pid, ours=command.ours, command=command.remembered)
            if admit is not None:
                admit(process.pid)
            with suppress(BrokenPipeError):  # ended already: `poll` returns how
                gate.write(b"\n")
                gate.flush()
        except BaseException:
            process.terminate(grace_seconds=0.0)
            raise
        finally:
            with suppress(BrokenPipeError):
                gate.close()
        return process


def start_unrecorded(command: Command) -> ManagedProcess:
    """Start a command without a journal entry; it outlives a killed caller. UsageError as from `Launcher.start`."""
    return ManagedProcess(command.name, _popen(command, [], subprocess.DEVNULL, {}), command.log_path)


class ManagedProcess:
    """A command that was started, with all the processes of its group.

    A command that has ended stays a zombie until `terminate`, which every start needs. Until then its pid is in use,
    so no signal to its group reaches another program, and its last CPU time can be read.
    """

    status_is_known = True
    """Whether `poll` returns the exit status."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], log_path: Path, members: Members = tuple) -> None:
        """Use `Launcher.start`. `popen`: the leader of a session of its own."""
        self.name = name
        self.log_path = log_path
        self.members = members
        self._popen = popen
        self.pid = popen.pid
        """The command's, which is the number of its process group too."""

    def has_ended(self) -> bool:
        """True once the command itself has ended, whatever has become of what it started."""
        return self.poll() is not None

    def poll(self) -> int | None:
        """The exit status (negative: the signal that ended it); None while it runs."""
        if self._popen.returncode is not None:
            return self._popen.returncode
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # collected by another thread just now
            return self._popen.poll()
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def terminate(self, grace_seconds: float = 5.0) -> int | None:
        """End the group and its `members` with SIGTERM, then SIGKILL; returns the command's exit status.

        A stopped group is continued, because it could not handle SIGTERM. Lift the limit of a job first.
        """
        terminate_all([self], grace_seconds)
        return self.poll()

    def kill(self) -> int | None:
        """Send SIGKILL to all of them; returns the command's exit status."""
        _kill_all([self])
        return self.poll()

    def ask_to_end(self) -> None:
        """Send SIGTERM to the command only, which may need its helpers (e.g. data loaders) to save; returns at once.

        A stopped group is continued, because it could not handle SIGTERM.
        """
        if not self.is_collected and not self.has_ended():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        self.signal(signal.SIGCONT)

    def is_over(self) -> bool:
        """True once the command, its group and its `members` have all ended."""
        return not _any_runs([self])

    @property
    def is_collected(self) -> bool:
        """True once it was terminated; its pid may belong to another program since."""
        return self._popen.returncode is not None

    def signal(self, number: int) -> None:
        """Signal the group, and the members that left it."""
        if self.is_collected:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)
        for pid in self.members():
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) != self.pid:
                    os.kill(pid, number)

    def running_members(self, groups: Mapping[int, Sequence[int]]) -> list[int]:
        """The running processes of its group, from one listing of all groups; without those that left it."""
        return running(groups.get(self.pid, ()))

    def collect(self) -> None:
        """Release the pid of a command that has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(_COLLECT_SECONDS)

    def lines_written(self) -> int:
        """The lines of the command's output; 1 GB of it is counted in 0.3 s."""
        with suppress(OSError), self.log_path.open("rb") as log:
            return sum(block.count(b"\n") for block in iter(lambda: log.read(_BLOCK_BYTES), b""))
        return 0

    def tail(self, lines: int = 10) -> str:
        """The last lines of the command's output, for a message about its end."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


class ForeignProcess(ManagedProcess):
    """One that is not a child of this process, so that its exit status is unknown."""

    status_is_known = False

    def __init__(self, name: str, pid: int, log_path: Path, members: Members = tuple) -> None:
        self.name = name
        self.pid = pid
        self.log_path = log_path
        self.members = members
        self._collected = False

    def poll(self) -> int | None:
        """None: the exit status is unknown."""
        return None

    @property
    def is_collected(self) -> bool:
        """True once it was terminated; no signal is sent any more."""
        return self._collected

    def collect(self) -> None:
        """The parent does."""
        self._collected = True


class AdoptedProcess(ForeignProcess):
    """A command that a killed controller had started.

    Its pid can be reused once it has ended, so every signal first checks the mark of the processes.
    """

    def __init__(self, started: StartedProcess, mark: str, log_path: Path, members: Members = tuple) -> None:
        """`mark`: the run whose mark its processes carry; `members`: its processes in the limiter.

        Besides those, the processes with the marks of its group belong to it.
        """
        pid = started.pid
        super().__init__(started.name, pid, log_path, lambda: [*members(), *started_in_group(mark, pid)])
        self._started = started
        self._mark = mark

    def has_ended(self) -> bool:
        """True once the command itself has ended, also as a zombie where orphans are not collected."""
        return not self._started.leader_runs

    def signal(self, number: int) -> None:
        """Signal the processes that provably belong to it."""
        for pid in {*self._started.members(self._mark), *self.members()}:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def running_members(self, groups: Mapping[int, Sequence[int]]) -> list[int]:
        """The running processes of its group; none of another program whose group has the same number."""
        return self._started.members(self._mark)


def terminate_all(processes: Iterable[ManagedProcess], grace_seconds: float = 5.0) -> None:
    """End many commands like `terminate`, all within one grace: 100 that ignore SIGTERM take 5 s, not 500 s."""
    left = [process for process in processes if not process.is_collected]
    for number in (signal.SIGTERM, signal.SIGCONT):
        for process in left:
            process.signal(number)
    if _all_end_within(left, grace_seconds):
        _collect(left)
    else:
        _kill_all(left)


def _kill_all(processes: Sequence[ManagedProcess]) -> None:
    for process in processes:
        process.signal(signal.SIGKILL)
    _all_end_within(processes, _KILL_SECONDS)
    _collect(processes)


def _collect(processes: Iterable[ManagedProcess]) -> None:
    for process in processes:
        process.collect()


def _all_end_within(processes: Sequence[ManagedProcess], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while _any_runs(processes):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _any_runs(processes: Sequence[ManagedProcess]) -> bool:
    """List all groups once for all commands, and the costlier members only when the groups have ended."""
    groups = process_groups()
    left = [process for process in processes if not process.is_collected]
    return any(process.running_members(groups) for process in left) or any(
        running(process.members()) for process in left
    )


def _popen(command: Command, before: Sequence[str], stdin: int, marks: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a command with the arguments `before` in front of it."""
    environment = {**_environment(command), **marks}
    folder = _folder(command)
    program = _find(command, folder, environment.get("PATH"))
    with _open_log(command) as log:
        return subprocess.Popen(
            [*before, program, *command.arguments[1:]],
            stdin=stdin,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )


def _environment(command: Command) -> dict[str, str]:
    return {**({} if command.whole_environment else os.environ), **command.environment}


def _folder(command: Command) -> Path:
    folder = command.working_directory or Path.cwd()
    if not folder.is_dir():
        raise UsageError(f"{command.name}: its working directory {folder} does not exist; make it.")
    return folder


def _find(command: Command, folder: Path, path: str | None) -> str:
    """The program as the shell would find it, so that a typing error is reported before anything starts."""
    if not command.arguments:
        raise UsageError(f"{command.name}: its command is empty; give a program and its arguments.")
    name = command.arguments[0]
    found = shutil.which(folder / name if "/" in name else name, path=path)
    if found is None:
        where = f"in {folder}" if "/" in name else "on the PATH"
        raise UsageError(
            f"{command.name}: its command {name!r} is not an executable file {where}; "
            "correct it, install it or make it executable."
        )
    return str(found)


def _open_log(command: Command) -> IO[bytes]:
    try:
        return command.log_path.open("ab")
    except OSError as error:
        raise SlopewiseError(
            f"{command.name}: its log {command.log_path} cannot be written ({error.strerror}); "
            "make room, or give another place."
        ) from error
