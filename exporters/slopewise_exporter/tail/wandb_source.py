"""Follows the run file of Weights & Biases, `wandb/run-*/run-ID.wandb`, which is written also when it is offline.

The file is a LevelDB log of Protocol Buffers messages. The package `wandb` has no reader in Python any more (it is a
program in Go); this one reads the messages that matter: configuration, history and exit.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slopewise_exporter.logs.names import Names
from slopewise_exporter.logs.text import found_in_pairs, number_in
from slopewise_exporter.tail.followed_file import FollowedFile
from slopewise_exporter.tail.source import NamedValues, Take
from slopewise_exporter.values import Checker

_MAGIC = b":W&B"
_FILE_HEADER = 7
_BLOCK = 32_768
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_MAX_RECORD_BYTES = 16 * 2**20
"""Longer ones are tables and media, which are passed over."""

_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18
"""Fields of `Record`."""
_ITEM, _STEP = 1, 2
"""Fields of `HistoryRecord`."""
_RUN_CONFIG, _CONFIG_UPDATE = 4, 1
_KEY, _NESTED_KEY, _INTEGER, _NUMBER, _JSON = 1, 2, 5, 6, 16
"""Fields of the items of both."""


class WandbSource(NamedValues):
    """Records become what a `Tracker` takes."""

    def __init__(self, path: Path, names: Names, take: Take, check: Checker) -> None:
        super().__init__(path, names, take, check)
        self._file = FollowedFile(path, check)
        self._records = LevelDbLog()

    @property
    def position(self) -> dict[str, Any]:
        """What `resume` takes: a record that is not whole yet is read again."""
        return {"file": self._file.position, "whole_until": self._records.whole_until}

    def resume(self, position: dict[str, Any]) -> None:
        """Go on where another one was. KeyError, TypeError or ValueError where it is no position."""
        whole_until = int(position["whole_until"])
        self._file.resume(position["file"], int(position["file"]["offset"]) - whole_until)
        self._records = LevelDbLog(whole_until)

    def poll(self) -> bool:
        """Hand over the records that are there; False: there are none."""
        block = self._file.read()
        if block is None:
            return False
        if block.begins:
            self._records = LevelDbLog()
            if not block.data.startswith(_MAGIC[: len(block.data)]):
                self._check.warn("run file", f"{self.where} is no run file of Weights & Biases")
        for record in self._records.feed(block.data):
            try:
                self._record(record, block.at_seconds)
            except (ValueError, IndexError, struct.error):
                self._check.warn("record", f"a record of {self.where} is none; it is left out")
        if self._records.damaged:
            self._check.warn("damage", f"{self.where} has damaged records; they are left out")
        return True

    def close(self) -> None:
        """Nothing more comes."""
        self._file.close()

    def _record(self, record: bytes, at_seconds: float | None) -> None:
        for number, content in messages_in(record):
            if number == _HISTORY:
                self._history(content, at_seconds)
            elif number == _EXIT:
                code = dict(fields_of(content)).get(1, 0)
                self.ended, self.failed = True, code != 0
            elif number == _CONFIG:
                self._take_plan(_items(content, _CONFIG_UPDATE))
            elif number == _RUN:
                for each, inner in messages_in(content):
                    if each == _RUN_CONFIG:
                        self._take_plan(_items(inner, _CONFIG_UPDATE))

    def _history(self, content: bytes, at_seconds: float | None) -> None:
        pairs = list(_items(content, _ITEM))
        pairs += [("_step", dict(fields_of(inner)).get(1, 0)) for each, inner in messages_in(content) if each == _STEP]
        found = found_in_pairs(self._names, pairs)
        if found is not None:
            self._take(found, at_seconds)


class LevelDbLog:
    """Records out of blocks of bytes, whatever they are cut into. Records that are damaged are left out and counted."""

    def __init__(self, start: int = 0) -> None:
        """`start`: offset in the file of the first byte that comes, between two records."""
        self.whole_until = start
        """Offset behind the last whole record."""
        self.damaged = 0
        self._start = start
        self._rest = b""
        self._parts: bytes | None = None

    def feed(self, block: bytes) -> Iterator[bytes]:
        """The records that end in this block."""
        data = self._rest + block
        place = max(0, _FILE_HEADER - self._start)
        while True:
            left = _BLOCK - (self._start + place) % _BLOCK
            if left < _HEADER.size:  # too few for a header: filled with zeros
                if place + left > len(data):
                    break
                place += left
                continue
            if place + _HEADER.size > len(data):
                break
            checksum, length, kind = _HEADER.unpack_from(data, place)
            end = place + min(_HEADER.size + length, left)
            if end > len(data):
                break
            content = data[place + _HEADER.size : end]
            place = end
            if len(content) != length or zlib.crc32(content, zlib.crc32(bytes([kind]))) != checksum:
                self.damaged += 1
                self._parts = None
                continue
            whole = self._joined(kind, content)
            if self._parts is None:
                self.whole_until = self._start + place
            if whole is not None:
                yield whole
        place = min(place, len(data))
        self._rest = data[place:]
        self._start += place

    def _joined(self, kind: int, content: bytes) -> bytes | None:
        if kind in (_FULL, _FIRST):
            self._parts = b""
        if self._parts is None or len(self._parts) + len(content) > _MAX_RECORD_BYTES:
            self._parts = None
            return None
        self._parts += content
        if kind in (_FIRST, _MIDDLE):
            return None
        whole, self._parts = self._parts, None
        return whole


def _items(content: bytes, number: int) -> Iterator[tuple[str, Any]]:
    """Name and value of the items in a history or a configuration."""
    for each, inner in messages_in(content):
        if each != number:
            continue
        fields = list(fields_of(inner))
        texts = [(key, value.decode("utf-8", "replace")) for key, value in fields if isinstance(value, bytes)]
        nested = [text for key, text in texts if key == _NESTED_KEY]
        name = "/".join(nested) or dict(texts).get(_KEY, "")
        for key, value in fields:
            if key in (_INTEGER, _NUMBER):
                yield name, value
        for key, text in texts:
            if key == _JSON:
                # `0.5`, or `"NaN"`: JSON has no such number.
                yield name, number_in(text.strip('"')) if len(text) < 64 else None


# --- Protocol Buffers: the fields of a message, as they lie in it ----------------------------------------------


def fields_of(message: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Number and content of each field. ValueError, IndexError or struct.error where it is no message."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        content: int | float | bytes
        if kind == 0:
            content, place = _varint(message, place)
            if content >= 1 << 63:
                content -= 1 << 64  # an int64 below zero
        elif kind == 1:
            content, place = struct.unpack_from("<d", message, place)[0], place + 8
        elif kind == 5:
            content, place = struct.unpack_from("<f", message, place)[0], place + 4
        elif kind == 2:
            length, place = _varint(message, place)
            if place + length > len(message):
                raise ValueError("a field is longer than its message")
            content, place = message[place : place + length], place + length
        else:
            raise ValueError(f"no field has the type {kind}")
        yield tag >> 3, content


def messages_in(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Of these the ones that are bytes: texts, and messages of their own."""
    for number, content in fields_of(message):
        if isinstance(content, bytes):
            yield number, content


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")
