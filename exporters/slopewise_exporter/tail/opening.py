"""Which source a path is: by its name, by what is in the folder, or as the user says; of several, the newest."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from glob import iglob as glob
from pathlib import Path
from typing import Any, Callable, NamedTuple

from slopewise_exporter.logs import LineParser
from slopewise_exporter.tail.followed_file import FollowedFile
from slopewise_exporter.tail.log_source import FileLog, LogLines, StreamLog
from slopewise_exporter.tail.source import Source, Take
from slopewise_exporter.values import Checker

FORMATS = ("auto", "log", "cri", "csv", "tensorboard", "mlflow", "wandb")

_LOG_NAMES = re.compile(r"\.(?:log|txt|out|jsonl|json|ndjson)$|^(?:log|stdout|stderr)$")
_NUMBERED = re.compile(r"^(\d+)\.log$")
_SPECIAL = frozenset({"tensorboard", "mlflow", "wandb"})
_STAGE_FOLDERS = frozenset({"train", "training", "validation", "val", "valid", "eval", "test"})
_AT_THE_SAME_TIME_SECONDS = 60.0

_MAX_FILES = 10_000
"""Looked at in a folder; beyond that it is no folder of a training."""


_LOOK_SECONDS = 2.0
"""Between two looks into the folder."""


class Newest(Source):
    """The source of the newest path, which another one replaces once that one is there and the old one is at its end.

    Args:
        where: for messages.
        find: the newest path now; None: there is none yet.
        make: opens a source at a path.
    """

    def __init__(self, where: str, find: Callable[[], Path | None], make: Callable[[Path], Source]) -> None:
        super().__init__(where)
        self._find = find
        self._make = make
        self._path: Path | None = None
        self._source: Source | None = None
        self._looked_at = -_LOOK_SECONDS

    @property
    def ended(self) -> bool:  # type: ignore[override]
        """Whether the newest says that its training has ended."""
        return self._source is not None and self._source.ended

    @property
    def failed(self) -> bool:  # type: ignore[override]
        """Whether the newest says that its training has failed."""
        return self._source is not None and self._source.failed

    @property
    def position(self) -> dict[str, Any]:
        """What `resume` takes."""
        return {"path": str(self._path), "source": self._source.position} if self._source else {}

    def resume(self, position: dict[str, Any]) -> None:
        """Go on with the path of before, if it is still there."""
        if position and Path(position["path"]).exists():
            self._open(Path(position["path"]))
            assert self._source is not None  # noqa: S101 - for the type checker
            self._source.resume(position["source"])

    def poll(self) -> bool:
        """Hand over what is there; at the end of it, look for a newer one."""
        if self._source is not None and self._source.poll():
            return True
        if time.monotonic() - self._looked_at < _LOOK_SECONDS:
            return False
        self._looked_at = time.monotonic()
        newest = self._find()
        if newest is None or newest == self._path:
            return False
        if self._source is not None and self._source.poll():  # written between the last read and the new one's start
            self._looked_at = -_LOOK_SECONDS
            return True
        self._open(newest)
        return True

    def wait(self, seconds: float) -> None:
        """Until there may be more."""
        if self._source is None:
            super().wait(seconds)
        else:
            self._source.wait(seconds)

    def close(self) -> None:
        """Nothing more comes."""
        if self._source is not None:
            self._source.close()

    def _open(self, path: Path) -> None:
        self.close()
        self._path, self._source = path, self._make(path)


@dataclass(frozen=True)
class Opening:
    """How sources are read."""

    parser: LineParser
    take: Take
    check: Checker
    finished: Any = None
    echo: bool | None = None
    last_bytes: int | None = None
    format: str = "auto"

    def open(self, what: str) -> Source:
        """The source at a path, a pattern of paths, or `-`. SourceError where it cannot be one."""
        if what == "-":
            return StreamLog(self._lines(), echo=self.echo is not False)
        path = Path(what)
        if self.format in ("tensorboard", "mlflow"):  # of which a folder may be a run, or a store
            return self._special(self.format, path)
        if path.is_dir() or what.endswith(os.sep):
            return Newest(what, lambda: newest_in(path, self.format), self._file)
        if not path.exists() and any(letter in what for letter in "*?["):
            return Newest(what, lambda: _newest(Path(found) for found in glob(what)), self._file)  # noqa: PTH207
        return self._file(path)

    def _special(self, kind: str, path: Path) -> Source:
        if kind == "tensorboard":
            from slopewise_exporter.tail.tensorboard_source import TensorBoardSource

            return TensorBoardSource(path, self.parser.names, self.take, self.check)
        if kind == "mlflow":
            from slopewise_exporter.tail.mlflow_source import open_mlflow

            return open_mlflow(path, self.parser.names, self.take, self.check)
        from slopewise_exporter.tail.wandb_source import WandbSource

        return WandbSource(path, self.parser.names, self.take, self.check)

    def _file(self, path: Path) -> Source:
        kind = kind_of(path) if self.format == "auto" else self.format
        if kind in _SPECIAL:
            return self._special(kind, path)
        if path.is_fifo():
            return StreamLog(self._lines(), echo=self.echo is True, descriptor=os.open(path, os.O_RDONLY))
        if kind == "csv":  # whose first line is the header
            from slopewise_exporter.tail.csv_source import CsvSource

            return CsvSource(FollowedFile(path, self.check), self.parser.names, self.take, self.check)
        file = FollowedFile(path, self.check, last_bytes=self.last_bytes)
        return FileLog(file, self._lines(), echo=self.echo is True)

    def _lines(self) -> LogLines:
        forced = {"cri": True, "log": False}.get(self.format)
        return LogLines(self.parser, self.take, finished=self.finished, forced_cri=forced)


def kind_of(path: Path) -> str:
    """Of one file, or of a folder that is a run; `log` where nothing shows it to be another."""
    if path.is_dir():
        return "mlflow" if path.name == "mlruns" else "tensorboard"
    if ".tfevents." in path.name:
        return "tensorboard"
    return {".wandb": "wandb", ".csv": "csv", ".db": "mlflow"}.get(path.suffix, "log")


class Candidate(NamedTuple):
    """Something in a folder that could be followed."""

    kind: str
    path: Path
    written_at: float


def newest_in(folder: Path, wanted: str = "auto") -> Path | None:
    """What to follow in a folder; None: nothing yet.

    The newest of each kind; of kinds that are written at the same time the one that says most: event files, MLflow,
    Weights & Biases, CSV files, logs.
    """
    newest: dict[str, Candidate] = {}
    for candidate in _candidates(folder):
        best = newest.get(candidate.kind)
        if best is None or _key(candidate) > _key(best):
            newest[candidate.kind] = candidate
    if wanted != "auto":
        found = newest.get("log" if wanted == "cri" else wanted)
        return found.path if found else None
    if not newest:
        return None
    last = max(candidate.written_at for candidate in newest.values())
    for kind in ("tensorboard", "mlflow", "wandb", "csv", "log"):
        if kind in newest and newest[kind].written_at >= last - _AT_THE_SAME_TIME_SECONDS:
            return newest[kind].path
    return None


def _key(candidate: Candidate) -> tuple[int, float, str]:
    """Container logs are numbered by restart: `0.log`, `1.log`."""
    number = _NUMBERED.match(candidate.path.name)
    return (int(number[1]) if number else -1, candidate.written_at, candidate.path.name)


def _candidates(folder: Path) -> Iterator[Candidate]:
    for looked_at, path in enumerate(_files_below(folder)):
        if looked_at == _MAX_FILES:
            return
        with suppress(OSError):
            written_at = path.stat().st_mtime
            parts = path.parts
            if "mlruns" in parts:
                if "metrics" in parts:
                    yield Candidate("mlflow", Path(*parts[: parts.index("mlruns") + 1]), written_at)
                continue
            kind = kind_of(path)
            if kind == "log" and not _LOG_NAMES.search(path.name):
                continue
            yield Candidate(kind, _run_of(path) if kind == "tensorboard" else path, written_at)


def _run_of(event_file: Path) -> Path:
    """The folder of a run: Keras and others write into `train` and `validation` below it."""
    folder = event_file.parent
    return folder.parent if folder.name.lower() in _STAGE_FOLDERS else folder


def _newest(paths: Iterable[Path]) -> Path | None:
    found: list[tuple[tuple[int, float, str], Path]] = []
    for path in paths:
        with suppress(OSError):
            found.append((_key(Candidate("log", path, path.stat().st_mtime)), path))
    return max(found)[1] if found else None


def _files_below(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder.absolute()):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            yield Path(place, name)
