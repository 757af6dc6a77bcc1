"""A file of lines that is bounded on disk: when it is half as large as allowed, it becomes the older one of two.

One process at a time writes a file: lines of two would mix, and a replay would take them for one run.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

OLDER_SUFFIX = ".1"


def older(path: Path) -> Path:
    """The file that holds the lines before those of `path`."""
    return path.with_name(path.name + OLDER_SUFFIX)


class BoundedFile:
    """Appends lines to a file. Together with the older one it stays within `max_bytes` and one line."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self._half = max_bytes // 2
        self._file: BinaryIO | None = None
        self._bytes = 0

    def begin(self) -> bool:
        """Before each line: whether it will be the first of this process in the file. May raise OSError."""
        if self._file is not None and not self._is_there(self._file):
            self.close()  # somebody has moved it, or removed it
        if self._file is not None and self._bytes < self._half:
            return False
        if self._file is None:
            self._open()
        if self._bytes >= self._half:
            with suppress(FileNotFoundError):  # somebody has taken it away just now
                self.path.replace(older(self.path))  # while it is locked: it may be another run's
            self.close()
            self._open()
        return True

    def append(self, lines: bytes) -> None:
        """Write whole lines. OSError: nothing of them is in the file, as far as it could be taken out again."""
        assert self._file is not None, "begin() comes first"  # noqa: S101 - a caller's mistake
        try:
            left = memoryview(lines)
            while left:  # of a disk that is nearly full only the second write says so
                left = left[self._file.write(left) or 0 :]
        except OSError:
            self._take_back()
            raise
        self._bytes += len(lines)

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: what a pass has decided is in the file when the pass is over, also of a controller that is killed.
        self._file = self.path.open("ab+", buffering=0)
        try:
            self._lock(self._file)
            self._bytes = self._file.seek(0, os.SEEK_END)
            if self._bytes and self._last_byte() != b"\n":  # cut off by a kill
                self._bytes += self._file.write(b"\n") or 0
        except OSError:
            self.close()
            raise

    def _lock(self, file: BinaryIO) -> None:
        """Until it is closed. BlockingIOError: another run writes it, or has just made it the older one."""
        locked = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            locked = False
        except OSError:  # some network file systems have no locks, and a record without one is better than none
            return
        if not locked or not self._is_there(file):
            what = "another run writes this record; end it, or name another folder with --record"
            raise BlockingIOError(errno.EAGAIN, what, str(self.path))

    def _is_there(self, file: BinaryIO) -> bool:
        """Whether it is the one that has this path now."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return os.path.samestat(os.fstat(file.fileno()), self.path.stat())
        return False

    def _last_byte(self) -> bytes:
        assert self._file is not None  # noqa: S101 - just opened
        self._file.seek(-1, os.SEEK_END)
        return self._file.read(1)

    def _take_back(self) -> None:
        """A line of which a full disk took the first half would be a broken one."""
        if self._file is None:
            return
        try:
            self._file.truncate(self._bytes)
        except OSError:
            pass
        finally:
            self.close()
