"""Waiting for what other threads, other processes and clusters do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TypeVar

import psutil

Seen = TypeVar("Seen")
_POLL_SECONDS = 0.1


def eventually(condition: Callable[[], object], seconds: float = 180.0) -> bool:
    """True as soon as it holds; False when it does not within that time."""
    start = time.monotonic()
    while not condition():
        waited = time.monotonic() - start
        if waited > seconds:
            return False
        # Slows down, since some conditions read all processes of the machine: at most 10 % or 0.1 s is lost.
        time.sleep(min(0.01 + waited / 10, _POLL_SECONDS))
    return True


def wait_for(what: str, look: Callable[[], Seen], done: Callable[[Seen], object], seconds: float = 180) -> Seen:
    """Look until `done` says yes of what is seen, and return that; AssertionError with what was seen last.

    `seconds`: only where a longer wait is meant, since a machine may be busy. A bound that a shorter one would show is
    read from what was logged.
    """
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if done(seen):
            return seen
        if time.monotonic() >= deadline:
            shown = seen if isinstance(seen, str) else json.dumps(seen, default=str, indent=1)
            raise AssertionError(f"{what}: not within {seconds:g} s; seen last:\n{shown}")
        time.sleep(_POLL_SECONDS)


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
