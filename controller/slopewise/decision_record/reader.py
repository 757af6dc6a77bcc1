"""Reads a decision record: its lines in order, each with the settings that it was decided with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from slopewise.decision_record.files import older
from slopewise.decision_record.lines import SCHEMA, Line, Pass, Settings, decode, with_nan
from slopewise.errors import UsageError
from slopewise.model import ClusterSnapshot

Announce = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RecordedPass:
    """One pass of a record, and where it is."""

    where: str
    """`FILE, line N`."""
    settings: Settings
    recorded: Pass


def read(path: Path, announce: Announce) -> Iterator[RecordedPass]:
    """Every pass of a record, those of its older file first; UsageError says which line cannot be read.

    A line that was cut off when its controller was killed is left out, and `announce` says so.
    """
    files = [file for file in (older(path), path) if file.exists()]
    if not path.exists():
        raise UsageError(f"{path}: there is no such decision record; `slopewise run --record FILE` writes one.")
    settings: Settings | None = None
    for numbered, following in _pairs(chain.from_iterable(map(_numbered, files))):
        line = _decoded(numbered, following, announce)
        if isinstance(line, Settings):
            settings = _readable(line, numbered)
        elif isinstance(line, Pass):
            if settings is None:
                raise UsageError(f"{numbered.where}: no settings before this pass; the begin of the record is missing.")
            yield RecordedPass(numbered.where, settings, line)


def snapshot_of(recorded: Pass) -> ClusterSnapshot:
    """What the pass observed, with the evaluations that are no numbers. It must have observed."""
    if recorded.inputs is None:
        raise ValueError("a pass that could not observe has no snapshot")
    return with_nan(recorded.inputs.snapshot, recorded.inputs.not_finite)


class _Numbered(NamedTuple):
    where: str
    line: bytes


def _numbered(file: Path) -> Iterator[_Numbered]:
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _Numbered(f"{file}, line {number}", line)
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror or error}.") from error


def _pairs(lines: Iterator[_Numbered]) -> Iterator[tuple[_Numbered, bytes | None]]:
    """Each line, with the one that follows it."""
    before: _Numbered | None = None
    for line in lines:
        if before is not None:
            yield before, line.line
        before = line
    if before is not None:
        yield before, None


def _decoded(numbered: _Numbered, following: bytes | None, announce: Announce) -> Line | None:
    try:
        return decode(numbered.line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        cut_off = not isinstance(error, msgspec.ValidationError)
        if cut_off and (following is None or _is_settings(following)):
            announce(f"{numbered.where}: cut off when its controller ended; left out.")
            return None
        raise UsageError(f"{numbered.where}: not a line of a decision record ({error}).") from error


def _is_settings(line: bytes) -> bool:
    """After a restart, a record goes on with its settings."""
    try:
        return isinstance(decode(line), Settings)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def _readable(settings: Settings, numbered: _Numbered) -> Settings:
    if settings.schema != SCHEMA:
        raise UsageError(
            f"{numbered.where}: schema {settings.schema}, written by Slopewise {settings.slopewise}; this version "
            f"reads schema {SCHEMA}. Replay it with the version that wrote it."
        )
    return settings
