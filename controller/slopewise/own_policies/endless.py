"""Ends code of a user's policy that does not end: an alarm in Python code, the process in anything else.

The alarm interrupts Python at its next line; `except Exception` does not catch it. A loop in C, and one that catches
everything, are ended with the process. Only in the main thread, where signals arrive.
"""

from __future__ import annotations

import faulthandler
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from slopewise.model import ClusterSnapshot, Decisions, MemoryState
from slopewise.policies import PolicyProtocol

LIMIT_SECONDS = 10.0
"""Half of the shortest interval of a paper. A pass takes milliseconds, on a machine with other work a second."""

_STDERR = 2  # the descriptor: a test has another `sys.stderr`, which is no file

PATIENCE = 3
"""So many limits go by until the process is ended: the alarm comes first wherever it can."""


class EndlessError(BaseException):
    """The policy's code has not ended in time; no Exception, so that no policy catches it by accident."""


@contextmanager
def limited(file: Path) -> Iterator[None]:
    """EndlessError where the code within takes longer than the limit, with the line of the file it was in."""

    def ring(_: int, frame: FrameType | None) -> None:
        lines = [at.lineno for at in traceback.extract_stack(frame) if at.filename == str(file)]
        where = f" (line {lines[-1]})" if lines else ""
        raise EndlessError(f"has not ended within {LIMIT_SECONDS:g} s{where}; a pass waits for it")

    handler = signal.signal(signal.SIGALRM, ring)
    left = signal.setitimer(signal.ITIMER_REAL, LIMIT_SECONDS, LIMIT_SECONDS)
    faulthandler.dump_traceback_later(PATIENCE * LIMIT_SECONDS, exit=True, file=_STDERR)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *left)


class LimitedPolicy:
    """A policy of whose decisions each must come within the limit."""

    def __init__(self, policy: PolicyProtocol, file: Path) -> None:
        """`file` is the policy's own."""
        self._policy = policy
        self._file = file

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """What the policy decides; EndlessError where it takes too long."""
        with limited(self._file):
            return self._policy.decide(snapshot, memory)
