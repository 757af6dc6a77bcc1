"""Follows a CSV file with a header, as Lightning's CSVLogger and Keras' CSVLogger write it.

Lightning writes the whole file again when a new column comes. The rows that were read before are then passed over: it
is the same file while its first row says the same.
"""

from __future__ import annotations

import csv
from typing import Any

from slopewise_exporter.logs import LineSplitter
from slopewise_exporter.logs.names import Names
from slopewise_exporter.logs.text import found_in_pairs
from slopewise_exporter.tail.followed_file import FollowedFile
from slopewise_exporter.tail.source import NamedValues, Take
from slopewise_exporter.values import Checker


class CsvSource(NamedValues):
    """Rows become what a `Tracker` takes."""

    def __init__(self, file: FollowedFile, names: Names, take: Take, check: Checker) -> None:
        super().__init__(file.path, names, take, check)
        self._file = file
        self._splitter = LineSplitter()
        self._header: list[str] = []
        self._first_row: dict[str, str] = {}
        self._rows = 0
        self._pass_over = 0

    @property
    def position(self) -> dict[str, Any]:
        """What `resume` takes."""
        return {
            "file": self._file.position,
            "pending": self._splitter.pending_bytes,
            "header": self._header,
            "first_row": self._first_row,
            "rows": self._rows,
        }

    def resume(self, position: dict[str, Any]) -> None:
        """Go on where another one was. KeyError, TypeError or ValueError where it is no position."""
        self._file.resume(position["file"], int(position["pending"]))
        self._header = list(position["header"])
        self._first_row = dict(position["first_row"])
        self._rows = int(position["rows"])

    def poll(self) -> bool:
        """Hand over the rows that are there; False: there are none."""
        block = self._file.read()
        if block is None:
            return False
        if block.begins:
            self._splitter.flush()
            self._header, self._pass_over, self._rows = [], self._rows, 0
        for line in self._splitter.feed(block.data):
            self._line(line, block.at_seconds)
        return True

    def close(self) -> None:
        """Nothing more comes; a row without an end is half a row."""
        self._file.close()

    def _line(self, line: str, at_seconds: float | None) -> None:
        try:
            cells = next(csv.reader([line]), [])
        except csv.Error as error:
            self._check.warn("row", f"a row of {self.where} is no CSV ({error}); it is left out")
            return
        if not self._header:
            self._header = cells
            if not any(self._names.meaning(name) for name in cells):
                self._check.warn("header", f"no column of {self.where} is known: {', '.join(cells)[:200]}")
            return
        row = {name: cell for name, cell in zip(self._header, cells) if cell}
        self._rows += 1
        if self._rows == 1:
            same = {name: row.get(name) for name in self._first_row} == self._first_row
            self._pass_over = self._pass_over if same else 0
            self._first_row = row
        if self._rows <= self._pass_over:
            return
        found = found_in_pairs(self._names, row.items())
        if found is not None:
            self._take(found, at_seconds)
