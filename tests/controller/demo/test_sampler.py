"""What each job is allotted, in cores: a limit as it is, a weight as a share of its own node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.limiting import FakeLimiter
from support.worlds import START

from slopewise.adapters.local.limiters.base import UNLIMITED
from slopewise.adapters.local.machine_cpu import CpuCount, MachineCpu
from slopewise.adapters.local.nodes import LocalNode
from slopewise.demo.sampler import CpuSampler, OtherCpuSampler
from slopewise.model import CpuAllocation, Job, JobState, Node

NODES = [LocalNode(Node(name, cores, 2**30), frozenset({0})) for name, cores in (("node-1", 1.0), ("node-2", 3.0))]
PLACED = (("a", "node-1"), ("b", "node-1"), ("c", "node-2"))
JOBS = [Job(name, name, "run", node, JobState.STARTING, START, UNLIMITED) for name, node in PLACED]


@pytest.mark.parametrize(
    ("control", "held", "allotted"),
    [
        (
            "requests",
            {"a": CpuAllocation(None, 1500), "b": CpuAllocation(None, 500), "c": CpuAllocation(None, 20)},
            0.75,
        ),
        (
            "limits",
            {"a": CpuAllocation(250, 1000), "b": CpuAllocation(None, 1000), "c": CpuAllocation(None, 1000)},
            0.25,
        ),
    ],
)
def test_a_job_is_allotted_its_share_of_its_own_node_or_its_limit(
    control: str, held: dict[str, CpuAllocation], allotted: float
) -> None:
    session: Any = SimpleNamespace(
        workshop=SimpleNamespace(limiter=FakeLimiter(held)),
        supervisor=SimpleNamespace(running=lambda: JOBS),
        nodes=NODES,
        control=control,
    )
    sampler = CpuSampler(session)
    sampler.sample(1.0)
    sampler.sample(1.5)
    assert sampler.allotted["a"] == [(1.0, allotted)]
    assert sampler.allotted["c"] == [(1.0, 3.0)]
    sampler.sample(2.0)
    assert sampler.cpu_cores()["a"] == [(2.0, 0.0)]


class FakeMachine(MachineCpu):
    """One core; others use a quarter of it for 10 s, then all of it."""

    def __init__(self) -> None:
        super().__init__((0,), list)
        self.now_seconds = 0.0
        self.counts = 0

    def count(self) -> CpuCount:
        self.counts += 1
        busy = 0.25 * min(10.0, self.now_seconds) + max(0.0, self.now_seconds - 10.0)
        return CpuCount(self.now_seconds, busy + 100.0, self.now_seconds, 100.0)


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
