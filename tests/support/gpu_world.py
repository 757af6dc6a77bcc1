"""Trainings with GPUs whose steps wait for batches, in arithmetic: what a pass sees of them, and what resizes do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from support.worlds import START, FakeActuator, FakeClock, FakeMemory, a_job, a_node

from slopewise.estimators.growth import Measuring
from slopewise.feedback.pass_settings import PassSettings
from slopewise.feedback.rollback import RollbackSettings
from slopewise.model import (
    AcceleratorControl,
    Bounds,
    ClusterSnapshot,
    ContainerHealth,
    CpuAllocation,
    Job,
    Observation,
    Outcome,
    PassReport,
    Resize,
)
from slopewise.policies import Setting, build, find
from slopewise.ports import Ports
from slopewise.reconcile import reconcile

INTERVAL = 20.0


@dataclass
class Training:
    """A step takes the device `gpu_seconds`, and its batch `cpu_seconds` of CPU on `loader_cores` at most."""

    gpu_seconds: float
    cpu_seconds: float
    limit: int
    loader_cores: float = 64.0
    lies: float = 0.0
    """Part of its time that it says it waited although it did not."""
    level: float | None = None
    accelerators: float = 1.0
    reports_waits: bool = True
    """Else there is the use of its GPU, over two minutes, as it is read of DCGM's exporter."""
    steps: float = 0.0
    waited: float = 0.0
    cpu: float = 0.0
    periods: float = 0.0
    throttled: float = 0.0
    uses: list[float] = field(default_factory=list)
    """Of its GPU, in each interval."""
    original: int = field(init=False)

    def __post_init__(self) -> None:
        self.original = self.limit

    def step_seconds(self, limit: int | None = None) -> float:
        cores = min(self.loader_cores, (self.limit if limit is None else limit) / 1000)
        return max(self.gpu_seconds, self.cpu_seconds / cores)

    def pass_time(self, seconds: float) -> None:
        step = self.step_seconds()
        steps = seconds / step
        self.steps += steps
        self.uses.append(self.gpu_seconds / step)
        self.cpu += steps * self.cpu_seconds
        self.waited += max(seconds - steps * self.gpu_seconds, self.lies * seconds)
        self.periods += 10 * seconds
        if self.cpu_seconds / (self.limit / 1000) > self.gpu_seconds and self.limit / 1000 < self.loader_cores:
            self.throttled += 10 * seconds

    def job(self, uid: str, now: float) -> Job:
        job = a_job(
            uid,
            level=self.level,
            finite=self.level == self.level,
            at=now,
            cpu_seconds=self.cpu,
            started_at=START - 600,
        ).altered(
            allocation=CpuAllocation(self.limit, 1000),
            steps_total=float(int(self.steps)),
            process_started_at_seconds=START - 600,
            container_health=ContainerHealth(0, None, self.periods, self.throttled),
            accelerators=self.accelerators,
            waited_seconds_total=self.waited,
        )
        if self.accelerators and self.reports_waits:
            return job
        newest = self.uses[-round(120 / INTERVAL) :]
        use = fmean(newest) if self.accelerators and newest else None
        return job.altered(waited_seconds_total=None, gpu_use=use)


@dataclass
class GpuWorld:
    """One node; it observes itself, and carries out resizes at once."""

    trainings: Mapping[str, Training]
    cores: float
    now: float = START
    actuator: FakeActuator = field(default_factory=FakeActuator)
    memory: FakeMemory = field(default_factory=FakeMemory)
    reports: list[PassReport] = field(default_factory=list)

    def observe(self) -> Observation:
        jobs = tuple(each.job(uid, self.now) for uid, each in self.trainings.items())
        return Observation(ClusterSnapshot(self.now, (a_node(cpu_cores=self.cores),), jobs, 5.0))

    def carry_out(self, resize: Resize) -> Outcome[Resize]:
        self.trainings[resize.job_uid].limit = resize.to_millicores
        self.actuator.done.append(resize)
        return Outcome(resize, "applied")

    def passes(
        self, number: int, policy: str = "fair", accelerators: AcceleratorControl = "Share", **behaviour: float
    ) -> None:
        """So many passes, one every 20 s."""
        chosen = build(policy, find(policy).parameters(), Setting(INTERVAL, "limits", accelerators))
        bounds = Bounds(
            "Auto", 20, 64_000, cooldown_seconds=0, max_step_ratio=20, min_change_ratio=0.1, accelerators=accelerators
        )
        settings = PassSettings(policy, Measuring(INTERVAL), bounds, RollbackSettings(INTERVAL, 120.0, 600.0))
        for _ in range(number):
            ports = Ports(self, self, self.memory, FakeClock(self.now))  # type: ignore[arg-type]
            self.reports.append(reconcile(ports, chosen, settings))
            for each in self.trainings.values():
                each.pass_time(INTERVAL)
            self.now += INTERVAL

    def reason(self, uid: str) -> str:
        decisions = self.reports[-1].decisions
        assert decisions is not None
        return decisions.reasons[uid]

    def speed_ratio(self, uid: str) -> float:
        """Steps a second now, over those with the CPU that it came with."""
        each = self.trainings[uid]
        return each.step_seconds(each.original) / each.step_seconds()
