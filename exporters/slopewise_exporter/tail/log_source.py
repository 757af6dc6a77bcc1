"""Follows a log: blocks of a file or of standard input become lines, and lines become what a `Tracker` takes."""

from __future__ import annotations

import calendar
import os
import re
import select
import time
from typing import Any, NamedTuple

from slopewise_exporter.instrument.channels import write_all
from slopewise_exporter.logs import Found, LineParser, LineSplitter
from slopewise_exporter.logs.splitter import MAX_LINE_BYTES
from slopewise_exporter.tail.followed_file import BLOCK_BYTES, Block, FollowedFile
from slopewise_exporter.tail.source import Source, Take

_STDOUT = 1
_TRACEBACK = "Traceback (most recent call last)"


class LogLines:
    """Blocks in, calls of `take` out.

    Args:
        finished: a line that it matches says that the training has ended.
        forced_cri: whether entries are a container runtime's; None: their first line decides.
    """

    def __init__(self, parser: LineParser, take: Take, *, finished: Any = None, forced_cri: bool | None = None) -> None:
        self.failed = False
        """Whether the last that was written, after all progress, is a traceback."""
        self._parser = parser
        self._take = take
        self._finished: re.Pattern[str] | None = finished
        self._splitter = LineSplitter()
        self._began = False
        self._forced_cri = forced_cri
        self._cri: CriReader | None = CriReader() if forced_cri else None

    @property
    def pending_bytes(self) -> int:
        """Read, and of a line that has no end yet."""
        return self._splitter.pending_bytes if self._cri is None else self._cri.pending_bytes

    def feed(self, block: Block) -> None:
        """Some more bytes."""
        if block.begins or not self._began:
            self.flush()
            self._began = True
            if self._forced_cri is None:
                self._cri = CriReader() if is_cri(block.data) else None
        if self._cri is not None:
            for entry in self._cri.feed(block.data):
                lines = self._splitter.feed(entry.content + b"\n")
                self._lines(lines, seconds_of(entry) if block.at_seconds is not None and lines else None)
        else:
            self._lines(self._splitter.feed(block.data), block.at_seconds)

    def flush(self) -> None:
        """Nothing more comes of the line that has no end yet."""
        if self._cri is not None:
            self._cri.drop()
        self._lines(self._splitter.flush(), None)

    def _lines(self, lines: list[str], at_seconds: float | None) -> None:
        parse, take, finished = self._parser.parse, self._take, self._finished
        for line in lines:
            found = parse(line)
            if found is not None:
                take(found, at_seconds)
                self.failed = False
            elif line.startswith(_TRACEBACK):
                self.failed = True
            if finished is not None and finished.search(line) is not None:
                take(Found(finished=True), at_seconds)


class _Log(Source):
    """What both kinds of logs have in common."""

    def __init__(self, where: object, lines: LogLines, *, echo: bool) -> None:
        super().__init__(where)
        self._lines = lines
        self._echo = echo

    @property
    def failed(self) -> bool:  # type: ignore[override]
        """Whether the training seems to have failed."""
        return self._lines.failed

    def _feed(self, block: Block) -> bool:
        """Take a block, and pass it on where that is wished; True."""
        if self._echo:
            write_all(_STDOUT, block.data)  # one that is closed does not end the reports
        self._lines.feed(block)
        return True

    def close(self) -> None:
        """Nothing more comes."""
        self._lines.flush()


class FileLog(_Log):
    """A log in a file."""

    def __init__(self, file: FollowedFile, lines: LogLines, *, echo: bool = False) -> None:
        super().__init__(file.path, lines, echo=echo)
        self._file = file

    @property
    def position(self) -> dict[str, Any]:
        """What `resume` takes: a line that has no end yet is read again."""
        return {"file": self._file.position, "pending": self._lines.pending_bytes}

    def resume(self, position: dict[str, Any]) -> None:
        """Go on where another one was. KeyError, TypeError or ValueError where it is no position."""
        self._file.resume(position["file"], int(position["pending"]))

    def poll(self) -> bool:
        """Take what is there, a block at most; False: there is nothing."""
        block = self._file.read()
        return block is not None and self._feed(block)

    def close(self) -> None:
        """Nothing more comes."""
        super().close()
        self._file.close()


class StreamLog(_Log):
    """A log on standard input, or a pipe; its end is the training's. It has no position: what was read is gone."""

    def __init__(self, lines: LogLines, *, echo: bool = True, descriptor: int = 0) -> None:
        super().__init__("standard input", lines, echo=echo)
        self._descriptor = descriptor
        self._begins = True

    def poll(self) -> bool:
        """Take what is there, a block at most; False: there is nothing."""
        if self.ended or not select.select([self._descriptor], [], [], 0)[0]:
            return False
        data = os.read(self._descriptor, BLOCK_BYTES)
        if not data:
            self.ended = True
            return False
        begins, self._begins = self._begins, False
        return self._feed(Block(data, begins, None))

    def wait(self, seconds: float) -> None:
        """Until there is more."""
        if self.ended:
            super().wait(seconds)
        else:
            select.select([self._descriptor], [], [], seconds)


# --- lines as the container runtime writes them below /var/log/pods -----------------------------------------------
# `2026-01-01T10:00:00.123456789Z stdout F loss=0.5`. `P` instead of `F` marks a part of a longer one (16 KiB each), and
# the parts of a stream are put together again.

_ENTRY = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d{1,9})?(Z|[+-]\d\d:\d\d) (stdout|stderr) ([FP])[^ ]* (.*)", re.DOTALL
)


class Entry(NamedTuple):
    """One line of one stream, without its end."""

    second: bytes
    """When, to the second, and the zone: `2026-01-01T10:00:00` and `Z`."""
    zone: bytes
    content: bytes


def is_cri(block: bytes) -> bool:
    """Whether the file is one of a container runtime, by its first line."""
    return _ENTRY.match(block.split(b"\n", 1)[0]) is not None


class CriReader:
    """Collects blocks and returns whole entries."""

    def __init__(self) -> None:
        self._rest = b""
        self._parts: dict[bytes, bytes] = {}

    @property
    def pending_bytes(self) -> int:
        """Of the entry that has no end yet."""
        return len(self._rest)

    def feed(self, block: bytes) -> list[Entry]:
        """The entries that end in this block; what is no entry is left out."""
        lines = (self._rest + block).split(b"\n")
        self._rest = lines.pop()[:MAX_LINE_BYTES]
        found: list[Entry] = []
        for line in lines:
            match = _ENTRY.match(line)
            if match is None:
                continue
            second, zone, stream, tag, content = match.groups()
            content = self._parts.pop(stream, b"") + content
            if tag == b"P":
                self._parts[stream] = content[:MAX_LINE_BYTES]
            else:
                found.append(Entry(second, zone, content))
        return found

    def drop(self) -> None:
        """Another file begins."""
        self._rest = b""
        self._parts.clear()


def seconds_of(entry: Entry) -> float | None:
    """Unix seconds; None where the time is none."""
    try:
        moment = calendar.timegm(time.strptime(entry.second.decode(), "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None
    if entry.zone == b"Z":
        return float(moment)
    hours, minutes = int(entry.zone[1:3]), int(entry.zone[4:6])
    offset = hours * 3600 + minutes * 60
    return float(moment - offset if entry.zone[:1] == b"+" else moment + offset)
