"""Fit the learning curves of many jobs, and look ahead: CPU seconds, beside a plain loop over jobs and rates.

Gate: fits for 10,000 jobs with 200 points each under 2 s of CPU, the posterior over rate and work of all of them under
0.5 s. The baseline of the same run fits every 50th job by the same least squares over the same rates, one job and one
rate at a time, and is scaled up; so that a slow machine shows in both columns.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from slopewise.estimators import curves

JOBS, POINTS = 10_000, 200
BOUND_SECONDS = {"fit": 2.0, "outlook": 0.5}
SAMPLE = 50
"""The baseline is timed on every so many-th job."""

ROUNDS = 3

Singles = NDArray[np.float32]


def losses() -> tuple[list[Singles], list[float]]:
    """Points of jobs in the middle of their lives, and what each needs in all."""
    luck = np.random.default_rng(1)
    points, works = [], []
    for _ in range(JOBS):
        work, kappa = luck.uniform(100, 300), luck.uniform(4, 20)
        done = np.linspace(0, work * luck.uniform(0.1, 1), POINTS + 1)[1:]
        level = np.exp(-kappa * done / work) + 0.02 * luck.normal(size=POINTS)
        points.append(np.stack([done, level], axis=1).astype(np.float32))
        works.append(float(work))
    return points, works


def plainly(points: Singles, work: float) -> float:
    """The rate of least error, by one least-squares fit a rate."""
    errors = []
    for rate in curves.grid_rates():
        falling = np.exp(-rate * points[:, 0] / work)
        columns = np.stack([np.ones(len(points)), falling], axis=1)
        found = np.linalg.lstsq(columns, points[:, 1], rcond=None)
        errors.append((float(found[1][0]), float(rate)))
    return min(errors)[1]


def cpu_seconds(act: Callable[[], object]) -> float:
    """The median of a few runs, in seconds of CPU."""
    taken = []
    for _ in range(ROUNDS):
        start = time.process_time()
        act()
        taken.append(time.process_time() - start)
    return sorted(taken)[ROUNDS // 2]


def main() -> int:
    """Print the figures; 1 when a bound is missed."""
    points, works = losses()
    signs = [1.0] * JOBS
    fits = curves.fit(points, signs, works)
    scores, family, scale = curves.unpacked(fits)
    done = np.array([float(each[-1, 0]) for each in points])
    sigma = np.full(JOBS, 0.15)
    baseline = SAMPLE * cpu_seconds(
        lambda: [plainly(each, work) for each, work in zip(points[::SAMPLE], works[::SAMPLE], strict=True)]
    )
    taken = {
        "fit": cpu_seconds(lambda: curves.fit(points, signs, works)),
        "outlook": cpu_seconds(lambda: curves.outlook(scores, family, scale, sigma, done)),
    }
    print(f"{'':<10}{'jobs':>8}{'points':>8}{'CPU s':>9}{'bound s':>9}{'x plain loop':>14}")
    for name, seconds in taken.items():
        ratio = f"{seconds / baseline:.4f}"
        print(f"{name:<10}{JOBS:>8}{POINTS:>8}{seconds:>9.3f}{BOUND_SECONDS[name]:>9.1f}{ratio:>14}")
    print(f"{'plain loop':<10}{JOBS:>8}{POINTS:>8}{baseline:>9.1f}")
    missed = [name for name, seconds in taken.items() if seconds >= BOUND_SECONDS[name]]
    print(f"missed a bound: {', '.join(missed)}" if missed else "every bound held")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
