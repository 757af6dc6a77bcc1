"""Keeps all processes of one training but one from reporting.

The processes share a token in their environment. The one that reports listens on a Unix socket of that name, which the
kernel removes when the process ends, also after SIGKILL. Another process asks there for the right: a framework's
callback gets it from one that follows output, and the training's own `Reporter` gets it from both. On Linux the name is
an abstract one, so that nothing is written to any folder; elsewhere it is a file in the temporary folder.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import sys
import tempfile
import threading
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Callable

TOKEN_VARIABLE = "SLOPEWISE_EXPORTER_CLAIM"  # noqa: S105 - the name of a variable

OUTPUT, FRAMEWORK, CODE = RANKS = (b"output", b"framework", b"code")
"""Weakest first: what is printed, a framework's callback, a `Reporter` in the training's own code."""

ANSWER_SECONDS = 5.0
"""What closing an endpoint takes at most."""

_ABSTRACT = sys.platform == "linux"
"""Names that are no files."""

_BACKLOG = 16
_WRAPPER, _TRAINING = "wrapper", "training"
_GRANTED, _REFUSED = b"y", b"n"

GivesUp = Callable[[bytes], bool]
"""Gets the rank of the process that asks; true once this process reports nothing any more."""


def token(environ: MutableMapping[str, str]) -> str:
    """The token of this training; made here by its first process."""
    if not environ.get(TOKEN_VARIABLE):
        environ[TOKEN_VARIABLE] = secrets.token_hex(8)
    return environ[TOKEN_VARIABLE]


class Claim:
    """The right to report, held until `release` or the end of the process."""

    def __init__(self, server: socket.socket, name: str, gives_up: GivesUp) -> None:
        self._server = server
        self._name = name
        self._gives_up = gives_up
        self._thread = threading.Thread(target=self._answer, name="slopewise-claim", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Let another process have it."""
        # The name stays taken as long as the thread waits in `accept`, which `shutdown` ends and a close does not.
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        if self._thread is not threading.current_thread():
            self._thread.join(ANSWER_SECONDS)
        if not self._name.startswith("\0"):
            with suppress(OSError):
                Path(self._name).unlink()

    def abandon_after_fork(self) -> None:
        """In a forked child: keep no copy of the socket, or the name would stay taken as long as the child lives."""
        self._server.close()

    def _answer(self) -> None:
        while True:
            try:
                asker, _ = self._server.accept()
            except OSError:
                return
            with suppress(OSError), asker:
                asker.settimeout(ANSWER_SECONDS)
                if not _is_own_user(asker):
                    continue
                rank = asker.recv(16)
                asker.sendall(_GRANTED if rank in RANKS and self._gives_up(rank) else _REFUSED)


def claim_as_wrapper(token: str, gives_up: GivesUp) -> Claim | None:
    """The name of the parent that follows the output of a whole command; any process of the training asks it."""
    return _listen(_name(token, _WRAPPER), gives_up)


def claim(token: str, rank: bytes, gives_up: GivesUp) -> Claim | None:
    """The right for a process of the training; None: another one has it and keeps it."""
    name = _name(token, _TRAINING)
    held = _listen(name, gives_up)
    if held is None and _ask(name, rank):
        held = _listen(name, gives_up)
    if held is not None:
        _ask(_name(token, _WRAPPER), rank)
    return held


def _name(token: str, holder: str) -> str:
    name = f"slopewise-{token}-{holder}"  # short: a path of 104 bytes is too long on macOS
    return f"\0{name}" if _ABSTRACT else str(Path(tempfile.gettempdir(), name))


def _listen(name: str, gives_up: GivesUp) -> Claim | None:
    for _ in range(2):
        server = socket.socket(socket.AF_UNIX)
        try:
            server.bind(name)
            server.listen(_BACKLOG)
            return Claim(server, name, gives_up)
        except OSError:
            server.close()
            if name.startswith("\0") or _is_held(name):
                return None
            with suppress(OSError):  # the file of a process that was killed
                Path(name).unlink()
    return None


def _is_held(name: str) -> bool:
    with socket.socket(socket.AF_UNIX) as asker:
        try:
            asker.connect(name)
        except OSError:
            return False
        return True


def _ask(name: str, rank: bytes) -> bool:
    """Whether the holder of a name has given it up; False where nothing holds it too."""
    with socket.socket(socket.AF_UNIX) as asker:
        asker.settimeout(ANSWER_SECONDS)
        try:
            asker.connect(name)
            asker.sendall(rank)
            return asker.recv(1) == _GRANTED
        except OSError:
            return False


def _is_own_user(asker: socket.socket) -> bool:
    # An abstract name has no permissions: every user of the machine can connect to it.
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    _, uid, _ = struct.unpack("3i", asker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return uid in (os.getuid(), 0)
