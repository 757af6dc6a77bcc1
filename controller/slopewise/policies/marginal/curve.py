"""Fits c + a exp(-kappa x) to the losses of many jobs at once; x is the work done, as a part of all that is expected.

For each kappa of a grid, a >= 0 and c are least squares; the result is the posterior mean of log kappa. The grid has
five values an octave, so the exponentials of one octave are the squares of those of the octave below. Everything is a
product or a sum in a fixed order: BLAS and the exponential of numpy round differently from processor to processor.

Worked example: a loss that has a tenth of its fall left after 23 % of the work has kappa 10: exp(-10 x 0.23) = 0.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_KAPPA, AN_OCTAVE, OCTAVES = 0.5, 5, 9
"""45 values from 0.5, nearly a straight line, to 222: over after 1 % of the work."""

TYPICAL_KAPPA, KAPPA_SIGMA = 10.0, 0.5
"""The prior, in log kappa: FlowCon's models reach 90 % of their fall within 20 % of their time."""

LEAST_NOISE = 0.02
"""Of the range of the losses; a smoother curve is still no exponential."""

_CELLS_AT_ONCE = 12_800
"""Of an array: 64 jobs with 200 points each, or 284 with one value of kappa a row. They stay in a processor's cache."""


def fit(points: Sequence[NDArray[np.float32]], signs: Sequence[float], scales: Sequence[float]) -> list[float]:
    """Kappa of each job, shape (jobs,), six digits.

    `points`: pairs of work and level, shape (points, 2) each, at least one. `signs`: -1 where larger levels are better.
    `scales`: the work at which x is 1.
    """
    kappas, left = [0.0] * len(points), sorted(range(len(points)), key=lambda job: -len(points[job]))
    while left:  # those with alike many points together; what stands beside a job changes no digit of it
        most = _CELLS_AT_ONCE // max(len(points[left[0]]), AN_OCTAVE * OCTAVES)
        some, left = left[:most], left[most:]
        found = _fit([points[job] for job in some], [signs[job] for job in some], [scales[job] for job in some])
        for job, kappa in zip(some, found, strict=True):
            kappas[job] = float(f"{kappa:.6g}")
    return kappas


def _fit(points: Sequence[NDArray[np.float32]], signs: Sequence[float], scales: Sequence[float]) -> list[float]:
    # One row a point and one column a job, so that sums go row by row; two columns at least, or numpy sums by pairs.
    lengths = np.array([len(pairs) for pairs in points])
    shape = lengths.max(), max(2, len(points))
    x, y, inside, count = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.ones(shape[1])
    pairs, ends, column = np.concatenate(points), np.cumsum(lengths), np.repeat(np.arange(len(points)), lengths)
    place = np.arange(len(pairs)) - (ends - lengths)[column], column
    levels = np.array(signs)[column] * pairs[:, 1].astype(np.float64)
    x[place] = np.minimum(pairs[:, 0] / np.array(scales, np.float32)[column], 4.0)
    y[place] = levels - levels[ends - 1][column]
    inside[place] = 1.0
    count[: len(points)] = lengths
    sum_y = y.sum(axis=0)
    whole = (y * y).sum(axis=0) - sum_y * sum_y / count
    errors = np.empty((AN_OCTAVE * OCTAVES, shape[1]))
    for step in range(AN_OCTAVE):
        falling = _exponential(-LEAST_KAPPA * 2.0 ** (step / AN_OCTAVE) * x, halvings=3) * inside
        for octave in range(OCTAVES):
            sum_e, squared = falling.sum(axis=0), falling * falling
            spread = np.maximum(squared.sum(axis=0) - sum_e * sum_e / count, 1e-12 * count)
            slope = np.maximum(0.0, (falling * y).sum(axis=0) - sum_e * sum_y / count)
            errors[octave * AN_OCTAVE + step] = np.maximum(0.0, whole - slope * slope / spread)
            falling = squared
    span = y.max(axis=0) - y.min(axis=0)
    noise = np.maximum(errors.min(axis=0) / np.maximum(1.0, count - 3), (LEAST_NOISE * span) ** 2)
    order = np.arange(len(errors), dtype=np.float64)[:, None]
    score = -errors / (2.0 * np.maximum(noise, 1e-300))
    logs = math.log(LEAST_KAPPA) + order * math.log(2.0) / AN_OCTAVE
    score = score - ((logs - math.log(TYPICAL_KAPPA)) / KAPPA_SIGMA) ** 2 / 2.0
    weight = _exponential(np.maximum(score - score.max(axis=0), -60.0), halvings=7)
    mean = (weight * order).sum(axis=0) / weight.sum(axis=0)
    return [LEAST_KAPPA * 2.0 ** (each / AN_OCTAVE) for each in mean[: len(points)].tolist()]


def _exponential(power: Floats, halvings: int) -> Floats:
    """The exponential of a negative power: eight terms of its series at power / 2 ** halvings, then squares."""
    part = power / 2.0**halvings
    value = np.ones_like(part)
    for term in range(8, 0, -1):
        value = 1.0 + part * value / term
    for _ in range(halvings):
        value = value * value
    return value
