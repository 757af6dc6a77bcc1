"""Samples the CPU that each job of a run used and was allotted, once a second, and the use of other programs."""

from __future__ import annotations

from itertools import pairwise

from slopewise.adapters.local.machine_cpu import CpuCount, MachineCpu, OtherUse
from slopewise.allocation import allotted_cores
from slopewise.errors import ActuationError
from slopewise.local.session import Session
from slopewise.model import ClusterSnapshot

SAMPLE_SECONDS = 1.0
"""CPU curves have one point a second; fewer would hide what a five-second interval does."""

OTHER_SAMPLE_SECONDS = 5.0
"""Finding the run's processes reads every process of the machine, about 20 µs each."""

Points = list[tuple[float, float]]


class CpuSampler:
    """Reads each running job's CPU counter and allotment once a second."""

    def __init__(self, session: Session) -> None:
        self.allotted: dict[str, Points] = {}
        """CPU allotted per job in cores."""
        self._session = session
        self._used: dict[str, Points] = {}
        self._next_seconds = 0.0

    def sample(self, elapsed_seconds: float) -> None:
        """Take a sample when a second has passed since the last one."""
        if elapsed_seconds < self._next_seconds:
            return
        self._next_seconds = elapsed_seconds + SAMPLE_SECONDS
        limiter, jobs = self._session.workshop.limiter, self._session.supervisor.running()
        try:
            used = {job.name: limiter.usage(job.name).cpu_seconds_total or 0.0 for job in jobs}
            held = tuple(job.altered(allocation=limiter.read(job.name)) for job in jobs)
        except ActuationError:  # one of them ended in between: the next second has the rest
            return
        nodes = tuple(each.node for each in self._session.nodes)
        allotted = allotted_cores(ClusterSnapshot(elapsed_seconds, nodes, held), self._session.control)
        for name, seconds in used.items():
            self._used.setdefault(name, []).append((elapsed_seconds, seconds))
            self.allotted.setdefault(name, []).append((elapsed_seconds, allotted[name]))

    def cpu_cores(self) -> dict[str, Points]:
        """CPU used per job in cores, each point the mean since the one before."""
        return {
            name: [(at, (seconds - before) / (at - since)) for (since, before), (at, seconds) in pairwise(points)]
            for name, points in self._used.items()
        }


class OtherCpuSampler:
    """Reads every five seconds what everything else on the machine used."""

    def __init__(self, machine: MachineCpu) -> None:
        self._machine = machine
        self._counts: list[CpuCount | None] = []
        self._next_seconds = 0.0

    def sample(self, elapsed_seconds: float) -> None:
        """Take a sample when five seconds have passed since the last one."""
        if elapsed_seconds >= self._next_seconds:
            self._next_seconds = elapsed_seconds + OTHER_SAMPLE_SECONDS
            self.close()

    def close(self) -> None:
        """Take the last sample, whenever that is; what processes that have ended used is in those before."""
        self._counts = [*self._counts[:1], self._machine.count()]

    @property
    def use(self) -> OtherUse | None:
        """Means over the whole run; None where the kernel does not show them."""
        return self._machine.use(self._counts[0], self._counts[-1]) if self._counts else None
