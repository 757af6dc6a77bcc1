"""Sets the number of worker processes of a data loader: fewer where there is less CPU, more where steps wait.

More than the loader was made with are started only up to a number that the user allows: each takes memory, and random
augmentations depend on the worker that makes them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from time import perf_counter
from typing import Any

from slopewise_exporter.threads.at_start import OFF, local_ranks, setting
from slopewise_exporter.threads.cpu import limit_cores
from slopewise_exporter.threads.following import following
from slopewise_exporter.threads.number import fitting
from slopewise_exporter.values import Checker, parse_steps

VARIABLE = "SLOPEWISE_LOADER_WORKERS"
"""For loaders that have workers: only the training's author knows that a data set may leave its process."""

WAITED_RATIO = 0.1
"""An epoch that waited for less of its time has workers enough: of nine of them less than one is missing."""


class LoaderWorkers:
    """Sets the workers of one loader. `begin` is called before each epoch, `came` after each of its batches."""

    def __init__(self, loader: Any, max_workers: int | None = None) -> None:
        """`max_workers`: the most that the training allows; the user's variable comes before it."""
        self._loader = getattr(loader, "base_dataloader", loader)  # of Accelerate, which iterates over that
        self._check = Checker()
        self._made_with: int = getattr(self._loader, "num_workers", 0)
        self._most = 0
        of_user = os.environ.get(VARIABLE) if self._made_with else None
        for name, allowed in (("max_workers", max_workers), (VARIABLE, of_user)):
            if allowed:
                wanted = "a whole number of 1 or more"
                self._most = self._check.read(name, allowed, parse_steps, self._most, wanted)
        self._number = self._made_with
        self._first_at: float | None = None
        self._last_at = self._waited_seconds = 0.0

    def begin(self) -> None:
        """An epoch begins. Never raises: a loader of another kind keeps what it has."""
        seconds = 0.0 if self._first_at is None else self._last_at - self._first_at
        with suppress(Exception):
            self._set(self._waited_seconds / seconds if seconds > 0 else 0.0)
        self._first_at, self._waited_seconds = None, 0.0

    def came(self, waited_seconds: float) -> None:
        """A batch has come. That an epoch waits for its first one is the start of its workers."""
        self._last_at = perf_counter()
        if self._first_at is None:
            self._first_at = self._last_at
        else:
            self._waited_seconds += waited_seconds

    def _set(self, waited_ratio: float) -> None:
        """`waited_ratio`: of the time of the last epoch."""
        loader, stay = self._loader, getattr(self._loader, "persistent_workers", False)
        has, fits = loader.num_workers, fitting(limit_cores() / local_ranks(os.environ))
        if waited_ratio >= WAITED_RATIO and (more := self._more(has, fits, waited_ratio)) > has:
            loader.prefetch_factor = getattr(loader, "prefetch_factor", None) or 2  # None where there were no workers
            loader.num_workers = self._number = more
            if stay:
                loader._iterator = None  # noqa: SLF001 - it holds those of the first epoch
            because = f"{waited_ratio:.0%} of the last epoch was waited for batches"
            self._check.warn(str(more), f"loader workers: {more} from now on instead of {has}, since {because}")
        elif self._made_with > 0 and not stay:
            lowers = following.may_rise and fits < self._made_with
            loader.num_workers = fits if lowers else self._number

    def _more(self, has: int, fits: int, waited_ratio: float) -> int:
        """The workers with which steps would wait no more, or what it has.

        Worked example: three workers on three cores, and 0.5 s of each 0.9 s waited: 3 · 0.9 / 0.4 = 6.75, so seven.
        On three cores these are no faster, but a controller that raises the CPU then sees what it brings. An eighth
        comes once there is CPU for seven.
        """
        if not self._made_with <= has < self._most or has > fits or setting(os.environ, self._check) == OFF:
            return has
        return min(self._most, fitting((has or waited_ratio) / max(1 - waited_ratio, 0.01)))  # it may be all of it
