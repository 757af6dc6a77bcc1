"""Starts, records and signals the processes of the cluster.

A process outlives the command that started it. `state.json` records it with its start time, so that no signal
reaches another process that got the same pid later.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil
from pydantic import BaseModel, Field

from slopewise.adapters.local.limiters.identity import ProcessIdentity, identify
from slopewise.errors import SlopewiseError

Life = Literal["running", "stopped", "dead"]
_POLL_SECONDS = 0.02
_TERMINATE_SECONDS = 5.0
_KILL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Program:
    """What to start. `environment` is all it gets beside PATH and HOME: no proxies, no tokens of ours."""

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


class Component(BaseModel):
    """A process of the cluster as recorded in `state.json`, by which it is found and started again."""

    name: str
    pid: int
    started_ticks: int
    arguments: tuple[str, ...]
    environment: dict[str, str]

    @property
    def identity(self) -> ProcessIdentity:
        """The process, never another one with its pid."""
        return ProcessIdentity(self.pid, self.started_ticks)

    @property
    def program(self) -> Program:
        """What to start to have it again."""
        return Program(self.name, self.arguments, self.environment)

    def life(self) -> Life:
        """Running, stopped by a signal, or dead. A zombie is dead."""
        if not self.identity.exists:
            return "dead"
        try:
            status = psutil.Process(self.pid).status()
        except psutil.NoSuchProcess:
            return "dead"
        if status == psutil.STATUS_ZOMBIE:
            return "dead"
        return "stopped" if status == psutil.STATUS_STOPPED else "running"


def signal_process(identity: ProcessIdentity, number: int) -> bool:
    """Signal this very process; False when it has exited. A pidfd keeps its pid between the check and the signal."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return False
    try:
        if not identity.exists:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


class State(BaseModel):
    """All that is known of a test-bed. Written before anything is changed, so that a killed `up` can be undone."""

    kubernetes_version: str
    boot_id: str
    ctr: str
    complete: bool = False
    sysctls: dict[str, str] = Field(default_factory=dict)
    absent_paths: list[str] = Field(default_factory=list)
    components: dict[str, Component] = Field(default_factory=dict)


def boot_id() -> str:
    """The id of this start of the machine: after another one no recorded process exists."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Processes:
    """Starts and signals the components of one test-bed, and keeps its state file up to date."""

    def __init__(self, folder: Path, state: State) -> None:
        """`folder` holds the state and the logs."""
        self._folder = folder
        self.state = state

    @classmethod
    def load(cls, folder: Path) -> Processes | None:
        """The test-bed of this folder; None when there is none. SlopewiseError when its state cannot be read."""
        path = _state_path(folder)
        try:
            state = State.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise SlopewiseError(
                f"{path}: not a state of this version; end its processes by hand and remove it."
            ) from error
        if state.boot_id != boot_id():
            state.components.clear()
        return cls(folder, state)

    def save(self) -> None:
        """Write the state so that a reader finds the old one or the new one, never half of it."""
        path = _state_path(self._folder)
        draft = path.with_suffix(".draft")
        draft.write_text(self.state.model_dump_json(indent=1), encoding="utf-8")
        draft.rename(path)

    def log(self, name: str) -> Path:
        """What the component prints, appended to over its restarts."""
        return self._folder / "logs" / f"{name}.log"

    def start(self, program: Program) -> Component:
        """Start a component as the leader of a session of its own: a Ctrl-C in the terminal is not for it."""
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self._folder), **program.environment}
        log = self.log(program.name)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            popen = subprocess.Popen(
                program.arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env=environment, cwd=self._folder, start_new_session=True,
            )  # fmt: skip
        identity = identify(popen.pid)
        with warnings.catch_warnings():  # that it runs on is what is wanted
            warnings.simplefilter("ignore", ResourceWarning)
            del popen
        component = Component(
            name=program.name, pid=identity.pid, started_ticks=identity.started_ticks,
            arguments=program.arguments, environment=dict(program.environment),
        )  # fmt: skip
        self.state.components[program.name] = component
        self.save()
        return component

    def signal(self, name: str, number: int) -> bool:
        """Signal one component; False when it is dead."""
        component = self.state.components[name]
        return component.life() != "dead" and signal_process(component.identity, number)

    def end(self, names: Iterable[str], *, at_once: bool = False) -> None:
        """End components: politely for 5 s, or with SIGKILL as a crash would. All within one grace."""
        left = [name for name in names if self.state.components[name].life() != "dead"]
        if not at_once:
            for name in left:
                self.signal(name, signal.SIGTERM)
                self.signal(name, signal.SIGCONT)
            left = self._alive_after(left, _TERMINATE_SECONDS)
        for name in left:
            self.signal(name, signal.SIGKILL)
        if stubborn := self._alive_after(left, _KILL_SECONDS):
            raise SlopewiseError(f"{', '.join(stubborn)}: still there after SIGKILL; look at them with ps.")

    def tail(self, name: str, lines: int = 5) -> str:
        """The last lines of a component's log, for a message that says why it ended."""
        with suppress(OSError):
            return "\n".join(self.log(name).read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
        return ""

    def _alive_after(self, names: list[str], seconds: float) -> list[str]:
        deadline = time.monotonic() + seconds
        while True:
            alive = [name for name in names if self.state.components[name].life() != "dead"]
            if not alive or time.monotonic() >= deadline:
                return alive
            time.sleep(_POLL_SECONDS)


def _state_path(folder: Path) -> Path:
    return folder / "state.json"
