"""Holds the number of threads that is wanted, and sets it from the training's own thread between two steps.

A step compares two numbers. The files are read in a thread of this module.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from typing import Any, Callable

from slopewise_exporter.threads.at_start import (
    FOLLOW,
    GENERAL,
    OFF,
    OURS_VARIABLE,
    WAIT,
    is_by_hand,
    local_ranks,
    ours_in,
    set_ours,
    setting,
)
from slopewise_exporter.threads.cpu import CpuReader, Reading, affinity_cores, in_effect_cores
from slopewise_exporter.threads.libraries import Libraries
from slopewise_exporter.threads.number import ThreadNumber
from slopewise_exporter.threads.work import Work
from slopewise_exporter.values import Checker

INTERVAL_SECONDS = 5.0

FIRST_INTERVAL_SECONDS = 1.0
"""After the first step: under weights nothing else says that the CPU is short, and a short training ends soon. And of
a number that is tried, which may be 20 times as slow."""


class Following:
    """The number of threads of this process; begins with the first step that is shown to it."""

    def __init__(self, read: Callable[[], Reading] | None = None, interval_seconds: float = INTERVAL_SECONDS) -> None:
        """`read`: instead of a `CpuReader`. `interval_seconds`: 0 reads only when `look` is called."""
        self.wanted = -1
        """The number of threads for the CPU in effect; it differs from `applied` at the first step."""
        self.applied = 0
        self.threads: int | None = None
        """What the libraries had when they were last asked."""
        self.cores: float | None = None
        """The CPU in effect."""
        self.work = Work()
        self.thread: threading.Thread | None = None
        """The training's, where others report steps too: OpenMP's number belongs to the thread that asks."""
        self._read = read
        self._interval_seconds = interval_seconds
        self._check = Checker()
        self._lock = threading.Lock()
        self._ranks = 1
        self._number: ThreadNumber | None = None
        self._libraries: Libraries | None = None
        self._modules = 0

    @property
    def follows(self) -> bool:
        """Whether there is a number to set."""
        return self.wanted > 0

    def apply(self, *, anew: bool = False) -> None:
        """For the training's thread, between two steps, when `wanted` is not `applied`. Never raises.

        `anew`: before a fit, whose library counts its threads then.
        """
        if self.thread not in (None, threading.current_thread()):
            return
        # Never waits: what is logged below may come back here, by the output that is read, with other locks held.
        lock = self._lock
        if not lock.acquire(blocking=False):
            return
        try:
            self._apply(anew)
        except Exception as error:
            self._stop(f"threads stay as they are ({type(error).__name__}: {error})")
        finally:
            lock.release()

    def begin_fit(self) -> list[Any]:
        """A fit begins: libraries get the number also where it would not be raised within one. Those are returned."""
        if self.wanted != 0:
            self.applied = 0
            self.apply(anew=True)
        return [] if self._libraries is None else self._libraries.pools

    def look(self) -> None:
        """One interval has ended. Never raises."""
        try:
            self._look()
        except Exception as error:
            self._stop(f"threads stay as they are ({type(error).__name__}: {error})")

    @property
    def sets(self) -> bool:
        """Whether a library with a setting of its own gets what is wanted."""
        return self.follows and not is_by_hand(os.environ, GENERAL)

    @property
    def may_rise(self) -> bool:
        """Whether the number follows the CPU; one that the user gave does not."""
        return self._number is not None

    @property
    def crowded(self) -> bool:
        """Whether the CPU in effect is less than the limit, because others take the rest."""
        number, cores = self._number, self.cores
        return number is not None and cores is not None and cores < number.limit_cores / self._ranks

    @property
    def useful(self) -> int | None:
        """The most threads with which steps are faster; None: not known, or others of this job compute too.

        Nor is it known where it is all cores of the machine, which bounds nothing: a training that uses one core of
        eight would be planned as one that uses eight, and one that uses all would not be moved to a larger machine.
        """
        libraries, number = self._libraries, self._number  # another thread may stop all meanwhile
        if libraries is None or libraries.most_given is None or self._ranks > 1 or not self.work.only_libraries:
            return None
        most = libraries.most_given if number is None else min(libraries.most_given, number.useful)
        return most if most < (os.cpu_count() or 1) else None

    def instead_of(self, counted: int) -> int:
        """The number for a library that has counted so many threads when it began."""
        libraries = self._libraries
        if libraries is None or not self.sets:
            return counted
        was_free = counted >= libraries.most or counted in libraries.given
        return self.wanted if was_free else min(counted, self.wanted)

    def share(self, workers: int, names: Iterable[str]) -> dict[str, str]:
        """The variables, those of `names` and our own, of so many worker processes, which share the number.

        Empty where there is none to share. What the user has set is left out. A number that the user gave is for each.
        """
        ours = ours_in(os.environ)
        number = self.wanted if self.sets else ours.get(GENERAL, 0)
        if number < 1:
            return {}
        if setting(os.environ, self._check) == FOLLOW:
            number = max(1, number // workers)
        free = (name for name in {*names, *ours} if name.endswith("_THREADS") and not is_by_hand(os.environ, name))
        # In the workers they count as set by hand: each would take the CPU of all for its own.
        return {**dict.fromkeys(free, str(number)), OURS_VARIABLE: ""}

    def abandon_after_fork(self) -> None:
        """In a forked child: change nothing."""
        self._lock = threading.Lock()
        if self.wanted >= 0:
            self._forget()

    def _apply(self, anew: bool) -> None:
        if self.wanted < 0:
            self._begin()
        number = self.wanted
        if self._libraries is not None and number != self.applied:
            set_ours(number)
            self.threads = self._libraries.set(number, anew=anew)
            self._modules = len(sys.modules)
        self.applied = number

    def _begin(self) -> None:
        wanted = setting(os.environ, self._check)
        if wanted in (OFF, WAIT):
            self.wanted = 0
            return
        most = affinity_cores()
        self._libraries = Libraries(most, self._check, fixed=wanted != FOLLOW)
        self._ranks = local_ranks(os.environ)
        self._read = self._read or CpuReader().read
        if wanted == FOLLOW:
            self._number = ThreadNumber(most, self._ranks)
        else:
            self.wanted = wanted
        self._look()
        if self._interval_seconds > 0:
            threading.Thread(target=self._run, name="slopewise-threads", daemon=True).start()

    def _run(self) -> None:
        pause, short = threading.Event(), min(FIRST_INTERVAL_SECONDS, self._interval_seconds)
        pause.wait(short)
        while self._libraries is not None:
            self.look()
            number = self._number  # the training's thread may stop all meanwhile
            pause.wait(short if number is not None and number.tries else self._interval_seconds)

    def _look(self) -> None:
        if self._read is None:
            return
        reading = self.work.read(self._read(), self.threads)
        if self._number is None:
            self.cores = in_effect_cores(reading, self._ranks)
        else:
            before, self.wanted = self.wanted, self._number.next(reading)
            self.cores = self._number.cores
            if self.wanted != before:
                self.work.begin_anew()
        if len(sys.modules) != self._modules:  # a library may be loaded since, with a number of its own
            self.applied = 0

    def _stop(self, message: str) -> None:
        self._check.warn("threads", message)
        self._forget()

    def _forget(self) -> None:
        self._read = self._number = self._libraries = self.cores = self.threads = None
        self.wanted = self.applied = 0


following = Following()
"""Of this process."""

if hasattr(os, "register_at_fork"):  # there is no fork on Windows
    os.register_at_fork(after_in_child=lambda: following.abandon_after_fork())
