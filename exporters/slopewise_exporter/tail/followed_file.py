"""Reads a growing file from where it was left, through rotation, truncation and a restart of the reader.

Rotation by renaming: the old file is read to its end before the new one of the same name. Rotation by copying and
truncating (logrotate's `copytruncate`): the file is read again from its start, also where it has grown beyond the old
offset by then, because the bytes before the offset are compared with those that were read.
"""

from __future__ import annotations

import glob
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from slopewise_exporter.values import Checker

BLOCK_BYTES = 262_144

_TAIL_BYTES = 64
"""Compared with what was read before the offset."""

_QUIET_READS_BEFORE_SWITCH = 2
"""At the end of a file that was renamed: its writer may still have it open for a moment."""


class Block(NamedTuple):
    """Some bytes of the file; `begins` where they are the first of it, or of the next one."""

    data: bytes
    begins: bool
    at_seconds: float | None
    """When the file was last written, where these bytes are older than the reader; else None."""


class FollowedFile:
    """One path, and the file that is or was there. `read` never raises; what goes wrong is logged once."""

    def __init__(self, path: Path, check: Checker, *, whole: bool = True, last_bytes: int | None = None) -> None:
        """`whole`: what is in the file already counts as written in the past. `last_bytes`: of that, only these."""
        self.path = path
        self.offset = 0
        self._check = check
        self._descriptor: int | None = None
        self._identity: tuple[int, int] | None = None
        self._tail = b""
        self._begins = True
        self._past_end = 0
        self._past_at: float | None = None
        self._first = whole
        self._last_bytes = last_bytes
        self._quiet_reads = 0

    @property
    def position(self) -> dict[str, Any]:
        """What `resume` takes."""
        return {"identity": self._identity, "offset": self.offset, "tail": self._tail.hex()}

    def resume(self, position: dict[str, Any], unread_bytes: int = 0) -> None:
        """Go on where another reader was. KeyError, TypeError or ValueError where it is no position."""
        identity, offset = position["identity"], int(position["offset"]) - unread_bytes
        tail = bytes.fromhex(position["tail"])
        if identity is None:
            return
        for path in self._candidates():
            with suppress(OSError):  # a file of another user's, a socket
                if self._open(path, tuple(identity)):
                    break
        else:
            return
        self.offset = max(0, offset)
        self._tail = tail[: len(tail) - unread_bytes] if unread_bytes < len(tail) else b""
        self._begins = False
        if self._size() < self.offset or self._differs():
            self._restart()

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def read(self) -> Block | None:
        """The next bytes; None: there are none now."""
        try:
            return self._read()
        except OSError as error:
            self._check.warn(f"read {self.path}", f"cannot read {self.path} ({error.strerror}); tried again")
            self.close()
            return None

    def _read(self) -> Block | None:
        if self._descriptor is None and not self._open(self.path):
            return None
        size = self._size()
        if size < self.offset or (size > self.offset and self._differs()):  # it was truncated
            self._restart()
        data = self._pread(BLOCK_BYTES, self.offset)
        if not data:
            return self._switch()
        self._quiet_reads = 0
        begins, self._begins = self._begins, False
        at_seconds = self._past_at if self.offset < self._past_end else None
        self.offset += len(data)
        self._tail = (self._tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        return Block(data, begins, at_seconds)

    def _switch(self) -> Block | None:
        """At the end of the file: on to the one that has its name now, if that is another."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        if (status.st_dev, status.st_ino) == self._identity:
            self._quiet_reads = 0
            return None
        self._quiet_reads += 1
        if self._quiet_reads < _QUIET_READS_BEFORE_SWITCH:
            return None
        self.close()
        return self._read() if self._open(self.path) else None

    def _size(self) -> int:
        assert self._descriptor is not None  # noqa: S101 - for the type checker
        return os.fstat(self._descriptor).st_size

    def _differs(self) -> bool:
        """Whether the bytes before the offset are others than those that were read."""
        return self._pread(len(self._tail), self.offset - len(self._tail)) != self._tail

    def _restart(self) -> None:
        self.offset = self._past_end = 0
        self._tail = b""
        self._begins = True

    def _open(self, path: Path, identity: tuple[int, ...] | None = None) -> bool:
        """False where there is none, or not the one with this `identity`."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            self._first = False  # it is written from now on
            return False
        status = os.fstat(descriptor)
        found = (status.st_dev, status.st_ino)
        if identity is not None and found != identity:
            os.close(descriptor)
            return False
        self.close()
        if found != self._identity:  # else a read of it has failed, and goes on where it was
            self._restart()
        self._descriptor, self._identity = descriptor, found
        if self._first:
            self._past_end, self._past_at = status.st_size, status.st_mtime
            if self._last_bytes is not None and status.st_size > self._last_bytes:
                self.offset = status.st_size - self._last_bytes
                # From a whole line on: half a one may say something else, and would hide a container runtime's format.
                self.offset += max(0, self._pread(BLOCK_BYTES, self.offset - 1).find(b"\n"))
        self._first = False
        return True

    def _candidates(self) -> list[Path]:
        """The file, and those that rotation may have made of it meanwhile."""
        with suppress(OSError):
            return [self.path, *sorted(self.path.parent.glob(f"{glob.escape(self.path.name)}?*"))]
        return [self.path]

    def _pread(self, count: int, offset: int) -> bytes:
        assert self._descriptor is not None  # noqa: S101 - for the type checker
        return os.pread(self._descriptor, count, offset)
