"""Reports the training of this process once something is found to report, as the only process of it.

A framework's callback is better than what is printed, and the training's own `Reporter` is better than both: the first
that comes opens the endpoint, a better one that comes later replaces it, and a weaker one is ignored from then on.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

from slopewise_exporter.environment import reports_here
from slopewise_exporter.instrument.claim import CODE, FRAMEWORK, OUTPUT, RANKS, Claim, claim, token
from slopewise_exporter.reporter import Reporter
from slopewise_exporter.threads.at_start import sets_numbers
from slopewise_exporter.values import Checker


class Training:
    """What this process reports by, if anything. Thread-safe; every method returns at once where it reports nothing."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._token = token(environ)
        self._lock = threading.RLock()
        self._claim: Claim | None = None
        self._rank: bytes | None = None
        self._reporter: Reporter | None = None
        self._opening = False
        self._fitting = False
        self._ignores_output = False
        self._off = False

    @property
    def follows_output(self) -> bool:
        """Whether what is printed may still be of use."""
        return not (self._off or self._ignores_output) and self._rank in (None, OUTPUT)

    def by_output(self) -> Reporter | None:
        """The reporter for what is printed; None: another process reports, or something better in this one."""
        with self._lock:
            if not self.follows_output:
                return None
            if self._reporter is None and not self._open(OUTPUT, ""):
                self._ignores_output = True
            return self._reporter

    @contextmanager
    def fit(self, framework: str) -> Iterator[Reporter | None]:
        """For the time of one fit: the reporter for a callback of the framework, or None where there must be none.

        A fit within another one (a search over parameters, a trainer that is built on another) and one beside it on
        another thread report nothing.
        """
        with self._lock:
            mine = not (self._off or self._fitting)
            if mine and self._rank != FRAMEWORK:
                self._close()
                mine = self._open(FRAMEWORK, framework)
            self._fitting = self._fitting or mine
        try:
            yield self._reporter if mine else None
        finally:
            if mine:
                self._fitting = False

    def step_aside(self) -> None:
        """The training's own code opens a `Reporter` now: free its port, and keep all others from taking it."""
        with self._lock:
            if self._opening or self._rank == CODE:
                return
            self._off = True
            self._close()
            if self._claim is None:
                self._claim = claim(self._token, CODE, self._gives_up)
            self._rank = CODE

    def abandon_after_fork(self) -> None:
        """In a forked child: report nothing. `lifecycle` has abandoned the reporter."""
        self._lock = threading.RLock()
        self._off = True
        self._reporter = self._rank = None
        if self._claim is not None:
            self._claim.abandon_after_fork()
            self._claim = None

    def _open(self, rank: bytes, framework: str) -> bool:
        """Open the endpoint, if no other process reports better. Where it cannot listen, the reporter does nothing.

        Nor in other ranks than the first, whose number of threads may follow the CPU at its steps: they claim nothing.
        """
        reports = reports_here(os.environ, Checker())
        if not (reports or sets_numbers(os.environ)) or _is_started_by_multiprocessing():
            return False
        if reports and self._claim is None:
            self._claim = claim(self._token, rank, self._gives_up)
            if self._claim is None:
                return False
        self._rank = rank
        self._opening = True
        try:
            self._reporter = Reporter(framework=framework)
        finally:
            self._opening = False
        return True

    def _close(self) -> None:
        reporter, self._reporter = self._reporter, None
        if reporter is not None:
            reporter.leave()

    def _gives_up(self, rank: bytes) -> bool:
        """On the thread of the claim, for a process that asks."""
        with self._lock:
            if self._rank is not None and RANKS.index(rank) <= RANKS.index(self._rank):
                return False
            self._ignores_output = True
            self._close()
            self._rank = None
            held, self._claim = self._claim, None
            if held is not None:
                held.release()
            return True


def _is_started_by_multiprocessing() -> bool:
    """A data loader's worker or another helper: what it does is a part of what its parent does."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None
