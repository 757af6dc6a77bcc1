"""Records SIGTERM, Ctrl-C and hang-up for a cluster's commands, without interrupting a write.

The commands install the handlers before slow imports: as process 1 of a container, a process without a handler ignores
SIGTERM, and is killed half a minute later.
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
    """The first signal, if any, and a way to wait for it.

    A pipe and not a `threading.Event`: a signal may come while the same thread holds an Event's lock, and setting it
    would then block forever. For the same reason the handler logs nothing.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def note(self, number: int) -> None:
        """Record this signal. Later ones change nothing."""
        if self.number is None:
            self.number = number
            os.write(self._writer, b".")

    def wait(self, seconds: float) -> bool:
        """Wait for a signal for at most `seconds`; True once one has come."""
        select.select([self._reader], [], [], max(0.0, seconds))
        return self.number is not None

    @property
    def name(self) -> str:
        """For example `SIGTERM`; empty before one came."""
        return "" if self.number is None else signal.Signals(self.number).name

    @property
    def exit_code(self) -> int:
        """Of a command that a signal ended."""
        return 128 + (self.number or 0)

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._reader)
        os.close(self._writer)


@contextmanager
def received_signals() -> Iterator[StopSignal]:
    """Record signals while the block runs. An ignored signal stays ignored, as under nohup."""
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
