"""The bound on deadlines: what no schedule can do, and what one can."""

from __future__ import annotations

import pytest

from replication.feasible import all_could_be_met
from slopewise.simulator.curves import Exponential
from slopewise.simulator.world.model import SimJob, SimNode


def job(name: str, arrive: float, work: float, deadline: float) -> SimJob:
    return SimJob(name, "any", arrive, work, Exponential(k=8.0), deadline_seconds=deadline)


ONE_CORE = [SimNode("n1", 1.0, 2**34)]
TWO_NODES = [*ONE_CORE, SimNode("n2", 1.0, 2**34)]


@pytest.mark.parametrize(
    ("jobs", "nodes", "possible"),
    [
        ([job("a", 0, 10, 10)], ONE_CORE, True),
        ([job("a", 0, 10.1, 10)], TWO_NODES, False),  # a job uses one core at a time
        ([job("a", 0, 10, 20), job("b", 0, 10, 20)], ONE_CORE, True),
        ([job("a", 0, 10, 15), job("b", 0, 10, 15)], ONE_CORE, False),
        ([job("a", 0, 10, 15), job("b", 0, 10, 15), job("c", 0, 10, 15)], TWO_NODES, True),  # only by moving one
        ([job("late", 10, 10, 20), job("early", 0, 10, 10)], ONE_CORE, True),
    ],
)
def test_all_deadlines_can_be_met_exactly_when_a_schedule_exists(
    jobs: list[SimJob], nodes: list[SimNode], possible: bool
) -> None:
    assert all_could_be_met(jobs, nodes) is possible
