"""The Unix socket of the session on this machine: a request is one JSON line, and so is its answer.

Only its user reaches it: the folder is 0700, the socket 0600, and the kernel names the user of the other end. A lock
beside it is held as long as the session runs, so that a socket that a killed one has left is replaced.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from slopewise.adapters.local.crash_journal import default_state_dir, machine_mark
from slopewise.adapters.local.stored_files import made_folder
from slopewise.errors import DataSourceError, SlopewiseError

MAX_LINE_BYTES = 16 * 2**20
"""Of a request or an answer: a thousand jobs with their environments."""

REQUEST_SECONDS = 2.0
"""How long a client may take to send its line, for which the session waits."""

ANSWER_SECONDS = 120.0
"""How long a client waits: a session on a busy machine may load a policy, or start many jobs, before it answers."""

_SOCKET, _LOCK = "socket", "lock"
_CREDENTIALS = struct.Struct("3i")


class NoServiceError(DataSourceError):
    """No session of this user answers."""


def service_folder() -> Path:
    """The folder of the socket and the queue of this user and machine, which no other user can enter."""
    folder = made_folder(default_state_dir() / f"service@{machine_mark()}", 0o700)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise SlopewiseError(f"{folder}: belongs to another user; remove it, or set XDG_STATE_HOME to another folder.")
    folder.chmod(0o700)
    return folder


class ServiceSocket:
    """The session's end. A context manager: its exit removes the socket."""

    def __init__(self, folder: Path, holder: str) -> None:
        """`holder`: what runs, such as `slopewise up`; SlopewiseError, with its process, where another one does."""
        self._folder = folder
        try:
            self._lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise _unusable(folder, error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            who = os.read(self._lock, 200).decode(errors="replace") or "another session"
            os.close(self._lock)
            raise SlopewiseError(f"{who} has the jobs of this user already; `slopewise jobs` lists them.") from error
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{holder} (process {os.getpid()})".encode(), 0)
            (folder / _SOCKET).unlink(missing_ok=True)
            with _short(folder) as short:
                self._socket.bind(str(short / _SOCKET))
            (folder / _SOCKET).chmod(0o600)
        except OSError as error:
            self._close()
            raise _unusable(folder, error) from error
        self._socket.listen()
        self._socket.settimeout(0.0)

    def poll(self, answer: Callable[[bytes], bytes]) -> None:
        """Answer all requests that have come; `answer` never raises."""
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # none has come, or no descriptor is left for it now
                return
            with connection, suppress(OSError):
                credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
                if _CREDENTIALS.unpack(credentials)[1] == os.getuid():
                    line = _line_of(connection, REQUEST_SECONDS)
                    connection.settimeout(REQUEST_SECONDS)
                    connection.sendall(answer(line) + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        (self._folder / _SOCKET).unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        self._socket.close()
        os.close(self._lock)


def ask(folder: Path, request: bytes) -> bytes:
    """The answer of the session to one request; NoServiceError where none runs, or it does not answer."""
    with socket.socket(socket.AF_UNIX) as connection, _short(folder) as short:
        try:
            connection.connect(str(short / _SOCKET))
        except OSError as error:
            raise NoServiceError("no session runs here; start one with `slopewise up`.") from error
        try:
            connection.settimeout(ANSWER_SECONDS)
            connection.sendall(request + b"\n")
            return _line_of(connection, ANSWER_SECONDS)
        except OSError as error:
            raise NoServiceError("the session does not answer; see what it has written, or start it again.") from error


def _unusable(folder: Path, error: OSError) -> SlopewiseError:
    remedy = "make room, or set XDG_STATE_HOME to a folder on a local disk"
    return SlopewiseError(f"{folder}: cannot have a socket ({error.strerror}); {remedy}.")


@contextmanager
def _short(folder: Path) -> Iterator[Path]:
    """A short path of a folder, because that of a socket has at most 107 bytes."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _line_of(connection: socket.socket, seconds: float) -> bytes:
    """One line; OSError when it does not come in time, or is too long."""
    deadline, parts, size = time.monotonic() + seconds, [], 0
    while True:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(65_536)
        parts.append(part)
        size += len(part)
        if part.endswith(b"\n"):
            return b"".join(parts)
        if not part or size > MAX_LINE_BYTES:
            raise OSError("no whole line")
