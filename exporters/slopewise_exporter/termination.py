"""SIGTERM, heard and kept until somebody can act on it.

Nothing is saved in the handler itself: it runs in the middle of a step, when the state is neither the old nor the new
one. `checkpoints` and the callbacks look at `asked` where a step ends.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, Callable

from slopewise_exporter.values import Checker

EXIT_CODE = 128 + signal.SIGTERM
"""143, as if the signal itself had ended the process. Never 0: to Kubernetes 0 means that the training is complete."""

_installed: list[Termination] = []
"""All that listen, oldest first: one as a rule, one for each fold where they were all made before the first began."""

_masks = threading.local()
"""The signals that a thread which is just forking held back before."""


class Termination:
    """Whether this process was told to end.

    The handler asks `nothing_to_lose`, and leaves at once where that is so: before the first step, loading the data or
    compiling may take minutes, longer than the grace period. `reporter` leaves last.
    """

    def __init__(self, nothing_to_lose: Callable[[], bool], reporter: Any = None) -> None:
        self.asked = False
        self.installed = False
        self._nothing_to_lose = nothing_to_lose
        self._reporter = reporter
        self._before: Any = None

    def install(self) -> bool:
        """Listen from now on; False where a handler cannot be set, since this is not the main thread."""
        try:
            self._before = signal.signal(signal.SIGTERM, self._hear)
        except ValueError:
            return False
        self.installed = True
        _installed.append(self)
        return True

    def restore(self) -> None:
        """Put the handler back that was there before; nothing where ours is not the one in use."""
        if not self.installed:
            return
        self.installed = False
        _installed.remove(self)
        for other in _installed:
            if other._before == self._hear:
                other._before = self._before  # what it puts back one day must not be a handler that has gone
        if signal.getsignal(signal.SIGTERM) == self._hear:
            # None: it was set by code that is not Python, and cannot be put back from here. ValueError: this is not the
            # main thread, and our handler, which stays, ends the process at once.
            with suppress(ValueError):
                signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)

    def leave(self) -> None:
        """SystemExit with `EXIT_CODE`, once everything is saved; on another thread than the main one, in both.

        A handler that was there before ours is called first: somebody counted on it. Whatever it raises changes
        nothing: many end with `sys.exit(0)`, which in the middle of a training would count as its end.
        """
        if threading.current_thread() is not threading.main_thread():
            # It would end this thread alone, and the process, whose main thread goes on, as if it were complete.
            self._nothing_to_lose = lambda: True
            for each in [self, *_installed]:
                each.asked = False
            os.kill(os.getpid(), signal.SIGTERM)
            raise SystemExit(EXIT_CODE)
        before = self._handler_of_somebody_else()
        if callable(before):
            try:
                before(signal.SIGTERM, None)
            except BaseException as error:
                problem = f"the SIGTERM handler of before raised {type(error).__name__}: {error}"
                Checker().warn("SIGTERM", f"{problem}; the process ends with {EXIT_CODE} all the same")
        for each in [self, *_installed]:
            if each._reporter is not None:
                each._reporter.leave()
        raise SystemExit(EXIT_CODE)

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        # A second one, while the state is being saved, changes nothing. The handler of the last one that was made hears
        # for all: to leave because it has not begun would end the training of another one in the middle of its step.
        again, self.asked = self.asked, True
        for each in _installed:
            each.asked = True
        if not again and all(each._nothing_to_lose() for each in _installed):
            self.leave()

    def _handler_of_somebody_else(self) -> Any:
        before = self._before
        while isinstance(ours := getattr(before, "__self__", None), Termination):
            before = ours._before
        return before


def _hold_back_for_fork() -> None:
    # Python drops, in a new child, what arrived before that could act. Held back, it comes once the handler has gone.
    if _installed:
        _masks.before_fork = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _go_on_after_fork() -> None:
    mask = _masks.__dict__.pop("before_fork", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _forget_after_fork() -> None:
    # A data loader's worker that only noted SIGTERM would never end, nor would a process that waits for it.
    while _installed:
        _installed[-1].restore()
    _go_on_after_fork()


if hasattr(os, "register_at_fork"):  # there is no fork on Windows
    os.register_at_fork(
        before=_hold_back_for_fork, after_in_parent=_go_on_after_fork, after_in_child=_forget_after_fork
    )
