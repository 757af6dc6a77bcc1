"""What each job has used, and everything else on the machine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.limiting import FakeLimiter
from support.worlds import START

from slopewise.adapters.local.limiters.base import UNLIMITED
from slopewise.adapters.local.machine_cpu import CpuCount, MachineCpu
from slopewise.demo.sampler import CpuSampler, OtherCpuSampler
from slopewise.model import Job, JobState

PLACED = (("a", "node-1"), ("b", "node-1"), ("c", "node-2"))
JOBS = [Job(name, name, "run", node, JobState.STARTING, START, UNLIMITED) for name, node in PLACED]


def test_the_cpu_of_each_running_job_is_read_once_a_second() -> None:
    session: Any = SimpleNamespace(
        workshop=SimpleNamespace(limiter=FakeLimiter({name: UNLIMITED for name, _ in PLACED})),
        supervisor=SimpleNamespace(running=lambda: JOBS),
    )
    sampler = CpuSampler(session)
    for at in (1.0, 1.5, 2.0):
        sampler.sample(at)
    assert sampler.cpu_cores() == {name: [(2.0, 0.0)] for name, _ in PLACED}


class FakeMachine(MachineCpu):
    """One core; others use a quarter of it for 10 s, then all of it."""

    def __init__(self) -> None:
        super().__init__((0,), list)
        self.now_seconds = 0.0
        self.counts = 0

    def count(self) -> CpuCount:
        self.counts += 1
        busy = 0.25 * min(10.0, self.now_seconds) + max(0.0, self.now_seconds - 10.0)
        return CpuCount(self.now_seconds, busy + 100.0, 0.0, self.now_seconds, 100.0)


def test_others_are_counted_every_five_seconds_and_at_the_end() -> None:
    machine = FakeMachine()
    others = OtherCpuSampler(machine)
    for tenth in range(1, 130):
        machine.now_seconds = tenth / 10
        others.sample(machine.now_seconds)
    machine.now_seconds = 13.1
    others.close()
    assert machine.counts == 4
    assert others.use is not None
    assert others.use.other_cores == pytest.approx((0.25 * 9.9 + 3.1) / 13.0)
