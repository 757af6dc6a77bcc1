"""Follows TensorBoard's event files with TensorBoard's own reader (`slopewise-exporter[tensorboard]`).

The reader holds the place before a record that is cut off, and goes on there once the rest is written.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slopewise_exporter.logs import Found
from slopewise_exporter.logs.names import Names
from slopewise_exporter.tail.source import NamedValues, SourceError, Take
from slopewise_exporter.values import Checker

EVENTS_A_POLL = 2000
_LOOK_SECONDS = 2.0
_DAMAGED_SECONDS = 30.0
"""A record that is being written is whole long before."""

_FRAME_BYTES = 16
"""Of a record, beside its data: length and two checksums."""

_PAST_SECONDS = 60.0
"""An event that is older than this was written before it was looked for."""

_EVALUATION_FOLDERS = frozenset({"validation", "val", "valid", "eval", "evaluation", "test"})
_FLOAT, _DOUBLE = 1, 2
"""Types of a tensor."""


class TensorBoardSource(NamedValues):
    """All event files of a run: those in its folder, and in `train` and `validation` below it. Or one file."""

    def __init__(self, path: Path, names: Names, take: Take, check: Checker) -> None:
        """SourceError where TensorBoard is not installed."""
        super().__init__(path, names, take, check)
        self._path = path
        self._files: dict[Path, _EventFile] = {}
        self._skip: dict[str, int] = {}
        self._looked_at = -_LOOK_SECONDS
        _reader()

    @property
    def position(self) -> dict[str, Any]:
        """What `resume` takes: events read of each file."""
        return {"events": {path.name: file.events for path, file in self._files.items()}}

    def resume(self, position: dict[str, Any]) -> None:
        """Go on where another one was. KeyError, TypeError or ValueError where it is no position."""
        self._skip = {str(name): int(count) for name, count in position["events"].items()}

    def poll(self) -> bool:
        """Hand over what is there, some events of each file at most; False: there is nothing."""
        if time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._look_for_files()
        some = False
        for file in self._files.values():
            some = self._poll(file) or some
        return some

    def _look_for_files(self) -> None:
        self._looked_at = time.monotonic()
        found = [self._path] if self._path.is_file() else sorted(self._path.glob("**/*.tfevents.*"))
        for path in found:
            if path not in self._files and path.stat().st_size:
                self._files[path] = _EventFile(path, self._skip.pop(path.name, 0))

    def _poll(self, file: _EventFile) -> bool:
        some = False
        try:
            for event in file.events_now(EVENTS_A_POLL):
                some = True
                self._event(event, file.is_evaluation)
        except Exception as error:  # of the reader, or of a message that is none
            self._check.warn(f"events of {file.path}", f"{file.path} cannot be read further ({error})")
            file.is_damaged = True
        if file.ends_in_half_a_record():
            self._check.warn(
                f"events of {file.path}",
                f"{file.path} ends in a record that is cut off or damaged, and is read no further",
            )
        return some

    def _event(self, event: Any, is_evaluation: bool) -> None:
        values = {value.tag: _number(value) for value in event.summary.value}
        at_seconds = event.wall_time if time.time() - event.wall_time > _PAST_SECONDS else None
        for tag, number in values.items():
            found = None if number is None else self._found(tag, number, event.step, is_evaluation)
            if found is not None:
                self._take(found, at_seconds)

    def _found(self, tag: str, number: float, step: int, is_evaluation: bool) -> Found | None:
        meaning = self._names.meaning_of_path(tag)
        if meaning is None:
            return None
        if meaning.field == "evaluation" or (meaning.field == "loss" and is_evaluation):
            return Found(evaluation=number)
        if meaning.field == "loss":
            # Keras counts its epochs from 0 as the steps of these.
            return Found(loss=number, epoch=step) if tag.startswith("epoch_") else Found(loss=number, step=max(0, step))
        if meaning.field == "epoch" and number >= 0:
            return Found(epoch=float(number))
        return None


class _EventFile:
    """One file, and how far it is read."""

    def __init__(self, path: Path, skip: int) -> None:
        self.path = path
        self.events = 0
        self.is_evaluation = path.parent.name.lower() in _EVALUATION_FOLDERS
        self.is_damaged = False
        self._skip = skip
        self._bytes = 0
        loader, self._event = _reader()
        self._loader = loader(str(path))
        self._last_event_at = time.monotonic()

    def events_now(self, most: int) -> Iterator[Any]:
        """Those that are whole."""
        if self.is_damaged:
            return
        for record in self._loader.Load():
            self.events += 1
            self._bytes += len(record) + _FRAME_BYTES
            self._last_event_at = time.monotonic()
            if self.events > self._skip:
                yield self._event.FromString(record)
            if self.events % most == 0:
                return

    def ends_in_half_a_record(self) -> bool:
        """Whether there is more, and it has been no whole record for a while."""
        if self.is_damaged or time.monotonic() - self._last_event_at < _DAMAGED_SECONDS:
            return False
        return self.path.stat().st_size > self._bytes


def _number(value: Any) -> float | None:
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor"):
        return None
    tensor = value.tensor
    if any(dimension.size != 1 for dimension in tensor.tensor_shape.dim):
        return None
    if tensor.dtype == _FLOAT:
        if tensor.float_val:
            return float(tensor.float_val[0])
        return float(struct.unpack("<f", tensor.tensor_content)[0]) if len(tensor.tensor_content) == 4 else None
    if tensor.dtype == _DOUBLE:
        if tensor.double_val:
            return float(tensor.double_val[0])
        return float(struct.unpack("<d", tensor.tensor_content)[0]) if len(tensor.tensor_content) == 8 else None
    return None


def _reader() -> tuple[Any, Any]:
    """The loader of records, and the message that each of them is."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
        from tensorboard.compat.proto.event_pb2 import Event
    except ImportError as error:
        raise SourceError(
            f"event files need TensorBoard's reader: install slopewise-exporter[tensorboard] ({error})"
        ) from error
    return RawEventFileLoader, Event
