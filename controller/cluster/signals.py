"""SIGTERM, Ctrl-C and hang-up in a cluster's commands: noted, and nothing is interrupted in the middle of a write.

`cli.py` begins to listen before anything is imported that takes seconds: as process 1 of a container, a process that
does not listen is not ended by SIGTERM at all, but killed half a minute later.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignal:
    """The first signal that came, if any, and a way to wait for it.

    A pipe and not a `threading.Event`: a signal may come while the same thread holds an Event's lock, and then setting
    it would wait for ever. For the same reason nothing is logged by the handler.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def note(self, number: int) -> None:
        """This signal came. Later ones change nothing: the end is under way."""
        if self.number is None:
            self.number = number
            os.write(self._writer, b".")

    def wait(self, seconds: float) -> bool:
        """Wait for a signal for at most so long; True once one has come."""
        select.select([self._reader], [], [], max(0.0, seconds))
        return self.number is not None

    @property
    def name(self) -> str:
        """E.g. `SIGTERM`; empty before one came."""
        return "" if self.number is None else signal.Signals(self.number).name

    @property
    def exit_code(self) -> int:
        """Of a command that did not come to its own end."""
        return 128 + (self.number or 0)

    def close(self) -> None:
        """Give the pipe back."""
        os.close(self._reader)
        os.close(self._writer)


@contextmanager
def heard_signals() -> Iterator[StopSignal]:
    """Note signals while the block runs. What was ignored stays ignored, as under nohup."""
    stop = StopSignal()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        stop.note(number)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.close()
