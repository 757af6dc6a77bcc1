"""The small file from which a restarted reader goes on: where it was in the source, and what the counters were."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from slopewise_exporter.values import Checker

_VERSION = 1


class StateFile:
    """Written in one atomic move. What cannot be read or written is logged once, and the log is read from its start."""

    def __init__(self, path: Path | None, source: str, check: Checker) -> None:
        """`source`: what is followed; the state of another source is not used."""
        self._path = path
        self._source = source
        self._check = check
        self._written = ""

    def read(self) -> dict[str, Any] | None:
        """What was written last; None: nothing of use."""
        if self._path is None:
            return None
        try:
            state = json.loads(self._path.read_text(encoding="utf-8"))
            if state["version"] == _VERSION and state["source"] == self._source:
                return dict(state)
            problem = "it is of another source"
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = str(error) or type(error).__name__
        self._check.warn("state", f"the state in {self._path} is not used ({problem}); everything is read again")
        return None

    def write(self, state: dict[str, Any]) -> None:
        """Keep this, if it has changed."""
        if self._path is None:
            return
        text = json.dumps({"version": _VERSION, "source": self._source, **state})
        if text == self._written:
            return
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(self._path)
            self._written = text
        except OSError as error:
            self._check.warn(
                "state", f"cannot write the state to {self._path} ({error.strerror}); a restart reads everything again"
            )
