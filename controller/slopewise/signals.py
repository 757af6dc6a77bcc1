"""Handles Ctrl-C and SIGTERM.

The first one ends the work in an orderly way; later ones do not interrupt the cleanup.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The user or the system asked us to stop; everything is put back on the way out.

    No `KeyboardInterrupt`: the command line library would turn that into an exit code of its own.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


@contextmanager
def orderly_stop(announce: Callable[[str], None]) -> Iterator[None]:
    """Raise `Interrupted` in the main thread at the first signal; say so and go on tidying up at later ones."""
    seen: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        if len(seen) == 1:
            raise Interrupted(number)
        with suppress(Exception):  # a closed terminal must not cut the tidying up short
            announce("Already stopping: limits and processes are being put back, which takes a few seconds.")

    # What was ignored stays ignored: under nohup, closing the terminal must not end days of training.
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_further_signals() -> None:
    """Let none of these signals replace the exit code of a process that is on its way out."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
