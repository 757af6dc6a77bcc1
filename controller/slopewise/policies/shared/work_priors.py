"""What is known of a job's work before it has a plan: from jobs of its class that have ended, else from all that have.

`h` jobs of a class that have ended give a normal prior of log W: mean `(sum x + 0.3 g) / (h + 0.3)` with `g` the mean
over all jobs, variance `v = (n0 s0^2 + sum (x - m)^2) / (n0 + h)` with n0 = 3 and s0 = 0.8, and the next job lies
within `sqrt(v (1 + 1 / (h + 0.3)))` of the mean. So a class is trusted as far as its jobs are alike. The same holds for
log kappa, with s0 = 0.3. Without a class the prior has the density `alpha (W / u)^-alpha` over log W, where u is what
one core does in a scrape interval, and one kernel for each job that has ended.

Worked example: three jobs of one class needed 100, 110 and 121 core-seconds. Then v = (3 x 0.64 + 0.02) / 6 = 0.32, and
the next one needs 110 times or divided by e^0.65 = 1.9; of jobs that needed 20, 110 and 600 it is e^1.2 = 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slopewise.estimators.curves import KAPPA_LOG_MEAN, KAPPA_LOG_SIGMA, Floats
from slopewise.model import ClassFigures

ALPHA = 0.3
KERNEL_SIGMA = 0.8
BEYOND_ENDED_RATIO = math.exp(1.6)

PSEUDO_MEAN, PSEUDO_JOBS = 0.3, 3.0
"""Weights of what is known without the class: in its mean, and in its variance."""

WORK_SIGMA, KAPPA_SIGMA = 0.8, 0.3
"""How far jobs of one class lie apart in log W and in log kappa before any has ended."""

MAX_SQUARE = 100.0
"""Ten sigmas beyond its class, one work is as likely as the next."""

GRID = 400
"""Works at which the kernels are summed up: between them the density is linear."""

PSEUDO_KAPPAS = 2.0
"""Over all jobs, the mean of log kappa counts so many of ln 10."""


@dataclass(frozen=True, slots=True)
class Normal:
    """A normal distribution of a logarithm."""

    mean: float
    sigma: float


@dataclass(frozen=True, slots=True)
class Priors:
    """Of log W and of log kappa."""

    unit: float
    """u, in core-seconds."""
    ended: Floats
    """log W of all jobs that have ended, of any class."""
    kappa: Normal
    """Where the class says nothing."""
    works: Mapping[str, Normal]
    kappas: Mapping[str, Normal]

    def density(self, classes: Sequence[str], log_works: Floats) -> Floats:
        """Of log W, of a job of each class; shape (jobs, works), as `log_works`."""
        unit = math.log(self.unit)
        found = ALPHA * np.exp(-ALPHA * (log_works - unit))
        if len(self.ended):
            grid = np.linspace(float(log_works.min()), float(log_works.max()), GRID)
            kernels = np.exp(-(((grid[:, None] - self.ended) / KERNEL_SIGMA) ** 2) / 2).sum(axis=1)
            found += np.interp(log_works, grid, kernels / (KERNEL_SIGMA * math.sqrt(2 * math.pi)))
        for row, name in enumerate(classes):
            if (known := self.works.get(name)) is not None:
                z = (log_works[row] - known.mean) / known.sigma
                found[row] = np.exp(-np.minimum(z**2, MAX_SQUARE) / 2) / known.sigma
        return found

    def most(self, classes: Sequence[str]) -> Floats:
        """Core-seconds beyond which hardly any job of these classes goes; 0 where nothing has ended."""
        longest = math.exp(float(self.ended.max())) * BEYOND_ENDED_RATIO if len(self.ended) else 0.0
        known = [self.works.get(name) for name in classes]
        return np.array([longest if each is None else math.exp(each.mean + 3 * each.sigma) for each in known])

    def kappa_of(self, name: str) -> Normal:
        """Of a job of this class."""
        return self.kappas.get(name, self.kappa)


def priors(classes: Mapping[str, Sequence[ClassFigures]], unit: float) -> Priors:
    """From the class records."""
    works = {name: found for name, record in classes.items() if (found := _logs([each.work for each in record]))}
    kappas = {name: found for name, record in classes.items() if (found := _logs([each.kappa for each in record]))}
    all_works, all_kappas = ([each for record in logs.values() for each in record] for logs in (works, kappas))
    kappa = (PSEUDO_KAPPAS * KAPPA_LOG_MEAN + math.fsum(all_kappas)) / (PSEUDO_KAPPAS + len(all_kappas))
    of_work = math.fsum(all_works) / len(all_works) if all_works else 0.0
    return Priors(
        unit,
        np.array(all_works),
        Normal(kappa, KAPPA_LOG_SIGMA),
        {name: _normal(logs, of_work, WORK_SIGMA) for name, logs in works.items() if name},
        {name: _normal(logs, kappa, KAPPA_SIGMA) for name, logs in kappas.items() if name},
    )


def _logs(figures: Sequence[float | None]) -> list[float]:
    return [math.log(each) for each in figures if each is not None and each > 0]


def _normal(logs: Sequence[float], elsewhere: float, sigma: float) -> Normal:
    count = len(logs)
    mean = (math.fsum(logs) + PSEUDO_MEAN * elsewhere) / (count + PSEUDO_MEAN)
    variance = (PSEUDO_JOBS * sigma**2 + math.fsum((each - mean) ** 2 for each in logs)) / (PSEUDO_JOBS + count)
    return Normal(mean, math.sqrt(variance * (1 + 1 / (count + PSEUDO_MEAN))))
