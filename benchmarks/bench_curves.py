"""Fit the learning curves of many jobs: CPU seconds, beside a plain loop over jobs and rates.

Gate: fits for 10,000 jobs with 200 points each under 2 s of CPU. The baseline of the same run fits every 50th job by
the same least squares over the same rates, one job and one rate at a time, and is scaled up; so that a slow machine
shows in both columns.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from slopewise.policies.marginal import curve

JOBS, POINTS = 10_000, 200
BOUND_SECONDS = 2.0
SAMPLE = 50
"""The baseline is timed on every so many-th job."""

ROUNDS = 3

RATES = curve.LEAST_KAPPA * 2.0 ** (np.arange(curve.AN_OCTAVE * curve.OCTAVES) / curve.AN_OCTAVE)

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
    for rate in RATES:
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
    baseline = SAMPLE * cpu_seconds(
        lambda: [plainly(each, work) for each, work in zip(points[::SAMPLE], works[::SAMPLE], strict=True)]
    )
    taken = cpu_seconds(lambda: curve.fit(points, signs, works))
    print(f"{'':<10}{'jobs':>8}{'points':>8}{'CPU s':>9}{'bound s':>9}{'x plain loop':>14}")
    print(f"{'fit':<10}{JOBS:>8}{POINTS:>8}{taken:>9.3f}{BOUND_SECONDS:>9.1f}{taken / baseline:>14.4f}")
    print(f"{'plain loop':<10}{JOBS:>8}{POINTS:>8}{baseline:>9.1f}")
    print("the bound held" if taken < BOUND_SECONDS else "missed the bound")
    return int(taken >= BOUND_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
