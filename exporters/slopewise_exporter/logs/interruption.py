"""Ends a match of Python's `re` that takes too long: its engine looks for signals, and this sends one.

A timer ticks while lines are matched; a line that is still being matched at the second tick in a row is given up. So a
line costs no system call. Only in the main thread, where signals arrive, and only where nothing else uses SIGALRM.
"""

from __future__ import annotations

import atexit
import signal
import threading
from types import FrameType, TracebackType

MAX_SECONDS_A_LINE = 0.5
_TICK_SECONDS = MAX_SECONDS_A_LINE / 2
_IDLE_TICKS = 20
"""Without a line: then the timer stops until the next one."""


class TimeUp(BaseException):
    """Raised in the middle of a match. No Exception, which anything on the way might catch."""


class Watch:
    """`with watch:` around the work on one line."""

    def __init__(self) -> None:
        self._line = 0
        self._armed = False
        self._line_at_tick = -1
        self._idle_ticks = 0
        self._ticking = False
        signal.signal(signal.SIGALRM, self._tick)
        atexit.register(self._stop)  # the interpreter puts the old handlers back, and that of this signal kills

    @classmethod
    def of_this_thread(cls) -> Watch | None:
        """None where it cannot work."""
        if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
            return None
        return cls() if signal.getsignal(signal.SIGALRM) in (signal.SIG_DFL, signal.SIG_IGN) else _installed()

    def __enter__(self) -> None:
        self._line += 1
        if not self._ticking:
            self._ticking = True
            signal.setitimer(signal.ITIMER_REAL, _TICK_SECONDS, _TICK_SECONDS)
        self._armed = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._armed = False

    def _tick(self, _number: int, _frame: FrameType | None) -> None:
        same = self._line == self._line_at_tick
        self._line_at_tick = self._line
        self._idle_ticks = self._idle_ticks + 1 if same else 0
        if same and self._armed:
            self._armed = False
            raise TimeUp
        if self._idle_ticks >= _IDLE_TICKS:
            self._stop()

    def _stop(self) -> None:
        self._ticking = False
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _installed() -> Watch | None:
    """The one whose handler is there."""
    owner = getattr(signal.getsignal(signal.SIGALRM), "__self__", None)
    return owner if isinstance(owner, Watch) else None
