"""Reads and writes the memory as JSON."""

from __future__ import annotations

from operator import methodcaller

import msgspec

from slopewise.model.memory import JobMemory, MemoryState

MEMORY_JSON = msgspec.json.Encoder(enc_hook=methodcaller("item"))
"""Encodes memory for storage; values of numpy are converted."""

_JOB_MEMORY = msgspec.json.Decoder(JobMemory)
_MEMORY_STATE = msgspec.json.Decoder(MemoryState)


def read_job_memory(encoded: bytes | str) -> JobMemory:
    """A stored `JobMemory`; msgspec.DecodeError where it is damaged. Fields that it has no more are left out."""
    return _JOB_MEMORY.decode(encoded)


def read_memory_state(encoded: bytes) -> MemoryState:
    """A stored `MemoryState`, likewise."""
    return _MEMORY_STATE.decode(encoded)
