"""Learns how little CPU a job may have and still answer a scrape in time, from how long its scrapes take.

A job that was lowered so far that its scrapes time out gets its CPU back (`feedback/rollback.py`) and would be lowered
again. The floor that is learned here stays for the rest of its run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from slopewise.adapters.local.limiters.base import NEUTRAL_REQUEST_MILLICORES
from slopewise.adapters.prometheus.client import Target
from slopewise.errors import ObservationError
from slopewise.model import AcceptedRange, CpuControl, Job, Observation
from slopewise.ports import Observer

LATE_RATIO = 0.5
"""Of the timeout: the worst of 60 scrapes took 1.6 times the median at a floor of 0.02 core, beside busy processes in
cgroups of their own, so that with a median at half of the timeout all are in time."""

SETTLED_SCRAPES = 2.0
"""Scrapes for which a job must have had the same CPU: the last scrape was then begun with it."""


@dataclass(slots=True)
class ScrapeFloors:
    """An observer whose jobs accept no less CPU than their scrapes need."""

    observer: Observer
    """Sees the jobs."""
    targets: Callable[[], Sequence[Target]]
    """Those of Prometheus, which scrapes once in each `timeout_seconds`."""
    timeout_seconds: float
    control: CpuControl
    _runs: dict[str, float] = field(init=False, default_factory=dict)
    """When the process of each job was started: another one of the same name needs other scrapes."""
    _had: dict[str, tuple[int, float]] = field(init=False, default_factory=dict)
    _floors: dict[str, AcceptedRange] = field(init=False, default_factory=dict)

    def observe(self) -> Observation:
        """As the observer has it, with the floors; ObservationError from it alone."""
        seen = self.observer.observe()
        snapshot = seen.snapshot
        former, self._runs = self._runs, {job.name: job.started_at_seconds for job in snapshot.jobs}
        same = {name for name, started in self._runs.items() if former.get(name) == started}
        self._floors = {name: floor for name, floor in self._floors.items() if name in same}
        self._had = {name: had for name, had in self._had.items() if name in same}
        self._learn(self._settled(snapshot.jobs, snapshot.taken_at_seconds))
        jobs = tuple(job.altered(accepts=self._floors.get(job.name)) for job in snapshot.jobs)
        return replace(seen, snapshot=replace(snapshot, jobs=jobs))

    def _settled(self, jobs: Sequence[Job], now_seconds: float) -> dict[str, int]:
        """The jobs that have less than a core, or weigh less than a new one, and have for some scrapes."""
        has = {job.name: squeezed for job in jobs if (squeezed := self._squeezed(job)) is not None}
        former = self._had
        self._had = {
            name: former[name] if name in former and former[name][0] == now else (now, now_seconds)
            for name, now in has.items()
        }
        settled = SETTLED_SCRAPES * self.timeout_seconds
        return {name: has for name, (has, since) in self._had.items() if now_seconds - since >= settled}

    def _squeezed(self, job: Job) -> int | None:
        allocation = job.allocation
        has = allocation.request_millicores if self.control == "requests" else allocation.limit_millicores
        return has if has is not None and has < NEUTRAL_REQUEST_MILLICORES else None

    def _learn(self, settled: dict[str, int]) -> None:
        """Raise the floors of jobs whose last scrape was late."""
        if not settled:
            return
        try:
            targets = self.targets()
        except ObservationError:  # the next pass
            return
        late = LATE_RATIO * self.timeout_seconds
        for target in targets:
            name, seconds = target.labels.get("pod", ""), target.last_scrape_seconds
            if name in settled and seconds > late:
                least = min(NEUTRAL_REQUEST_MILLICORES, math.ceil(settled[name] * seconds / late))
                reason = f"its scrape took {seconds:.1f} s of {self.timeout_seconds:g} s"
                known = self._floors.get(name, AcceptedRange(0)).min_millicores or 0
                if least > known:
                    self._floors[name] = AcceptedRange(least, None, reason)
