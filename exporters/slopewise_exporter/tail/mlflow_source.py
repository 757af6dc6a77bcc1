"""Follows the newest run of MLflow's local stores: `mlflow.db`, the default of today, and the older folder `mlruns`.

Both are read without MLflow. The tables and files are those of its versions 1 to 3; a run's status says that it ended.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from slopewise_exporter.logs.names import Names
from slopewise_exporter.logs.text import found_in_pairs, number_in
from slopewise_exporter.tail.followed_file import FollowedFile
from slopewise_exporter.tail.source import NamedValues, Source, Take
from slopewise_exporter.values import Checker

ROWS_A_POLL = 5000
_LOOK_SECONDS = 2.0
_PAST_SECONDS = 60.0
_FINISHED = ("FINISHED", "3")
_FAILED = ("FAILED", "KILLED", "4", "5")
"""As names in the database, as numbers in `meta.yaml`."""


def open_mlflow(path: Path, names: Names, take: Take, check: Checker) -> Source:
    """The source at a database, at a folder with one, or at `mlruns`."""
    if path.is_dir() and (path / "mlflow.db").exists():
        path = path / "mlflow.db"
    if path.suffix == ".db":
        return MlflowDatabase(path, names, take, check)
    return MlflowFolder(path / "mlruns" if (path / "mlruns").is_dir() else path, names, take, check)


class _Run(NamedValues):
    """What the two stores have in common: one run, its plan, its status, and metrics by name."""

    _run: str | None = None

    def _begin(self, run: str, parameters: Iterable[tuple[str, Any]]) -> None:
        self._run, self.ended, self.failed = run, False, False
        self._take_plan(parameters)

    def _metric(self, name: str, value: float, step: int, milliseconds: float) -> None:
        # It keeps all values as floats: an epoch of 3.0 may well have been 3.
        found = found_in_pairs(self._names, [(name, int(value) if value.is_integer() else value)])
        if found is None:
            return
        at_seconds = milliseconds / 1000
        past = at_seconds if time.time() - at_seconds > _PAST_SECONDS else None
        self._take(found._replace(step=max(0, step)) if found.loss is not None else found, past)

    def _ends_as(self, status: str) -> None:
        self.failed = status in _FAILED
        self.ended = self.failed or status in _FINISHED


class MlflowDatabase(_Run):
    """`mlflow.db`, or another SQLite database of MLflow; opened for reading only."""

    def __init__(self, where: Path, names: Names, take: Take, check: Checker) -> None:
        super().__init__(where, names, take, check)
        self._path = where
        self._row = 0

    @property
    def position(self) -> dict[str, Any]:
        """What `resume` takes."""
        return {"run": self._run, "row": self._row}

    def resume(self, position: dict[str, Any]) -> None:
        """Go on where another one was. KeyError, TypeError or ValueError where it is no position."""
        self._run, self._row = position["run"], int(position["row"])

    def poll(self) -> bool:
        """Hand over the metrics that are there; False: there are none."""
        if not self._path.exists():
            return False
        try:
            with closing(sqlite3.connect(f"file:{quote(str(self._path))}?mode=ro", uri=True, timeout=5)) as database:
                return self._read(database)
        except sqlite3.Error as error:
            self._check.warn("database", f"cannot read {self.where} ({error}); tried again")
            return False

    def _read(self, database: sqlite3.Connection) -> bool:
        latest = "SELECT run_uuid, status FROM runs ORDER BY start_time DESC, run_uuid LIMIT 1"
        run, status = database.execute(latest).fetchone() or (None, "")
        if run is None:
            return False
        if run != self._run:
            self._row = 0
            parameters = database.execute("SELECT key, value FROM params WHERE run_uuid = ?", (run,))
            self._begin(run, parameters.fetchall())
        rows = database.execute(
            "SELECT rowid, key, value, step, timestamp, is_nan FROM metrics WHERE run_uuid = ? AND rowid > ? "
            "ORDER BY rowid LIMIT ?",
            (run, self._row, ROWS_A_POLL),
        ).fetchall()
        for row, key, value, step, milliseconds, is_nan in rows:
            self._row = row
            self._metric(key, float("nan") if is_nan else value, step, milliseconds)
        if not rows:
            self._ends_as(str(status))
        return bool(rows)


class MlflowFolder(_Run):
    """`mlruns/EXPERIMENT/RUN/metrics/NAME`, a line `milliseconds value step` for each value."""

    def __init__(self, where: Path, names: Names, take: Take, check: Checker) -> None:
        super().__init__(where, names, take, check)
        self._folder = where
        self._looked_at = -_LOOK_SECONDS
        self._files: dict[str, FollowedFile] = {}
        self._rests: dict[str, bytes] = {}
        self._resumed: dict[str, Any] = {}

    @property
    def position(self) -> dict[str, Any]:
        """What `resume` takes."""
        files = {
            name: {"file": file.position, "pending": len(self._rests.get(name, b""))}
            for name, file in self._files.items()
        }
        return {"run": self._run, "files": files}

    def resume(self, position: dict[str, Any]) -> None:
        """Go on where another one was. KeyError, TypeError or ValueError where it is no position."""
        self._run, self._resumed = position["run"], dict(position["files"])

    def poll(self) -> bool:
        """Hand over the metrics that are there; False: there are none."""
        if time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = time.monotonic()
            with suppress(OSError):
                self._look_for_run()
        some = False
        for name, file in self._files.items():
            some = self._read(name, file) or some
        if not some and self._run is not None:
            self._ends_as(_entry(Path(self._run) / "meta.yaml", "status"))
        return some

    def close(self) -> None:
        """Nothing more comes."""
        for file in self._files.values():
            file.close()

    def _look_for_run(self) -> None:
        runs = [path.parent for path in self._folder.glob("*/*/meta.yaml")]
        if not runs:
            return
        newest = str(max(runs, key=lambda run: (_entry(run / "meta.yaml", "start_time"), run.name)))
        if newest != self._run:
            self.close()
            self._files, self._rests, self._resumed = {}, {}, {}
            parameters = Path(newest) / "params"
            self._begin(newest, ((path.name, path.read_text(encoding="utf-8")) for path in parameters.glob("*")))
        metrics = Path(newest) / "metrics"
        for path in sorted(metrics.rglob("*")):
            name = path.relative_to(metrics).as_posix()
            if name not in self._files and path.is_file():
                self._files[name] = FollowedFile(path, self._check)
                if name in self._resumed:
                    self._files[name].resume(self._resumed[name]["file"], int(self._resumed[name]["pending"]))

    def _read(self, name: str, file: FollowedFile) -> bool:
        block = file.read()
        if block is None:
            return False
        *lines, self._rests[name] = (self._rests.get(name, b"") + block.data).split(b"\n")
        for line in lines:
            self._line(name, line.decode("utf-8", "replace"))
        return True

    def _line(self, name: str, line: str) -> None:
        parts = line.split()
        numbers = [number_in(part) for part in parts[:3]]
        if len(numbers) < 2 or None in numbers:
            self._check.warn("line", f"a line of the metric {name} is none; it is left out")
            return
        milliseconds, value, step = (*numbers, 0)[:3]
        self._metric(name, float(value), int(step), float(milliseconds))


def _entry(path: Path, name: str) -> str:
    """Of a file of simple `name: value` lines; as text, which compares like the number for times of one length."""
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return value.strip()
    return ""
