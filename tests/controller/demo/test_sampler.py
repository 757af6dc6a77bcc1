"""What each job is allotted, in cores: a limit as it is, a weight as a share of its own node."""

from __future__ import annotations

from support.worlds import START

from controller.adapters.local import LocalJob
from controller.demo.sampler import allotted_cores
from controller.model import CpuAllocation

NODES = {"node-1": 1.0, "node-2": 3.0}
JOBS = [LocalJob(name, "run", START, node=node) for name, node in (("a", "node-1"), ("b", "node-1"), ("c", "node-2"))]


def test_weights_are_shares_of_the_node_that_a_job_is_on() -> None:
    held = {name: CpuAllocation(None, weight) for name, weight in (("a", 1500), ("b", 500), ("c", 20))}
    assert allotted_cores(JOBS, held, NODES, "requests") == {"a": 0.75, "b": 0.25, "c": 3.0}


def test_limits_are_cores_and_no_limit_is_the_whole_node() -> None:
    held = {name: CpuAllocation(limit, 1000) for name, limit in (("a", 250), ("b", None), ("c", None))}
    assert allotted_cores(JOBS, held, NODES, "limits") == {"a": 0.25, "b": 1.0, "c": 3.0}


def test_without_jobs_nothing_is_allotted() -> None:
    assert allotted_cores([], {}, NODES, "requests") == {}
