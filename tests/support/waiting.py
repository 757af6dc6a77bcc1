"""Waiting for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


def eventually(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
