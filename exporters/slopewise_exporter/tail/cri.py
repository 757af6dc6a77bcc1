"""Lines as the container runtime writes them below /var/log/pods: `2026-01-01T10:00:00.123456789Z stdout F loss=0.5`.

`P` instead of `F` marks a part of a longer line (16 KiB each); the parts of a stream are put together again.
"""

from __future__ import annotations

import calendar
import re
import time
from typing import NamedTuple

from slopewise_exporter.logs.splitter import MAX_LINE_BYTES

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
    """Collects blocks and gives back whole entries."""

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
