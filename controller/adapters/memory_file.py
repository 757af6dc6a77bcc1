"""The Memory port on this machine: a JSON file, so that a restarted controller forgets nothing."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from controller.errors import SlopewiseError
from controller.model import MemoryState

# What belongs to a run and its cgroups, and means nothing to the next: counters began anew, and so did resources.
_OF_ONE_RUN: dict[str, Any] = {
    "anchor": None,
    "original": None,
    "last_resized_at_seconds": None,
    "pace_anchor": None,
    "change": None,
    "alone_until_seconds": None,
    "alone_because": None,
}


def inherit(former: Path, path: Path) -> None:
    """Begin the memory at `path` with what a run that was killed had learnt of its jobs, where that can be read."""
    with suppress(SlopewiseError, OSError):
        jobs = FileMemory(former).load().jobs
        known = {uid: job.altered(**_OF_ONE_RUN) for uid, job in jobs.items()}
        FileMemory(path).save(MemoryState(known))


_STATE: TypeAdapter[MemoryState] = TypeAdapter(MemoryState)


class FileMemory:
    """Reads the file once, then keeps the state; writes it whole, and only when it changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state: MemoryState | None = None

    def load(self) -> MemoryState:
        """The stored state, an empty one where there is no file; SlopewiseError when the file is damaged."""
        if self._state is None:
            self._state = self._read()
        return self._state

    def save(self, state: MemoryState) -> None:
        """Replace the file at once: a crash in the middle leaves the former state."""
        if state == self._state:
            return
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            new.write_bytes(_STATE.dump_json(state))
            new.replace(self._path)
        except OSError as error:
            raise SlopewiseError(
                f"{self._path}: the controller's memory cannot be written ({error.strerror}); "
                "make room or choose another folder."
            ) from error
        self._state = state

    def _read(self) -> MemoryState:
        try:
            return _STATE.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return MemoryState()
        except ValidationError as error:
            raise SlopewiseError(
                f"{self._path}: the controller's memory is damaged ({error.error_count()} errors); "
                "restore it from a copy, or remove it to start with an empty one."
            ) from error
