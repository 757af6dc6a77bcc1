"""Prints the steps of long work on stderr, with their durations.

Used by everything that takes longer than a moment. Plain lines: the same in a terminal, in a file and in CI.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

_HEARTBEAT_SECONDS = 20.0
"""CI systems end a job that says nothing for minutes, and people think that it hangs."""


class Progress:
    """Prints one line when a step has ended, and while a program runs for long, one every 20 s."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        """`stream`: stderr when not given."""
        self._stream = stream or sys.stderr

    def say(self, text: str) -> None:
        """One line."""
        print(text, file=self._stream, flush=True)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Print the step at its begin, and its duration at its end."""
        self.say(f"{text} ...")
        start = time.monotonic()
        yield
        self.say(f"{text}: {time.monotonic() - start:.1f} s")

    def wait(self, process: subprocess.Popen[bytes], text: str) -> None:
        """Wait for a program, with a line now and then."""
        start = time.monotonic()
        while True:
            try:
                process.wait(_HEARTBEAT_SECONDS)
            except subprocess.TimeoutExpired:
                self.say(f"  {text}: {time.monotonic() - start:.0f} s")
            else:
                return
