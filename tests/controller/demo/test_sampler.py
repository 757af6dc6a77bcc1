"""What each job is allotted, in cores: a limit as it is, a weight as a share of its own node."""

from __future__ import annotations

import pytest
from support.worlds import START

from slopewise.adapters.local.machine_cpu import CpuCount, MachineCpu
from slopewise.adapters.local.ports import LocalJob
from slopewise.demo.sampler import OtherCpuSampler, allotted_cores
from slopewise.model import CpuAllocation

NODES = {"node-1": 1.0, "node-2": 3.0}
JOBS = [LocalJob(name, "run", START, node=node) for name, node in (("a", "node-1"), ("b", "node-1"), ("c", "node-2"))]


def test_weights_are_shares_of_the_node_that_a_job_is_on() -> None:
    held = {name: CpuAllocation(None, weight) for name, weight in (("a", 1500), ("b", 500), ("c", 20))}
    assert allotted_cores(JOBS, held, NODES, "requests") == {"a": 0.75, "b": 0.25, "c": 3.0}


def test_limits_are_cores_and_no_limit_is_the_whole_node() -> None:
    held = {name: CpuAllocation(limit, 1000) for name, limit in (("a", 250), ("b", None), ("c", None))}
    assert allotted_cores(JOBS, held, NODES, "limits") == {"a": 0.25, "b": 1.0, "c": 3.0}


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
    others.close(13.1)
    assert machine.counts == 4
    assert others.curve == [(pytest.approx(5.1), 0.25), (10.1, pytest.approx(0.265)), (13.1, pytest.approx(1.0))]
    assert others.use is not None
    assert others.use.other_cores == pytest.approx((0.25 * 9.9 + 3.1) / 13.0)


def test_without_jobs_nothing_is_allotted() -> None:
    assert allotted_cores([], {}, NODES, "requests") == {}
