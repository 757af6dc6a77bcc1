"""What this process does with its CPU: steps a second, and whether threads of libraries are all that computes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from slopewise_exporter import lifecycle
from slopewise_exporter.threads.cpu import Reading

MIN_STEPS, MIN_SECONDS = 20, 10.0
"""What gives the speed of steps: so many of them, of which one more or less is 5 %; or two of a reporter, which times
them itself, in so long."""

BESIDE_CORES = 0.5
"""What this package and a training's other threads use at most where only the libraries' threads compute."""


def has_children() -> bool:
    """Whether this process has started others that have not ended; also where the system does not say."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except (AttributeError, OSError):  # not on Windows
        pass
    return True


class Work:
    """The work between one reading and the next."""

    def __init__(self, has_children: Callable[[], bool] = has_children) -> None:
        self.trees = 0
        """Steps of a training that reports none."""
        self._has_children = has_children
        self._beside = False
        self._threads = 0  # of libraries; 0: not known yet
        self._done: tuple[object, int, float] = (self, 0, 0.0)
        self._begins = False

    @property
    def only_libraries(self) -> bool:
        """Whether the threads of libraries were all that computed at each reading: their number bounds its CPU."""
        return self._threads > 0 and not self._beside

    def read(self, reading: Reading, threads: int | None) -> Reading:
        """The reading with the speed of steps. `threads`: what the libraries have; None: not asked yet."""
        if reading.used_cores is not None and threads is not None:
            before, self._threads = self._threads, threads  # the number may have changed within the interval
            # A loader's workers and threads of Python's own use CPU that no library has counted.
            ran_or_waited = reading.used_cores / max(1e-3, 1.0 - (reading.waited_share or 0.0))
            most = max(before, threads) + BESIDE_CORES
            self._beside = self._beside or self._has_children() or ran_or_waited > most
        return reading._replace(steps_per_second=self._steps_per_second())

    def begin_anew(self) -> None:
        """The number of threads changes with the next step: those before it say nothing of those that come."""
        self._begins = True

    def _steps_per_second(self) -> float | None:
        """None: there were too few, which count on, or another training reports."""
        reporter = lifecycle.newest()
        steps, seconds = getattr(reporter, "timed_steps", (self.trees, time.monotonic()))
        before, counted, began = self._done
        done, took = steps - counted, seconds - began
        # The step that ran while the number changed is one of many, or is left out.
        slow = reporter is not None and took >= MIN_SECONDS and done > 1 and not self._begins
        enough = took > 0 and (done >= MIN_STEPS or slow)
        if before is reporter and not enough and not (self._begins and done > 0):
            return None
        self._done, self._begins = (reporter, steps, seconds), False
        return done / took if before is reporter and enough else None
