"""Stores Memory in a JSON file on this machine, so that it survives a restart of the controller."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from slopewise.errors import SlopewiseError
from slopewise.model import MEMORY_JSON, MemoryState

# Fields of a run and its cgroups that are invalid in the next run, because counters and resources restart.
_OF_ONE_RUN: dict[str, Any] = {
    "anchor": None,
    "original": None,
    "last_resized_at_seconds": None,
    "pace_anchor": None,
    "answering": None,
    "change": None,
    "backoff_until_seconds": None,
    "backoff_reason": None,
}


def inherit(former: Path, path: Path) -> None:
    """Begin the memory at `path` with the measurements of a killed run, if they can be read."""
    with suppress(SlopewiseError, OSError):
        jobs = FileMemory(former).load().jobs
        known = {uid: job.altered(**_OF_ONE_RUN) for uid, job in jobs.items()}
        FileMemory(path).save(MemoryState(known))


class FileMemory:
    """Reads the file once, then caches the state; writes the whole file, and only when the state changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state: MemoryState | None = None

    def load(self) -> MemoryState:
        """The stored state, an empty one where there is no file; SlopewiseError when the file is damaged."""
        if self._state is None:
            self._state = self._read()
        return self._state

    def save(self, state: MemoryState) -> None:
        """Replace the file atomically: a crash leaves the former state."""
        if state == self._state:
            return
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            new.write_bytes(MEMORY_JSON.encode(state))
            new.replace(self._path)
        except OSError as error:
            raise SlopewiseError(
                f"{self._path}: the controller's memory cannot be written ({error.strerror}); "
                "make room or choose another folder."
            ) from error
        self._state = state

    def _read(self) -> MemoryState:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=MemoryState)
        except FileNotFoundError:
            return MemoryState()
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise SlopewiseError(
                f"{self._path}: the controller's memory is damaged ({error}); "
                "restore it from a copy, or remove it to start with an empty one."
            ) from error
