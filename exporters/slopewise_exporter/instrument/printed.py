"""Follows what this process prints: `sys.stdout` and `sys.stderr` stay the same objects with the same file behind them.

What is printed is seen at once, also where the stream keeps it in a buffer of 8 KiB because it is no terminal. What
code in other languages writes to the file itself is not seen here; `slopewise-exporter run --wrap` sees it.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, Callable

from slopewise_exporter.instrument.follower import OutputFollower
from slopewise_exporter.logs.splitter import LineSplitter
from slopewise_exporter.threads.following import following
from slopewise_exporter.values import Checker


class PrintedOutput:
    """Reads what goes to both streams, until `wanted` says that it is of no more use."""

    def __init__(self, follower: OutputFollower, wanted: Callable[[], bool]) -> None:
        self._follower = follower
        self._wanted = wanted
        self._lock = threading.RLock()
        self._reading = False
        self._original: dict[Any, Callable[[str], int]] = {}

    def follow(self) -> None:
        """Begin with what is printed next."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and stream not in self._original:
                self._follow(stream)

    def abandon_after_fork(self) -> None:
        """In a forked child: read nothing. Another thread may have held the lock, and it does not exist here."""
        self._lock = threading.RLock()
        self._reading = False
        self._stop()

    def _follow(self, stream: Any) -> None:
        splitter = LineSplitter()
        write = stream.write

        def read_and_write(text: str) -> int:
            # Read first: a parent that follows the same output must not see a loss before this process has claimed it.
            self._read(splitter, text)
            return write(text)  # type: ignore[no-any-return]

        try:
            stream.write = read_and_write
        except AttributeError:  # a stream written in C: it is left alone
            return
        self._original[stream] = read_and_write

    def _read(self, splitter: LineSplitter, text: str) -> None:
        if not self._original:
            return
        with self._lock:
            # Reading may write itself: a warning about the port goes to sys.stderr.
            if self._reading:
                return
            self._reading = True
            try:
                if self._wanted():
                    for line in splitter.feed(text.encode("utf-8", "replace")):
                        self._follower.take(line)
                    # A training with a loop of its own is between two steps where it prints, in its main thread.
                    changed = self._follower.reports and following.wanted != following.applied
                    if changed and threading.current_thread() is threading.main_thread():
                        following.apply()
                else:
                    self._stop()
            except Exception as error:
                self._stop()
                Checker().warn("output", f"the output is not followed any more ({type(error).__name__}: {error})")
            finally:
                self._reading = False

    def _stop(self) -> None:
        """Put the streams' own `write` back, where nothing else has replaced it since."""
        following, self._original = self._original, {}
        for stream, ours in following.items():
            if stream.__dict__.get("write") is ours:
                del stream.write
