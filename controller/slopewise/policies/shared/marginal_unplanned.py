"""Jobs without a plan, for `marginal`: their work is a guess over decades, so their index is Gittins' and W no number.

The prior of W has the density `alpha (W / u)^-alpha` over log W, where u is what one core does in a scrape interval,
and one kernel for each job that has ended; what has been done is behind. The index is the best, over pieces of work, of
expected value over expected work: a piece may be longer than what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slopewise.estimators import curves
from slopewise.estimators.curves import Floats, Singles
from slopewise.policies.shared.marginal_index import Weights, ramps
from slopewise.policies.shared.prospects import Prospect
from slopewise.policies.shared.work_priors import Priors

WORKS = 40
DECADES_RATIO = 300.0
"""The grid of W reaches from what is done to so much of it."""

NEAREST_RATIO = 0.02
"""Of what is done: the least that may be left."""

LOW_QUANTILE = 0.2
HIGH_QUANTILE = 0.9

GROUP = 5
"""Rates of the grid that are taken together."""

PIECES = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9])
"""Quantiles of the work left at which a piece may end."""

MAX_SQUARE = np.float32(36.0)
"""Six sigmas: what lies further away is as unlikely, or a curve that contradicts its class would leave no posterior."""

_BLOCK = 256


def look_ahead(unplanned: Sequence[Prospect], priors: Priors, weights: Weights) -> None:
    """Fill in index, expected work and rate."""
    for first in range(0, len(unplanned), _BLOCK):
        _look_ahead(unplanned[first : first + _BLOCK], priors, weights)


def _look_ahead(block: Sequence[Prospect], priors: Priors, weights: Weights) -> None:
    found = _posterior(block, priors)
    of_work = found.weight.sum(axis=1)
    cumulative = np.cumsum(of_work, axis=1)
    left = np.maximum(found.works - found.done[:, None], 1e-9)
    at = (cumulative[:, None, :] >= PIECES[None, :, None]).argmax(axis=2)
    pieces = np.take_along_axis(left, at, axis=1)  # (jobs, pieces)
    ended = (of_work[:, None, :] * (pieces[:, :, None] >= left[:, None, :])).sum(axis=2)
    value = _reached(found, pieces, weights) + weights.end * ended
    spent = (of_work[:, None, :] * np.minimum(pieces[:, :, None], left[:, None, :])).sum(axis=2)
    index = (value / np.maximum(spent, 1e-9)).max(axis=1)
    log_works = np.log(found.works)
    expected_log = (of_work * log_works).sum(axis=1)
    sigma = np.sqrt(np.maximum(0.0, (of_work * log_works**2).sum(axis=1) - expected_log**2))
    low, high = (
        np.take_along_axis(found.works, (cumulative >= each).argmax(axis=1)[:, None], axis=1)[:, 0]
        for each in (LOW_QUANTILE, HIGH_QUANTILE)
    )
    total, rate = np.exp(expected_log), np.exp((found.weight.sum(axis=2) * np.log(found.rates)).sum(axis=1))
    for row, each in enumerate(block):
        each.index = float(each.job.objectives.weight * index[row])
        each.total, each.rate = float(total[row]), float(rate[row])
        each.low, each.high = float(low[row]), float(high[row])
        each.sigma = float(sigma[row])


@dataclass(frozen=True, slots=True)
class _Posterior:
    """Over the work and the rate of some jobs."""

    done: Floats
    works: Floats
    """Shape (jobs, works)."""
    family: NDArray[np.int64]
    rates: Floats
    """The middle of each group of rates, a core-second; shape (jobs, groups)."""
    weight: Singles
    """Shape (jobs, groups, works); of each job 1 in all. In 32 bits, which take half the time."""


def _posterior(block: Sequence[Prospect], priors: Priors) -> _Posterior:
    classes = [each.job.workload_class for each in block]
    done = np.array([each.done for each in block])
    scores, family, scale = curves.unpacked([each.fit for each in block])
    scale = scale * np.array([each.unit for each in block])
    least = np.maximum(done, 0.2 * priors.unit)
    known = np.array([name in priors.works for name in classes])
    most = np.maximum(np.where(known, 3.0, DECADES_RATIO) * least, priors.most(classes))
    nearest = NEAREST_RATIO * least
    span = (most - least) / nearest
    ahead = nearest[:, None] * span[:, None] ** (np.arange(WORKS) / (WORKS - 1))
    works = least[:, None] + ahead
    log_works = np.log(works)
    prior = priors.density(classes, log_works) * np.log(span)[:, None] * ahead / works
    likelihood = np.exp(scores).reshape(len(block), -1, GROUP).sum(axis=2)
    rates = curves.grid_rates().reshape(-1, GROUP)[None, :, GROUP // 2] / scale[:, None]
    expected = [priors.kappa_of(name) for name in classes]
    width = np.array([each.sigma for each in expected])
    width = np.where(family == curves.EXPONENTIAL, width, np.maximum(width, curves.KAPPA_LOG_SIGMA_SLOW))
    log_kappa = np.array([each.mean for each in expected])
    z_rates = ((np.log(rates) - log_kappa[:, None]) / width[:, None]).astype(np.float32)
    z_works = (log_works / width[:, None]).astype(np.float32)
    z = z_rates[:, :, None] + z_works[:, None, :]
    weight = np.exp(np.minimum(z * z, MAX_SQUARE) * np.float32(-0.5))
    weight *= (likelihood / likelihood.sum(axis=1, keepdims=True)).astype(np.float32)[:, :, None]
    weight *= (prior / prior.sum(axis=1, keepdims=True)).astype(np.float32)[:, None, :]
    weight /= weight.sum(axis=(1, 2))[:, None, None]
    return _Posterior(done, works, family, rates, weight)


def _reached(found: _Posterior, pieces: Floats, weights: Weights) -> Floats:
    """The expected gain in U by each piece of work, shape (jobs, pieces)."""
    whole = 1.0 - curves.phi(found.family[:, None, None], found.rates[:, :, None] * found.works[:, None, :])
    inverse = (1.0 / np.maximum(whole, 1e-12)).astype(np.float32)
    improvement = np.empty_like(inverse)

    def expected(after: Floats) -> Floats:
        falls = 1.0 - curves.phi(found.family[:, None], found.rates * after[:, None])
        total = np.zeros(len(after))
        for value, begins, length in ramps(weights):
            np.multiply((falls / length).astype(np.float32)[:, :, None], inverse, out=improvement)
            np.subtract(improvement, np.float32(begins / length), out=improvement)
            np.clip(improvement, 0.0, 1.0, out=improvement)
            total += value * np.einsum("jgw,jgw->j", found.weight, improvement)
        return total

    now = expected(found.done)
    return np.stack([expected(found.done + piece) - now for piece in pieces.T], axis=1)
