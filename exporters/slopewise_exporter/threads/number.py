"""From the CPU in effect to a number of threads: down at once, up by one an interval, and back where that does not pay.

Threads that sleep while they wait for one another take a wake-up at each parallel region. Where the regions are short
more of them are slower on as many free cores: only the steps tell.
"""

from __future__ import annotations

import math
from typing import NamedTuple

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

_MOST_READINGS = 30
"""Of a number that is tried, a second apart. Steps of which too few have ended by then decide nothing."""

_SLOWEST_STEPS = 3 / _MOST_READINGS
"""A second, of trainings that fewer threads are tried with: three of them end in time, of which the first one does not
count. Of slower ones nothing could be said, and they would be slowed down for half a minute in three for nothing."""

_FASTER_RATIO, _DEARER_RATIO = 1.05, 1.1
"""Steps of one training differ by a few percent from second to second. A second thread that brings nothing costs twice
the CPU; a sixteenth costs less than a tenth more, and is kept."""


def fitting(cores: float) -> int:
    """The threads for so much CPU, at least 1."""
    return max(1, math.ceil(cores - _SLACK_CORES))


def pays(few: Reading, many: Reading) -> bool:
    """Whether the threads of `many` are worth more than the fewer ones of `few`; also where it is not known.

    Worked example: 400 steps a second on one core, and 50 on 0.8 cores with a second thread, do not pay.
    """
    if not few.steps_per_second or not many.steps_per_second or few.used_cores is None or many.used_cores is None:
        return True
    cost, more = few.used_cores / few.steps_per_second, many.used_cores / many.steps_per_second
    return many.steps_per_second > _FASTER_RATIO * few.steps_per_second or more < _DEARER_RATIO * cost


class _Try(NamedTuple):
    """What another number of threads is compared with."""

    number: int
    shown: Reading
    readings_left: int = _MOST_READINGS


class ThreadNumber:
    """The number of threads of one process, interval by interval."""

    def __init__(self, most: int, ranks: int = 1) -> None:
        """`most`: what the libraries had at their start. `ranks`: processes that share the limit."""
        self._most = self.useful = most
        """`useful`: the most with which its steps are faster, as far as more were tried."""
        self._ranks = ranks
        self._number = 0
        self.cores = self.limit_cores = 0.0  # in effect, and the limit, as of the last reading
        self._pause = self._left = self._stood = self._tried_left = 0
        self._try: _Try | None = None

    @property
    def tries(self) -> bool:
        """Whether the next reading decides about a number that is tried."""
        return self._try is not None

    def next(self, reading: Reading) -> int:
        """The number for the interval that begins, after the one that was read."""
        self.cores = in_effect_cores(reading, self._ranks)
        fits = min(self._most, fitting(self.cores))
        before, self.limit_cores = self.limit_cores, reading.limit_cores
        if self._number == 0:
            self._number = fits
            return fits
        if reading.limit_cores > before:  # a resize: what was tried before says nothing
            self._pause = self._left = 0
        self._stood += 1
        if self._stood >= _STOOD:
            self._pause = 0
        self._tried_left = max(0, self._tried_left - 1)
        if not self._tried_left and fitting(reading.limit_cores / self._ranks) <= self.useful:
            self.useful = self._most  # no more can be tried, and its steps may be others by now
        tried, self._try = self._try, None
        if fits < self._number:
            if reading.limit_cores >= before:
                self._pause = min(_MOST_PAUSE, 2 * self._pause or 1)
            self._number, self._left, self._stood = fits, self._pause, 0
        elif tried is not None:
            self._decide(tried, reading)
        elif self._left > 0:
            self._left -= 1
            self._stood = 0
        elif (reading.waited_share or 0.0) < _LOW_SHARE:
            self._begin_try(fits, reading)
        return self._number

    def _begin_try(self, fits: int, reading: Reading) -> None:
        """One thread more, or those that it uses alone; what was tried is not tried again for `_MOST_PAUSE`."""
        number = self._number
        if fits > number and (number < self.useful or not self._tried_left):
            self._number += 1
            self._stood = 0
        elif (
            not self._tried_left
            and reading.used_cores is not None
            and (reading.steps_per_second or 0.0) > _SLOWEST_STEPS
        ):
            self._number = min(number, fitting(reading.used_cores))
        if self._number != number and reading.steps_per_second is not None:
            self._try = _Try(number, reading)

    def _decide(self, tried: _Try, reading: Reading) -> None:
        """The better of the number that is tried and the one before it; nothing where it waited for CPU meanwhile."""
        if (reading.waited_share or 0.0) >= _LOW_SHARE:
            return
        if reading.steps_per_second is None and tried.readings_left > 1:
            self._try = tried._replace(readings_left=tried.readings_left - 1)
            return
        rose = self._number > tried.number
        few, many = (tried.shown, reading) if rose else (reading, tried.shown)
        stays = pays(few, many) == rose
        if rose:
            self.useful = self._most if stays else tried.number
        if not stays:
            self._number, self._tried_left = tried.number, _MOST_PAUSE
