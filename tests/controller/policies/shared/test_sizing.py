"""The CPU that a promise needs by what jobs of the class have shown."""

from __future__ import annotations

import pytest
from support.worlds import START, a_node

from slopewise.estimators.workload_classes import Expected
from slopewise.model import Arrival, Objectives
from slopewise.policies.shared.sizing import needed_cores, size_millicores

KNOWN = Expected((0.0, 2.0), 0.2, 300.0, None, 3)


def arrival(*, steps: float | None = None, deadline: float | None = None) -> Arrival:
    return Arrival("a", "a", "team", START, steps_planned=steps, objectives=Objectives(deadline_at_seconds=deadline))


@pytest.mark.parametrize(
    ("job", "within", "objective", "cores"),
    [
        (arrival(steps=300, deadline=START + 1000), 1000.0, None, 0.6),
        (arrival(deadline=START + 1000), 1000.0, None, 0.6),  # as many steps as the others planned
        (arrival(), None, 4.0, 0.5),
        (arrival(steps=300), 1000.0, 1.0, 2.0),
        (arrival(), None, 1000.0, 0.1),  # half of the least that was seen
        (arrival(steps=300), -1.0, None, None),
        (arrival(), None, None, None),
    ],
)
def test_the_larger_need_of_what_is_promised(
    job: Arrival, within: float | None, objective: float | None, cores: float | None
) -> None:
    found = needed_cores(job, KNOWN, within, objective)
    assert found == (None if cores is None else pytest.approx(cores))


def test_no_size_where_no_cpu_is_enough() -> None:
    slow = Expected((5.0, 2.0), 0.2, 300.0, None, 3)
    assert needed_cores(arrival(), slow, objective_seconds=4.0) is None


def test_a_size_is_no_more_than_can_be_used() -> None:
    assert size_millicores(0.6004, arrival(), a_node(cpu_cores=4.0)) == 601
    assert size_millicores(9.0, arrival(), a_node(cpu_cores=4.0)) == 4000
