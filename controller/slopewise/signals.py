"""Handles Ctrl-C, SIGTERM and hang-up: `orderly_stop` interrupts the work, `received_signals` records the signal.

A cluster's commands record it, so that no write is interrupted. They install the handlers before slow imports: as
process 1 of a container, a process without a handler ignores SIGTERM, and is killed half a minute later.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from slopewise.errors import SlopewiseError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The user or the system asked us to stop; everything is put back on the way out.

    No `KeyboardInterrupt`: the command line library would turn that into an exit code of its own.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


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


class StoppedError(SlopewiseError):
    """A signal came during a wait."""

    def __init__(self, stop: StopSignal) -> None:
        super().__init__(f"stopped by {stop.name}; nothing was changed.")
        self.exit_code = stop.exit_code


@contextmanager
def received_signals() -> Iterator[StopSignal]:
    """Record signals while the block runs."""
    with closing(StopSignal()) as stop, _handled(stop.note):
        yield stop


@contextmanager
def orderly_stop(announce: Callable[[str], None]) -> Iterator[None]:
    """Raise `Interrupted` in the main thread at the first signal; say so and go on tidying up at later ones."""
    seen: list[int] = []

    def on_signal(number: int) -> None:
        seen.append(number)
        if len(seen) == 1:
            raise Interrupted(number)
        with suppress(Exception):  # a closed terminal must not cut the tidying up short
            announce("Already stopping: limits and processes are being put back, which takes a few seconds.")

    with _handled(on_signal):
        yield


@contextmanager
def _handled(on_signal: Callable[[int], None]) -> Iterator[None]:
    """Call `on_signal` while the block runs. An ignored signal stays ignored, as under nohup."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, lambda number, _frame: on_signal(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_further_signals() -> None:
    """Let none of these signals replace the exit code of a process that is on its way out."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
