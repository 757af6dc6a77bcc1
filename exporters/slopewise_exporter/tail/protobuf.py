"""The fields of a Protocol Buffers message, as they lie in it: numbers, floats and bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator


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
