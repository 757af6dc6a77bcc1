"""From the CPU in effect to a number of threads: down at once, up by one an interval."""

from __future__ import annotations

import math

from slopewise_exporter.threads.cpu import Reading, in_effect_cores

_SLACK_CORES = 0.1
"""Rounded up from here on. A use of 1.02 cores is measured where there is one, and a second thread for a twentieth of a
core waits 19 times as long as it runs."""

_LOW_SHARE = 0.1
"""Waits below which another thread is tried: less than those that lower the number, so that noise does not move it."""

_MOST_PAUSE = 32
"""Intervals between two tries of one more thread. A neighbour that stays is disturbed in one of 33 intervals, and one
that ended is noticed within 3 minutes."""

_STOOD = 6
"""Intervals after which a raise was right, and the next fall begins with the shortest pause again."""


def fitting(cores: float) -> int:
    """The threads for so much CPU, at least 1."""
    return max(1, math.ceil(cores - _SLACK_CORES))


class ThreadNumber:
    """The number of threads of one process, interval by interval."""

    def __init__(self, most: int, ranks: int = 1) -> None:
        """`most`: what the libraries had at their start. `ranks`: processes that share the limit."""
        self._most = most
        self._ranks = ranks
        self._number = 0
        self._limit_cores = 0.0
        self._pause = self._left = self._stood = 0

    def next(self, reading: Reading) -> int:
        """The number for the interval that begins, after the one that was read."""
        fits = min(self._most, fitting(in_effect_cores(reading, self._ranks)))
        before, self._limit_cores = self._limit_cores, reading.limit_cores
        if self._number == 0:
            self._number = fits
            return fits
        if reading.limit_cores > before:  # a resize: what was tried before says nothing
            self._pause = self._left = 0
        self._stood += 1
        if self._stood >= _STOOD:
            self._pause = 0
        if fits < self._number:
            if reading.limit_cores >= before:
                self._pause = min(_MOST_PAUSE, 2 * self._pause or 1)
            self._number, self._left, self._stood = fits, self._pause, 0
        elif self._left > 0:
            self._left -= 1
            self._stood = 0
        elif fits > self._number and (reading.waited_share or 0.0) < _LOW_SHARE:
            self._number += 1
            self._stood = 0
        return self._number
