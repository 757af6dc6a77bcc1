"""Learning curves: how a job's loss falls with its work, fitted to its raw points, and how much work is left.

A curve is `c + a * phi(b * s)` over the work `s`, with `phi` one of `FAMILIES`. The rate `b` is searched on a grid of
45 values, a factor 2^(1/5) apart; `c` and `a >= 0` are the least-squares ones of each. What is kept of a fit are the
scores of the 45 rates (`CurveFit`): the posterior over rate and work changes with each core-second, and the fit only as
points grow. Jobs are fitted together, in blocks that fit a cache; shapes are (jobs, points) and (jobs, rates).

The fraction of the total improvement after work `s` of `W` is `y(s) = (1 - phi(b s)) / (1 - phi(b W))`.

Worked example: b = 0.04 per core-second and W = 250: after 50 core-seconds y = (1 - e^-2) / (1 - e^-10) = 0.86.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slopewise.model import CurveFit

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]

FAMILIES = ("exponential", "power", "inverse")
"""phi(x) = e^-x; (1 + x)^-1/2; 1 / (1 + x)."""

EXPONENTIAL, POWER, INVERSE = range(3)

RATES = 45
RATES_AN_OCTAVE = 5
"""Then phi squared of one rate is phi of the rate five places on, and no product is formed."""

FIRST_RATE = 0.5
"""Of the grid, in units of 1 / scale. The last one is 223."""

KAPPA_LOG_MEAN, KAPPA_LOG_SIGMA = math.log(10.0), 0.5
"""The prior of `kappa = b W`: a training takes about ten times as long as its loss needs to fall to 1/e."""

KAPPA_LOG_SIGMA_SLOW = 1.0
"""Of the other families, whose tails are longer."""

WORKS = 24
"""Values of W of a plan's posterior, from 3 sigma below to 3 above."""

NOISE_PRIOR, NOISE_PRIOR_POINTS = 0.02, 2.0
"""Residuals of few points say little: as if two more had shown 2 % of the range."""

MIN_POINTS = 4
"""Fewer points than that leave the prior as it is."""

HELD_OUT_RATIO = 0.25
"""The newest quarter of the points decides between families, by the error of a fit to the others."""

BETTER_FAMILY_RATIO, FAMILY_POINTS = 0.5, 40
"""Another family than the exponential must predict with so much of its squared error, from so many points at least."""

POOR_RATIO = 1.5
"""A fit is poor that predicts the held-out points with so much more squared error than the last level before them, and
with more than `POOR_ERROR` of the range."""

POOR_ERROR = 0.1

REFIT_RATIO = 1.15
"""A job is fitted again once it has so many times the points, 38 times in its life. To fit it at each doubling costs
.01 to .02 of mean completion time (seeds 1000 to 1007 of five scenarios)."""

SAME_SCALE = 0.05
"""In log; a plan that has changed by less leaves the grid where it is."""

_BLOCK = 64
"""Jobs a block: 64 x 200 points x 50 rates in 32 bits are 2.5 MB."""


def grid_rates(count: int = RATES) -> Floats:
    """The rates of the grid, in units of 1 / scale."""
    rates: Floats = FIRST_RATE * 2.0 ** (np.arange(count) / RATES_AN_OCTAVE)
    return rates


def phi(family: NDArray[np.int64] | int, x: Floats) -> Floats:
    """The falling part of the curve: 1 at 0, 0 at infinity. `family` is broadcast against `x`."""
    with np.errstate(over="ignore"):
        if not np.any(family):  # nearly always
            falling: Floats = np.exp(-x)
            return falling
        slow = 1.0 / (1.0 + x)
        values: Floats = np.where(
            np.asarray(family) == EXPONENTIAL,
            np.exp(-x),
            np.where(np.asarray(family) == POWER, np.sqrt(slow), slow),
        )
    return values


def improvement(family: NDArray[np.int64] | int, rate: Floats, work: Floats, total: Floats) -> Floats:
    """The fraction of the total improvement after `work`, 0 to 1; all arguments broadcast against each other."""
    whole = 1.0 - phi(family, rate * total)
    values: Floats = np.clip((1.0 - phi(family, rate * work)) / np.maximum(whole, 1e-12), 0.0, 1.0)
    return values


def fit(points: Sequence[Singles], signs: Sequence[float], scales: Sequence[float]) -> list[CurveFit]:
    """Fit many jobs. `points`: work and level of each, shape (points, 2).

    `signs`: +1 where a smaller level is better, else -1. `scales`: the work by which the grid of rates is laid, which
    is what the job is expected to need in all.
    """
    fits: list[CurveFit] = []
    order = sorted(range(len(points)), key=lambda index: len(points[index]))  # of like length: little padding
    for first in range(0, len(order), _BLOCK):
        chosen = order[first : first + _BLOCK]
        fits += _fit_block([points[i] for i in chosen], [signs[i] for i in chosen], [scales[i] for i in chosen])
    placed = dict(zip(order, fits, strict=True))
    return [placed[index] for index in range(len(points))]


@dataclass(frozen=True, slots=True)
class _Block:
    """Points of some jobs, padded to the same number, shape (jobs, points)."""

    work: Singles
    """In units of the scale."""
    level: Singles
    """Less its mean, in units of its range; 0 where there is no point."""
    there: Singles
    train: Singles
    """1 for a point that is there, and for one that is not held out."""
    count: Floats


def _fit_block(points: Sequence[Singles], signs: Sequence[float], scales: Sequence[float]) -> list[CurveFit]:
    block = _padded(points, signs, scales)
    sse, best_train = _searched(block)
    held_out, last = _held_out_errors(block, best_train)
    family = np.zeros(len(points), np.int64)
    for other in (POWER, INVERSE):
        chosen = held_out[np.arange(len(points)), family]
        family = np.where(
            (held_out[:, other] < BETTER_FAMILY_RATIO * chosen) & (block.count >= FAMILY_POINTS), other, family
        )
    rows = np.arange(len(points))
    of_family, error = sse[family, rows], held_out[rows, family]
    enough = block.count >= MIN_POINTS
    least = of_family.min(axis=1)
    variance = (least + NOISE_PRIOR_POINTS * NOISE_PRIOR**2) / np.maximum(1.0, block.count - 3 + NOISE_PRIOR_POINTS)
    scores = np.where(enough[:, None], -(of_family - least[:, None]) / (2 * variance[:, None]), 0.0)
    spare = block.count - block.train.sum(axis=1)
    poor = enough & (error > POOR_RATIO * last) & (error > spare * POOR_ERROR**2)
    packed = np.maximum(scores, -1e6).astype("<f4")
    return [
        CurveFit(len(points[i]), float(scales[i]), int(family[i]), packed[i].tobytes(), bool(poor[i]))
        for i in range(len(points))
    ]


def _padded(points: Sequence[Singles], signs: Sequence[float], scales: Sequence[float]) -> _Block:
    counts = np.array([len(each) for each in points])
    shape = (len(points), max(1, int(counts.max())))
    work, level, there = (np.zeros(shape, np.float32) for _ in range(3))
    for row, (pairs, sign, scale) in enumerate(zip(points, signs, scales, strict=True)):
        count = len(pairs)
        if count:
            levels = sign * pairs[:, 1].astype(np.float64)
            spread = float(levels.max() - levels.min())
            level[row, :count] = (levels - levels.mean()) / (spread or 1.0)
            work[row, :count] = pairs[:, 0] / scale
            there[row, :count] = 1.0
    ordinal = np.arange(shape[1])[None, :]
    train = (ordinal < np.ceil((1 - HELD_OUT_RATIO) * counts)[:, None]).astype(np.float32) * there
    return _Block(work, level, there, train, counts.astype(np.float64))


def _searched(block: _Block) -> tuple[Floats, tuple[NDArray[np.int64], Floats, Floats]]:
    """Squared errors of all points, shape (families, jobs, rates), and the fit to those that are not held out.

    Of the latter: index of the best rate, `a` and `c`, shape (families, jobs) each.
    """
    weights = np.stack(
        [block.there, block.there * block.level, block.train, block.train * block.level], axis=1
    )  # (jobs, 4, points)
    rates = grid_rates(RATES + RATES_AN_OCTAVE).astype(np.float32)
    sums = weights @ np.exp(-block.work[:, :, None] * rates)
    few = rates[:RATES:2]
    slow = 1.0 / (1.0 + block.work[:, :, None] * few)
    of_slow = weights @ slow
    sse = np.empty((3, len(block.work), RATES))
    best = np.empty((3, len(block.work)), np.int64), *np.empty((2, 3, len(block.work)))
    found = (
        (EXPONENTIAL, sums[:, :, :RATES], sums[:, :, RATES_AN_OCTAVE:]),
        (POWER, weights @ np.sqrt(slow), of_slow),
        (INVERSE, of_slow, weights @ (slow * slow)),
    )
    levels = np.stack([block.level, block.level * block.level], axis=2).astype(np.float64)
    of_all = np.einsum("jn,jnk->jk", block.there.astype(np.float64), levels)
    of_train = np.einsum("jn,jnk->jk", block.train.astype(np.float64), levels)
    rows = np.arange(len(block.work))
    for family, first, second in found:
        for at, y, count in ((0, of_all, block.count), (2, of_train, block.train.sum(axis=1, dtype=np.float64))):
            error, slope, offset = _least_squares(
                first[:, at].astype(np.float64), second[:, at].astype(np.float64), first[:, at + 1], y, count
            )
            if at == 2:
                which = error.argmin(axis=1)
                best[0][family] = which if family == EXPONENTIAL else 2 * which
                best[1][family], best[2][family] = slope[rows, which], offset[rows, which]
            elif family == EXPONENTIAL:
                sse[family] = error
            else:
                sse[family, :, ::2] = error
                sse[family, :, 1::2] = (error[:, :-1] + error[:, 1:]) / 2
    return sse, (best[0], best[1], best[2])


def _least_squares(
    sum_f: Floats, sum_ff: Floats, sum_fy: Floats, y: Floats, count: Floats
) -> tuple[Floats, Floats, Floats]:
    """Squared error, `a` and `c` for each rate, shape (jobs, rates); `y`: sums of levels and of their squares."""
    n = np.maximum(1.0, count)[:, None]
    sum_y, sum_yy = y[:, :1], y[:, 1:]
    total = np.maximum(0.0, sum_yy - sum_y * sum_y / n)
    with_f = sum_fy - sum_f * sum_y / n
    of_f = sum_ff - sum_f * sum_f / n
    usable = (of_f > 1e-5 * n) & (with_f > 0)  # else a flat line explains as much, or the loss rises
    slope = np.where(usable, with_f / np.where(usable, of_f, 1.0), 0.0)
    error: Floats = np.maximum(0.0, total - slope * with_f)
    offset: Floats = (sum_y - slope * sum_f) / n
    return error, slope, offset


def _held_out_errors(block: _Block, best: tuple[NDArray[np.int64], Floats, Floats]) -> tuple[Floats, Floats]:
    """Squared errors on the held-out points of each family's best fit, and of the last level, shape (jobs, …)."""
    spare = (block.there - block.train).astype(np.float64)
    rates = grid_rates()
    errors = np.empty((len(block.work), 3))
    for family in range(3):
        which, slope, offset = (each[family] for each in best)
        values = phi(family, rates[which][:, None] * block.work.astype(np.float64))
        errors[:, family] = (spare * (block.level - offset[:, None] - slope[:, None] * values) ** 2).sum(axis=1)
    kept = np.maximum(0, block.train.sum(axis=1).astype(np.int64) - 1)
    rows = np.arange(len(block.work))
    recent = [block.level[rows, np.maximum(0, kept - back)] for back in range(3)]
    level = np.mean(recent, axis=0)
    last = (spare * (block.level - level[:, None]) ** 2).sum(axis=1)
    return errors, last


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is expected of jobs with a plan, in the unit of their points, shape (jobs,)."""

    total: Floats
    """The posterior mean of log W, as W."""
    low: Floats
    """W is larger with 90 % probability."""
    high: Floats
    """W is smaller with 90 % probability."""
    rate: Floats
    """The posterior mean of log b, as b."""


def outlook(scores: Floats, family: NDArray[np.int64], scale: Floats, sigma: Floats, done: Floats) -> Outlook:
    """The posterior over W and b, given that the work done is less than W; arrays of shape (jobs,) and (jobs, rates).

    The prior of W is log-normal around the scale, with `sigma` in log W. The grids of W and b have the same origin, so
    that the prior of `kappa = b W` is one matrix for all jobs of one sigma and family.
    """
    count = len(scale)
    total, low, high, rate = (np.empty(count) for _ in range(4))
    z = np.linspace(-3.0, 3.0, WORKS)
    log_rates = np.log(grid_rates())
    likelihood = np.exp(scores)
    keys = np.stack([sigma, (family != EXPONENTIAL).astype(np.float64)], axis=1)
    for each in np.unique(keys, axis=0) if count else ():
        at = np.flatnonzero((keys == each).all(axis=1))
        width = KAPPA_LOG_SIGMA_SLOW if each[1] else KAPPA_LOG_SIGMA
        log_works = each[0] * z
        kappa = (log_rates[:, None] + log_works[None, :] - KAPPA_LOG_MEAN) / width
        prior = np.exp(-(kappa**2) / 2 - z**2 / 2)  # (rates, works)
        longer = log_works[None, :] > np.log(np.maximum(done[at] / scale[at], 1e-12))[:, None]
        of_work = (likelihood[at] @ prior) * longer
        weight = of_work.sum(axis=1)
        over = weight <= 0  # past every plausible end: a twentieth of what it has done is left
        safe = np.where(over, 1.0, weight)
        of_rate = likelihood[at] * (longer.astype(np.float64) @ prior.T)
        rates_weight = np.maximum(of_rate.sum(axis=1), 1e-300)
        cumulative = np.cumsum(of_work, axis=1) / safe[:, None]
        after = 1.05 * done[at]
        mean = scale[at] * np.exp((of_work @ log_works) / safe)
        total[at] = np.maximum(np.where(over, after, mean), done[at] * 1.001)
        low[at] = np.where(over, after, scale[at] * np.exp(log_works[(cumulative >= 0.1).argmax(axis=1)]))
        high[at] = np.where(over, after, scale[at] * np.exp(log_works[(cumulative >= 0.9).argmax(axis=1)]))
        rate[at] = np.exp((of_rate @ log_rates) / rates_weight) / scale[at]
    rate = np.where(np.isfinite(rate) & (rate > 0), rate, 10.0 / scale)
    return Outlook(total, np.maximum(low, done), np.maximum(high, total), rate)


def unpacked(fits: Sequence[CurveFit]) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Scores, family and scale of many fits, shape (jobs, rates), (jobs,) and (jobs,)."""
    scores = np.frombuffer(b"".join(each.scores for each in fits), "<f4").reshape(-1, RATES).astype(np.float64)
    return scores, np.array([each.family for each in fits], np.int64), np.array([each.scale for each in fits])


def log_kappa_of(fit: CurveFit, work: float) -> float:
    """The posterior mean of `log (b W)` of a job that has ended after this work, in the unit of its points."""
    scores, family, scale = unpacked([fit])
    log_kappas = np.log(grid_rates()) + math.log(work / scale[0])
    width = KAPPA_LOG_SIGMA if family[0] == EXPONENTIAL else KAPPA_LOG_SIGMA_SLOW
    weight = np.exp(scores[0] - ((log_kappas - KAPPA_LOG_MEAN) / width) ** 2 / 2)
    return float((weight * log_kappas).sum() / max(float(weight.sum()), 1e-300))


FLAT = np.zeros(RATES, "<f4").tobytes()


def unknown(scale: float) -> CurveFit:
    """The fit of a job without points: every rate explains them as well."""
    return CurveFit(0, scale, EXPONENTIAL, FLAT)


def is_due(known: CurveFit | None, points: int, scale: float) -> bool:
    """Whether a job is to be fitted: its points have grown or shrunk by enough, or its plan has changed."""
    if known is None or abs(math.log(scale / known.scale)) > SAME_SCALE:
        return True
    return points >= max(MIN_POINTS, REFIT_RATIO * known.points) or points < known.points / REFIT_RATIO**2
