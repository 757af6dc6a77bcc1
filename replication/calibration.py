"""Chooses the speed of the workers of SpeCon's scenarios by their baseline alone: `python -m replication.calibration`.

The thesis prints neither the lengths of its trainings nor the models that were drawn. A worker's speed stands in for
them: it scales all of them alike. The speed is the one at which the default scheduler, without any policy, comes
nearest to what is printed of it. The distance is the sum of squared logarithms of ours over the printed figure, each
figure a mean over seeds, so that 10 % too much counts as 10 % too little. It prints what belongs in the scenarios.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import typer

from replication.claims import jct_mean_seconds, makespan_seconds
from slopewise.simulator.engine import run_unmanaged
from slopewise.simulator.scenario.scenario import load_scenario
from slopewise.simulator.workload import draw
from slopewise.simulator.world.model import Instance, RunOutcome

SEEDS = range(1, 49)
"""Twice as many as the page has: lots decide where jobs start, and move the nearest speed by some per cent."""

STEPS = (0.1, 0.01)
"""The distances between the speeds that are tried: first of all between `SLOWEST` and `FASTEST`, then near the best."""

SLOWEST, FASTEST = 0.4, 2.0

Figures = Mapping[str, float]
"""Seconds, by the name of a figure in `FIGURES`."""

FIGURES: Mapping[str, Callable[[RunOutcome], float | None]] = {
    "mean completion": jct_mean_seconds,
    "makespan": makespan_seconds,
}

PRINTED: Mapping[str, Figures] = {
    "specon-20-vae": {"mean completion": 275.2, "makespan": 1260.0},
    "specon-20-mixed": {"makespan": 1421.0},
    "specon-30-mixed": {"mean completion": 799.5, "makespan": 1640.0},
    "specon-50-mixed": {"mean completion": 596.3, "makespan": 2070.0},
}
"""What is printed of the default scheduler (thesis 6.2.2 to 6.2.4), by scenario. Of specon-20-vae-random nothing is: it
has the workers and the model of specon-20-vae."""


def distance(ours: Figures, printed: Figures) -> float:
    """How far ours are from the printed ones; 0 when they are the same.

    Worked example: 10 % too much and exact: ln(1.1)² = 0.009.
    """
    return math.fsum(math.log(ours[name] / seconds) ** 2 for name, seconds in printed.items())


def with_speed(instance: Instance, speed: float) -> Instance:
    """The instance on workers that are all of this speed."""
    return replace(instance, nodes=tuple(replace(node, speed=speed) for node in instance.nodes))


def baseline(instances: Sequence[Instance], speed: float) -> Figures:
    """The mean of each figure over the instances on workers of this speed, without a policy."""
    runs = [run_unmanaged(with_speed(instance, speed), instance.seed) for instance in instances]
    return {
        name: fmean(value for run in runs if (value := figure(run)) is not None) for name, figure in FIGURES.items()
    }


def calibrated(scenario: str, seeds: Iterable[int] = SEEDS) -> tuple[float, Figures]:
    """The speed at which the baseline comes nearest to what is printed, and its figures there."""
    document = load_scenario(scenario)
    instances = [draw(document, seed) for seed in seeds]
    low, high = SLOWEST, FASTEST
    for step in STEPS:
        speeds = [round(low + step * number, 2) for number in range(round((high - low) / step) + 1)]
        tried = [(speed, baseline(instances, speed)) for speed in speeds]
        best = min(tried, key=lambda speed_and_ours: distance(speed_and_ours[1], PRINTED[scenario]))
        low, high = best[0] - step, best[0] + step
    return best


def main() -> None:
    """Print the speed of each scenario, and its baseline's figures beside the printed ones."""
    for scenario, printed in PRINTED.items():
        speed, ours = calibrated(scenario)
        figures = (f"{name} {ours[name]:.0f} s (printed {printed.get(name, 'nowhere')})" for name in FIGURES)
        typer.echo(f"{scenario}: speed {speed:g}: {', '.join(figures)}")


if __name__ == "__main__":
    typer.run(main)
