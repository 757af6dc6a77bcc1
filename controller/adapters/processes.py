"""Starting and ending commands on this machine: trainings, and the Prometheus that watches them.

Before it: a list of jobs. After it: a limiter, which admits each command before it does any work.

A command is started behind a gate: a shell that waits for one line and then becomes the command. In between
the journal learns of it and the limiter puts it into its cgroup, so that not one instruction of it runs
unlimited or unrecorded. When we are killed before the line is written, the shell reads the end of the file
and exits.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from controller.adapters.journal import Journal
from controller.adapters.leftovers import RUN_VARIABLE
from controller.adapters.limiters.process_group import group_members, running
from controller.errors import SlopewiseError, UsageError

_GATE = 'read -r line || exit 125; exec "$@" </dev/null'
_LOOK_SECONDS = 0.02
_KILL_SECONDS = 5.0

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
    """A command to start. `environment` is added to our own.

    `ours=False`: it is the user's, and runs on, without limits, when we are killed.
    """

    name: str
    arguments: Sequence[str]
    log_path: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: Path | None = None
    ours: bool = True


class Launcher:
    """Starts commands as leaders of sessions of their own, so that a Ctrl-C in the terminal is ours alone."""

    def __init__(self, journal: Journal) -> None:
        """`journal`: learns of every process before it does anything."""
        self._journal = journal

    def start(self, command: Command, admit: Callable[[int], None] | None = None) -> ManagedProcess:
        """Start a command; `admit` gets its pid before it runs, e.g. `partial(limiter.admit, job_uid)`.

        UsageError when there is no such command or folder. Whatever `admit` raises ends the command unstarted.
        """
        gated = self._start_gate(command)
        try:
            self._journal.record_process(command.name, gated.pid, ours=command.ours)
            if admit is not None:
                admit(gated.pid)
            gated.communicate_line()
        except BaseException:
            gated.terminate(grace_seconds=0.0)
            raise
        return gated

    def _start_gate(self, command: Command) -> ManagedProcess:
        environment = {**os.environ, **command.environment, RUN_VARIABLE: self._journal.run_id}
        folder = command.working_directory or Path.cwd()
        if not folder.is_dir():
            raise UsageError(f"{command.name}: its working directory {folder} is no folder; make it or change it.")
        program = _find(command, folder, environment.get("PATH"))
        try:
            log = command.log_path.open("ab")
        except OSError as error:
            raise SlopewiseError(
                f"{command.name}: its log {command.log_path} cannot be written ({error.strerror}); make room there."
            ) from error
        with log:
            popen = subprocess.Popen(
                ["/bin/sh", "-c", _GATE, "slopewise-gate", program, *command.arguments[1:]],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        return ManagedProcess(command.name, popen, command.log_path)


class ManagedProcess:
    """A command that was started, with all the processes of its group.

    An ended command stays a zombie until `terminate` or `collect` is called. Meanwhile its pid is taken, so a
    signal to its group can never reach a stranger, and its last CPU time can still be read.
    """

    def __init__(self, name: str, popen: subprocess.Popen[bytes], log_path: Path) -> None:
        """Use `Launcher.start`."""
        self.name = name
        self.log_path = log_path
        self._popen = popen

    @property
    def pid(self) -> int:
        """The command's pid, which is also the number of its process group."""
        return self._popen.pid

    def communicate_line(self) -> None:
        """Open the gate."""
        assert self._popen.stdin is not None  # noqa: S101  it was opened as a pipe
        with suppress(BrokenPipeError):
            self._popen.stdin.write(b"\n")
            self._popen.stdin.close()
