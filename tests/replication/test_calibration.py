"""The speeds of SpeCon's scenarios: each is the one at which the baseline alone comes nearest to the print."""

from __future__ import annotations

import math

import pytest

from replication.calibration import PRINTED, SEEDS, baseline, calibrated, distance
from slopewise.simulator.scenario.scenario import load_scenario
from slopewise.simulator.workload import draw

COARSE = 0.15


def test_a_tenth_too_much_of_one_figure_counts_once_and_what_is_not_printed_does_not() -> None:
    printed = {"mean completion": 100.0, "makespan": 200.0}
    assert distance(printed, printed) == 0.0
    assert distance({"mean completion": 110.0, "makespan": 200.0}, printed) == pytest.approx(math.log(1.1) ** 2)
    assert distance({"mean completion": 110.0, "makespan": 200.0}, {"makespan": 200.0}) == 0.0


@pytest.mark.parametrize("scenario", PRINTED)
def test_a_shipped_speed_is_nearer_to_the_print_than_slower_and_faster_ones(scenario: str) -> None:
    document = load_scenario(scenario)
    assert document.spec.default_scheduler == "least-used"
    instances = [draw(document, seed) for seed in SEEDS[::4]]
    (speed,) = {node.speed for node in instances[0].nodes}
    slower, shipped, faster = (
        distance(baseline(instances, each), PRINTED[scenario]) for each in (speed - COARSE, speed, speed + COARSE)
    )
    assert shipped < min(slower, faster)


def test_the_speed_that_is_found_is_one_that_was_tried_last_and_has_its_figures() -> None:
    speed, ours = calibrated("specon-20-mixed", [1])
    instance = draw(load_scenario("specon-20-mixed"), 1)
    assert speed == round(speed, 2)
    assert ours == baseline([instance], speed)
    assert ours["makespan"] == pytest.approx(PRINTED["specon-20-mixed"]["makespan"], rel=0.05)
