"""Checkpoints on disk: written so that a kill at any moment leaves the one before whole, and read with suspicion.

What a checkpoint is made of, in the order in which it gets its names:

    00000012.pt      the state, exactly as the framework writes it
    00000012.json    the manifest: size and CRC of the state, steps, samples, epochs

The manifest comes last: without one there is no checkpoint, so a kill between the two leaves an orphan and not half a
checkpoint. Each is written under a temporary name, flushed to the disk and renamed, since a rename alone may reach the
disk before the contents do. The number counts saves, not steps: a training that began again in an old folder keeps its
own saves, although those of the old one have more steps.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, time
from typing import Any, Callable

from slopewise_exporter.record import Progress
from slopewise_exporter.values import Checker

FORMAT = 1
MANIFEST_SUFFIX = ".json"
_TEMPORARY_PREFIX = ".slopewise-"
_CHUNK_BYTES = 1 << 20


class TornCheckpoint(Exception):  # noqa: N818 - what it is; nothing of it reaches a user as an error
    """A checkpoint that is not what was written: cut short, changed, or of somebody else."""


class NewerFormat(OSError):  # noqa: N818 - as above
    """A checkpoint of a newer version: perhaps whole, so it is not overwritten, as on a disk that fails."""


@dataclass(frozen=True)
class FileMark:
    """What a file's contents are known by."""

    bytes: int
    crc32: int


@dataclass(frozen=True)
class Found:
    """A checkpoint that is whole."""

    number: int
    path: Path
    progress: Progress


class CheckpointFolder:
    """The checkpoints of one training, which has the folder to itself; the newest `keep` are kept."""

    def __init__(self, folder: Path, suffix: str, keep: int) -> None:
        self._folder = folder
        self._suffix = suffix
        self._keep = keep
        self._check = Checker()
        self._good: list[int] = []
        """Numbers that this process has read or written, oldest first: the only ones known to be whole."""

    def prepare(self) -> None:
        """Make the folder and try to write to it; OSError when that cannot be.

        Drafts of a life that was killed while it saved go: only one process writes here, and this is it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        for draft in self._folder.glob(f"{_TEMPORARY_PREFIX}*"):
            _remove(draft)
        probe = self._temporary()
        try:
            probe.write_bytes(b"?")
        finally:
            probe.unlink(missing_ok=True)

    def newest(self, tell: Callable[[Path, str], None]) -> Found | None:
        """The newest that is whole; `tell` hears of each that is not, and why.

        OSError: the folder cannot be read, or none is whole and one of them cannot be read.
        """
        numbers = {self._manifest(number): number for number in sorted(self._numbers(), reverse=True)}
        whole = first_whole(numbers, tell)
        if whole is None:
            return None
        number = numbers[whole[0]]
        self._good = [number]
        return Found(number, self._data(number), whole[1])

    def write(self, save: Callable[[Path], None], progress: Progress) -> Progress:
        """One more checkpoint: `save` puts the state into the file that it is given. Returns when it is on the disk.

        Whatever `save` raises goes up, and OSError of ours; the checkpoints before it are then as they were.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        number = max(self._numbers(), default=0) + 1
        started = perf_counter()
        draft = self._temporary()
        try:
            save(draft)
            mark = _settle(draft)
            draft.replace(self._data(number))
        except BaseException:
            _remove(draft)
            raise
        saved = Progress(
            progress.steps, progress.samples, progress.epochs, time(), duration_seconds=perf_counter() - started
        )
        write_manifest(self._manifest(number), {self._data(number).name: mark}, saved)
        self._good.append(number)
        try:
            self._remove_others()
            self._check.forget("remove")
        except OSError as error:
            # The new one is on the disk all the same, and the next save tries to remove them again.
            self._check.warn("remove", f"checkpoints that are not needed any more cannot be removed ({error})")
        return saved

    def discard(self, save: Callable[[Path], None]) -> None:
        """Let `save` write, and keep nothing of it."""
        draft = self._temporary()
        try:
            save(draft)
        finally:
            _remove(draft)

    def any(self) -> bool:
        """Something here calls itself a checkpoint."""
        with suppress(OSError):
            return bool(self._numbers())
        return False

    def _remove_others(self) -> None:
        """All but the newest that are known to be whole; manifests first, so that no checkpoint is ever half there."""
        self._good = self._good[-self._keep :]
        for number in self._numbers().difference(self._good):
            self._manifest(number).unlink(missing_ok=True)
        for number in self._numbers(self._suffix).difference(self._good):
            self._data(number).unlink(missing_ok=True)

    def _numbers(self, suffix: str = MANIFEST_SUFFIX) -> set[int]:
        names = [path.name for path in self._folder.iterdir() if path.name.endswith(suffix)]
        return {int(name) for name in (name[: -len(suffix)] for name in names) if name.isdecimal()}

    def _temporary(self) -> Path:
        # A random name: in containers every trainer is process 1. With the suffix, which some frameworks look at.
        return self._folder / f"{_TEMPORARY_PREFIX}{uuid.uuid4().hex}{self._suffix}"

    def _data(self, number: int) -> Path:
        return self._folder / f"{number:08}{self._suffix}"

    def _manifest(self, number: int) -> Path:
        return self._folder / f"{number:08}{MANIFEST_SUFFIX}"


def first_whole(manifests: Iterable[Path], tell: Callable[[Path, str], None]) -> tuple[Path, Progress] | None:
    """The first of these whose files, which lie beside it, are whole; `tell` hears of each before it, and why.

    OSError: none is whole, and one could not be read. It may be whole, and a new start would overwrite it.
    """
    unread: OSError | None = None
    for manifest in manifests:
        try:
            return manifest, read_manifest(manifest, manifest.parent)
        except TornCheckpoint as error:
            tell(manifest, str(error))
        except OSError as error:
            tell(manifest, str(error))
            unread = unread or error
    if unread is not None:
        raise unread
    return None


def passing_over(check: Checker) -> Callable[[Path, str], None]:
    """Logs that a checkpoint is passed over, by its manifest, once."""
    message = "the checkpoint {} is passed over: {}; the one before it is tried"
    return lambda manifest, why: check.warn(str(manifest), message.format(manifest, why))


def seal(folder: Path, manifest: str, progress: Progress) -> None:
    """Say that all that is in a folder is a whole checkpoint, for frameworks that write such folders. OSError."""
    marks: dict[str, FileMark] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != manifest:
            flush_to_disk(path)
            marks[path.relative_to(folder).as_posix()] = mark_of(path)
        elif path.is_dir():
            flush_folder(path)
    write_manifest(folder / manifest, marks, progress)


def mark_of(path: Path) -> FileMark:
    """Size and CRC of a file, which is read once: about 1 GB/s from the page cache, where it has just been written."""
    crc, size = 0, 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            crc = zlib.crc32(chunk, crc)
            size += len(chunk)
    return FileMark(size, crc)


def write_manifest(path: Path, files: Mapping[str, FileMark], progress: Progress) -> None:
    """Say in one atomic move that these files are a whole checkpoint; they must be on the disk already. OSError."""
    contents = {
        "format": FORMAT,
        "files": {name: asdict(mark) for name, mark in files.items()},
        "progress": progress._asdict(),
    }
    draft = path.with_name(f"{_TEMPORARY_PREFIX}{uuid.uuid4().hex}{MANIFEST_SUFFIX}")
    try:
        draft.write_text(json.dumps(contents, indent=1), encoding="utf-8")
        flush_to_disk(draft)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def read_manifest(path: Path, folder: Path) -> Progress:
    """What a manifest states, once the files of `folder` that it names are as they were; TornCheckpoint, OSError."""
    try:
        contents: Any = json.loads(path.read_text(encoding="utf-8"))
        if contents["format"] > FORMAT:
            raise NewerFormat(f"it has format {contents['format']!r}, and this version reads {FORMAT}")
        if contents["format"] != FORMAT:
            raise TornCheckpoint(f"it has format {contents['format']!r}, and this version reads {FORMAT}")
        files = {str(name): FileMark(**mark) for name, mark in contents["files"].items()}
        progress = Progress(**contents["progress"])
    except FileNotFoundError as error:
        raise TornCheckpoint("it has no manifest, so its save was not completed, or not by this exporter") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TornCheckpoint(f"its manifest cannot be read ({type(error).__name__}: {error})") from error
    for name, mark in files.items():
        _check(folder / name, mark)
    return progress


def _check(path: Path, mark: FileMark) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise TornCheckpoint(f"{path.name} is missing") from error
    if size != mark.bytes:
        raise TornCheckpoint(f"{path.name} has {size} bytes, and {mark.bytes} were written")
    if mark_of(path) != mark:
        raise TornCheckpoint(f"{path.name} has other contents than were written")


def flush_to_disk(path: Path) -> None:
    """Wait until the file's contents are on the disk, or with its server. OSError."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk; not where a folder cannot be opened (Windows)."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _settle(draft: Path) -> FileMark:
    if draft.is_dir():
        raise IsADirectoryError("sharded checkpoints are not supported: it was saved as a folder, not a file")
    flush_to_disk(draft)
    return mark_of(draft)


def _remove(draft: Path) -> None:
    """What a save has left under a temporary name: a file, a folder (Lightning's sharded strategies), or nothing."""
    if draft.is_dir():
        shutil.rmtree(draft)
    else:
        draft.unlink(missing_ok=True)
