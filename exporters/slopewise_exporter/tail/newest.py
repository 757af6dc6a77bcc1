"""Follows the newest of several files or folders: container logs that are numbered by restart, runs in a folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Callable

from slopewise_exporter.tail.source import Source

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
