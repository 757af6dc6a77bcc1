"""Journals every process, cgroup, folder and file before a run makes it, and cleans them up after a kill.

`Journal.open` begins it, `close` ends it, and `clean_up_after_killed` runs at the next start. Both ends run the same
code, so every ordinary end exercises the cleanup after a crash.

Each run appends JSON lines to one file, `STATE_DIR/RUN@MACHINE.journal`, and holds a lock on it (flock) that the
kernel releases at the run's end. A journal that can be locked therefore belongs to a dead run, and no pid is
compared. Machines may share a home folder over NFS, even without locks, so each reads only its own journals.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from platformdirs import user_state_path
from pydantic import ValidationError

from slopewise.adapters.local.cleanup import (
    JOURNAL_ENTRY,
    ORDER,
    JournalEntry,
    MadeFolder,
    RunOf,
    StartedCommand,
    StartedProcess,
    current_boot_id,
)
from slopewise.adapters.local.limiters.cgroup_files import RUN_PREFIX
from slopewise.adapters.local.limiters.identity import identify
from slopewise.adapters.local.stored_files import made_folder
from slopewise.errors import SlopewiseError

JOURNAL_SUFFIX = ".journal"
_UNSEEN_SUFFIX = ".new"
CRASHED_SUFFIX = ".crashed"
"""Suffix of the journal of a killed run after its cleanup, whose jobs the same command can continue."""
MEMORY_SUFFIX = ".memory"
_UNSEEN_SECONDS = 60.0
"""A journal gets its final name milliseconds after its creation; one without it after a minute is abandoned."""


def new_run_id() -> str:
    """A name for this run from the time and the pid, e.g. `20260514-093012-4711`."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def default_state_dir() -> Path:
    """The folder of the journals: `$XDG_STATE_HOME/slopewise`, or its usual places; made when missing.

    A folder of another user is never used, because a journal lists processes to end and files to remove.
    """
    folders: dict[Path, None] = {}
    with suppress(RuntimeError):  # no home folder is known
        folders[user_state_path("slopewise")] = None
        folders[Path.home() / ".local" / "state" / "slopewise"] = None
    folders[Path(tempfile.gettempdir()) / f"{RUN_PREFIX}{os.getuid()}"] = None
    for folder in folders:
        if _is_private(folder):
            return folder
    raise SlopewiseError(
        f"No journal can be kept in {' or '.join(map(str, folders))}; set XDG_STATE_HOME to a folder of your own."
    )


def _is_private(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return folder.stat().st_uid == os.getuid() and not folder.is_symlink() and os.access(folder, os.W_OK)


class Journal:
    """The journal of this run: `open` it first, record each thing before it is made, and `close` it last."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Use `open`. `descriptor`: the file, open for appending, and locked."""
        self._path = path
        self._descriptor = descriptor
        self.run_id = run_id_of(path)

    @classmethod
    def open(cls, state_dir: Path, run_id: str) -> Journal:
        """Begin the journal of a run. SlopewiseError when the folder cannot hold one."""
        path = journal_path(state_dir, run_id)
        unseen = path.with_suffix(_UNSEEN_SUFFIX)  # until it is locked, no run may take it for a dead run's
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

    def record_process(self, name: str, pid: int, *, ours: bool, command: StartedCommand | None = None) -> None:
        """Record the leader of group `pid` before it does any work. `ours`: it ends with the run."""
        ticks = identify(pid).started_ticks
        boot_id = current_boot_id()
        self.record(
            StartedProcess(name=name, pid=pid, started_ticks=ticks, boot_id=boot_id, ours=ours, command=command)
        )

    def record(self, entry: JournalEntry) -> None:
        """Append what is about to be made, or what the next start needs after a crash, in one write.

        So a kill leaves a complete line or none. On a full disk a partial line is removed, because the next one would
        be appended to it. No fsync: after a power cut no process and no cgroup is left either.
        """
        line = entry.model_dump_json().encode() + b"\n"
        try:
            size = os.fstat(self._descriptor).st_size
            written = os.write(self._descriptor, line)
            if written < len(line):
                os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise SlopewiseError(f"{self._path}: cannot be written ({error.strerror}); make room there.") from error
        if written < len(line):
            raise SlopewiseError(f"{self._path}: the disk is full; make room there.")

    def make_folder(self, purpose: str) -> Path:
        """A new temporary folder, `slopewise-PURPOSE-RUN-…`, that is removed with the run."""
        name = f"{RUN_PREFIX}{purpose}-{self.run_id}-{secrets.token_hex(4)}"
        path = Path(tempfile.gettempdir()) / name
        self.record(MadeFolder(path=path))
        return made_folder(path, 0o700, exist_ok=False)

    def close(self, *, keeps_jobs: bool = False) -> list[str]:
        """Clean up what is still there, and end the journal; returns a message for each thing that was left.

        `keeps_jobs`: as after a crash, so that the next run of the same jobs continues those that run on.
        """
        if self._descriptor < 0:
            return []
        messages = _clean_up(self._path, self.run_id, crash=keeps_jobs)
        os.close(self._descriptor)
        self._descriptor = -1
        return messages


def clean_up_after_killed(state_dir: Path) -> list[str]:
    """Clean up after killed runs, never after a running one; returns a message for each thing done."""
    messages = []
    for path in journals(state_dir):
        descriptor = lock_of_dead(path)
        if descriptor is not None:
            messages += _clean_up(path, run_id_of(path), crash=True)
            os.close(descriptor)
    for path in state_dir.glob(f"*@{machine_mark()}{_UNSEEN_SUFFIX}"):
        with suppress(OSError):  # of a run that was killed while it began it, and had made nothing yet
            if time.time() - path.stat().st_mtime > _UNSEEN_SECONDS:
                path.unlink()
    return messages


def journal_path(state_dir: Path, run_id: str) -> Path:
    """The path of a run's journal on this machine."""
    return state_dir / f"{run_id}@{machine_mark()}{JOURNAL_SUFFIX}"


def journals(state_dir: Path, suffix: str = JOURNAL_SUFFIX) -> list[Path]:
    """The journals of this machine, oldest first; with another suffix those of crashed runs."""
    return sorted(state_dir.glob(f"*@{machine_mark()}{suffix}"))


def run_id_of(path: Path) -> str:
    """The id of the run that wrote a journal."""
    return path.name.partition("@")[0]


def machine_mark() -> str:
    """Twelve hexadecimal digits for this machine, from its id and its name: machines that were copied share ids."""
    try:
        machine_id = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        machine_id = ""
    return hashlib.sha256(f"{machine_id} {socket.gethostname()}".encode()).hexdigest()[:12]


def lock_of_dead(path: Path) -> int | None:
    """The lock on a dead run's journal; None while the run is alive or another process cleans up after it."""
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
    """Clean up every entry of a journal, which is kept for the next start when an entry could not be cleaned up.

    After a `crash` the entries of a user's jobs are kept too (`crashed_runs.py`), because those jobs may still run.
    """
    entries = read_journal(path)
    messages, failed = [], False
    crashed = crash and is_worth_keeping(entries)
    for each in entries if crashed else ():
        if isinstance(each, RunOf) and each.memory is not None:
            with suppress(OSError):  # it goes with the run's folder; what cannot be kept is measured again
                shutil.move(each.memory, path.with_suffix(MEMORY_SUFFIX))
    for entry in sorted(entries, key=lambda item: ORDER.index(type(item))):
        try:
            done = entry.clean_up(run_id)
        except OSError as error:
            done, failed = f"{entry} cannot be cleaned up ({error}); the next start tries again", True
        if done is not None:
            messages.append(f"Cleaned up after run {run_id}: {done}.")
    if crashed and failed:  # its jobs run on all the same, and the next run has to know them
        shutil.copy(path, path.with_suffix(CRASHED_SUFFIX))
    elif crashed:
        path.rename(path.with_suffix(CRASHED_SUFFIX))
    elif not failed:
        path.unlink(missing_ok=True)
    return messages


def is_worth_keeping(entries: Iterable[JournalEntry]) -> bool:
    """True if the run had started some of a user's jobs and the machine has not restarted since."""
    found, boot = list(entries), current_boot_id()
    started = any(isinstance(each, StartedProcess) and each.command and each.boot_id == boot for each in found)
    return started and any(isinstance(each, RunOf) for each in found)


def read_journal(path: Path) -> list[JournalEntry]:
    """The journal's entries, without lines that cannot be read, such as those that a power cut has left."""
    entries = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        with suppress(ValidationError):
            entries.append(JOURNAL_ENTRY.validate_json(line))
    return entries
