"""What a run makes outside itself, written down before it is made, so that nothing outlives a killed controller.

Before it: `Journal.open` at the start of a run; limiters, the launcher and whoever needs a temporary folder
write into it. After it: `close` at the end of the run, or `clean_up_after_killed` at the next start. Both do
the same, so the way out after a crash is walked at every ordinary end too.

One file per run, `STATE_DIR/RUN@MACHINE.journal`, JSON lines, only ever appended to. Its run holds a lock on it
(flock) which the kernel lets go of when the run ends, however it ends. So a journal that can be locked is that of a
dead run; no pid has to be compared, and none can be mistaken. Home folders may be shared by the machines of a
cluster, over NFS even without locks: a machine reads its own journals only, since only it can clean up after them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from controller.adapters.leftovers import (
    LEFTOVER,
    ORDER,
    EndedJob,
    Leftover,
    MadeCgroup,
    MadeFile,
    MadeFolder,
    RunOf,
    StartedCommand,
    StartedProcess,
    current_boot_id,
)
from controller.adapters.limiters.cgroup_files import RUN_PREFIX
from controller.adapters.limiters.identity import identify
from controller.errors import SlopewiseError

_SUFFIX = ".journal"
_UNSEEN_SUFFIX = ".new"
CRASHED_SUFFIX = ".crashed"
"""Of a journal whose run was killed, once it is cleaned up after, and whose jobs the same command is to go on with."""
MEMORY_SUFFIX = ".memory"
_UNSEEN_SECONDS = 60.0
"""A journal has its final name milliseconds after it was made; one that has not after a minute never will."""


def new_run_id() -> str:
    """A name for this run, e.g. `20260514-093012-4711`: when, and which process."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def default_state_dir() -> Path:
    """Where journals are kept: `$XDG_STATE_HOME/slopewise`, or its usual places; made when missing.

    A folder that belongs to somebody else is never used: a journal says what to end and what to remove.
    """
    temporary = Path(tempfile.gettempdir()) / f"{RUN_PREFIX}{os.getuid()}"
    folders = [base / "slopewise" for base in _state_homes()] + [temporary]
    for folder in folders:
        if _is_private(folder):
            return folder
    raise SlopewiseError(f"No journal can be kept in {_or(folders)}; set XDG_STATE_HOME to a folder of your own.")


def _state_homes() -> list[Path]:
    configured = os.environ.get("XDG_STATE_HOME", "")
    homes = [Path(configured)] if Path(configured).is_absolute() else []
    if "HOME" in os.environ:
        homes.append(Path.home() / ".local" / "state")
    return homes


def _is_private(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return folder.stat().st_uid == os.getuid() and not folder.is_symlink() and os.access(folder, os.W_OK)


def _or(folders: Iterable[Path]) -> str:
    return " or ".join(str(folder) for folder in folders)


class Journal:
    """The journal of this run. `open` it; write before you make; `close` it last."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Use `open`. `descriptor`: the file, open for appending, and locked."""
        self._path = path
        self._descriptor = descriptor
        self.run_id = run_id_of(path)

    @classmethod
    def open(cls, state_dir: Path, run_id: str) -> Journal:
        """Begin the journal of a run. SlopewiseError when the folder cannot hold one."""
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", run_id):
            raise ValueError(f"run id {run_id!r}: it becomes a part of file names")
        path = journal_path(state_dir, run_id)
        unseen = path.with_suffix(_UNSEEN_SUFFIX)  # until it is locked, nobody may take it for a dead run's
        try:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(unseen, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unseen.rename(path)
        except OSError as error:
            raise SlopewiseError(
                f"{path}: the journal of this run cannot be written ({error.strerror}); "
                "make room, or set XDG_STATE_HOME to a folder on a local disk."
            ) from error
        return cls(path, descriptor)

    def record_cgroup(self, path: Path, enabled: Iterable[str] = ()) -> None:
        """Before a run's cgroup is made. `enabled`: controllers about to be switched on above it (v2)."""
        self._append(MadeCgroup(path=path, enabled=tuple(enabled)))

    def record_process(self, name: str, pid: int, *, ours: bool, command: StartedCommand | None = None) -> None:
        """Before the process that leads group `pid` does any work. `ours`: it ends with the run."""
        ticks = identify(pid).started_ticks
        boot_id = current_boot_id()
        self._append(
            StartedProcess(name=name, pid=pid, started_ticks=ticks, boot_id=boot_id, ours=ours, command=command)
        )

    def record(self, entry: StartedProcess | EndedJob | RunOf) -> None:
        """What the next start of the same jobs must know after a crash."""
        self._append(entry)

    def make_folder(self, purpose: str) -> Path:
        """A new temporary folder, `slopewise-PURPOSE-RUN-…`, that goes with the run."""
        name = f"{RUN_PREFIX}{purpose}-{self.run_id}-{secrets.token_hex(4)}"
        path = Path(tempfile.gettempdir()) / name
        self._append(MadeFolder(path=path))
        path.mkdir(mode=0o700)
        return path

    def record_file(self, path: Path) -> None:
        """Before a file that names this run is written outside our folders."""
        self._append(MadeFile(path=path.absolute()))

    def close(self) -> list[str]:
        """Clean up what is still there, and end the journal; a sentence for each thing that was left."""
        if self._descriptor < 0:
            return []
        messages = _clean_up(self._path, self.run_id, crash=False)
        os.close(self._descriptor)
        self._descriptor = -1
        return messages

    def _append(self, leftover: Leftover) -> None:
        """One write, so that a kill leaves the line whole or not at all; on a full disk half a line is taken back,
        or the next one would be glued to it.

        No fsync: after a power cut no process and no cgroup is left either.
        """
        line = leftover.model_dump_json().encode() + b"\n"
        try:
            size = os.fstat(self._descriptor).st_size
            written = os.write(self._descriptor, line)
            if written < len(line):
                os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise SlopewiseError(f"{self._path}: cannot be written ({error.strerror}); make room there.") from error
        if written < len(line):
            raise SlopewiseError(f"{self._path}: the disk is full; make room there.")


def clean_up_after_killed(state_dir: Path) -> list[str]:
    """Clean up what killed runs left, and never what a live one has; a sentence for each thing done."""
    messages = []
    for path in journals(state_dir):
        descriptor = lock_of_dead(path)
        if descriptor is not None:
            messages += _clean_up(path, run_id_of(path), crash=True)
            os.close(descriptor)
    for path in state_dir.glob(f"*@{_machine()}{_UNSEEN_SUFFIX}"):
        _remove_never_seen(path)
    return messages


def journal_path(state_dir: Path, run_id: str) -> Path:
    """Where the journal of a run on this machine is."""
    return state_dir / f"{run_id}@{_machine()}{_SUFFIX}"


def journals(state_dir: Path, suffix: str = _SUFFIX) -> list[Path]:
    """The journals of this machine, the oldest first; with another suffix what is kept of crashed runs."""
    return sorted(state_dir.glob(f"*@{_machine()}{suffix}"))


def run_id_of(path: Path) -> str:
    """The run that a journal is of."""
    return path.name.partition("@")[0]


def _machine() -> str:
    """Twelve hexadecimal digits for this machine, from its id and its name: machines that were copied share ids."""
    try:
        machine_id = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        machine_id = ""
    return hashlib.sha256(f"{machine_id} {socket.gethostname()}".encode()).hexdigest()[:12]


def _remove_never_seen(path: Path) -> None:
    """Remove what a run left that was killed while it began its journal; nothing was made by then."""
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > _UNSEEN_SECONDS:
            path.unlink()


def lock_of_dead(path: Path) -> int | None:
    """The lock on a dead run's journal; None when the run lives, or somebody else is cleaning up after it."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _clean_up(path: Path, run_id: str, *, crash: bool) -> list[str]:
    """Clean up all that a journal names. It stays, for the next try, when something could not be cleaned up.

    After a `crash` what is known of a user's jobs stays too (`crashed_runs.py`): some may run, and none is over by it.
    """
    leftovers, unreadable = read_journal(path)
    messages, failed = [], False
    crashed = crash and is_worth_keeping(leftovers)
    if crashed:
        _keep_memory(leftovers, path)
    for leftover in sorted(leftovers, key=lambda item: ORDER.index(type(item))):
        try:
            done = leftover.clean_up(run_id)
        except OSError as error:
            done, failed = f"{leftover} cannot be cleaned up ({error}); the next start tries again", True
        if done is not None:
            messages.append(f"Leftovers of run {run_id}: {done}.")
    if unreadable and not failed:
        messages.append(_keep_aside(path, unreadable))
    elif not failed and crashed:
        path.rename(path.with_suffix(CRASHED_SUFFIX))
    elif not failed:
        path.unlink(missing_ok=True)
    return messages


def is_worth_keeping(leftovers: Iterable[Leftover]) -> bool:
    """True for a run of a user's jobs some of which had been started, on a machine that has not restarted since."""
    found = list(leftovers)
    started = any(isinstance(each, StartedProcess) and each.command and _of_this_boot(each) for each in found)
    return started and any(isinstance(each, RunOf) for each in found)


def _of_this_boot(started: StartedProcess) -> bool:
    return started.boot_id == current_boot_id()


def _keep_memory(leftovers: Iterable[Leftover], path: Path) -> None:
    """What was remembered between passes goes with the run's folder; beside the journal it stays."""
    for each in leftovers:
        if isinstance(each, RunOf) and each.memory is not None:
            with suppress(OSError):  # measured anew
                shutil.move(each.memory, path.with_suffix(MEMORY_SUFFIX))


def read_journal(path: Path) -> tuple[list[Leftover], int]:
    """The journal's entries, and how many of its lines make no sense."""
    leftovers, unreadable = [], 0
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            leftovers.append(LEFTOVER.validate_json(line))
        except ValidationError:
            unreadable += 1
    return leftovers, unreadable


def _keep_aside(path: Path, unreadable: int) -> str:
    aside = path.with_suffix(".unreadable")
    path.rename(aside)
    return (
        f"{aside}: {unreadable} of its lines cannot be read, so something of that run may be left; "
        "look for processes and cgroups named slopewise, then delete this file."
    )
