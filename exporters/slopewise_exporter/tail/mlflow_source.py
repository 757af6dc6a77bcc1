"""Follows the newest run of `mlflow.db`, or of another SQLite database of MLflow, without MLflow.

The tables are those of its versions 1 to 3; a run's status says that it ended.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from slopewise_exporter.logs.names import Names
from slopewise_exporter.logs.text import found_in_pairs
from slopewise_exporter.tail.source import NamedValues, Take
from slopewise_exporter.values import Checker

ROWS_A_POLL = 5000
_PAST_SECONDS = 60.0
"""A value that is older than this was written before it was looked for."""


class MlflowSource(NamedValues):
    """A database, opened for reading only; `where` may be the folder of `mlflow.db`."""

    def __init__(self, where: Path, names: Names, take: Take, check: Checker) -> None:
        super().__init__(where, names, take, check)
        self._path = where / "mlflow.db" if where.is_dir() else where
        self._run: str | None = None
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
            self._run, self._row, self.ended, self.failed = run, 0, False, False
            self._take_plan(database.execute("SELECT key, value FROM params WHERE run_uuid = ?", (run,)).fetchall())
        rows = database.execute(
            "SELECT rowid, key, value, step, timestamp, is_nan FROM metrics WHERE run_uuid = ? AND rowid > ? "
            "ORDER BY rowid LIMIT ?",
            (run, self._row, ROWS_A_POLL),
        ).fetchall()
        for row, key, value, step, milliseconds, is_nan in rows:
            self._row = row
            self._metric(key, float("nan") if is_nan else value, step, milliseconds)
        if not rows:
            self.failed = status in ("FAILED", "KILLED")
            self.ended = self.failed or status == "FINISHED"
        return bool(rows)

    def _metric(self, name: str, value: float, step: int, milliseconds: float) -> None:
        # It keeps all values as floats: an epoch of 3.0 may well have been 3.
        found = found_in_pairs(self._names, [(name, int(value) if value.is_integer() else value)])
        if found is None:
            return
        at_seconds = milliseconds / 1000
        past = at_seconds if time.time() - at_seconds > _PAST_SECONDS else None
        self._take(found._replace(step=max(0, step)) if found.loss is not None else found, past)
