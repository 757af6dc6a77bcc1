"""Jobs without a plan, for `marginal`: their work is a guess over decades, so their index is Gittins' and W no number.

The prior of W has the density `alpha (W / u)^-alpha` over log W, where u is what one core does in a scrape interval,
and one kernel for each job that has ended; what has been done is behind. The index is the best, over pieces of work, of
expected value over expected work: a piece may be longer than what is left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slopewise.estimators import curves
from slopewise.estimators.curves import Floats, Singles
from slopewise.policies.shared.marginal_index import Weights, utility
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

_BLOCK = 256


def look_ahead(unplanned: Sequence[Prospect], priors: Priors, weights: Weights) -> None:
    """Fill in index, expected work and rate."""
    for first in range(0, len(unplanned), _BLOCK):
        _look_ahead(unplanned[first : first + _BLOCK], priors, weights)


def _look_ahead(block: Sequence[Prospect], priors: Priors, weights: Weights) -> None:
    unit, classes = priors.unit, [each.job.workload_class for each in block]
    done = np.array([each.done for each in block])
    scores, family, scale = curves.unpacked([each.fit for each in block])
    scale = scale * np.array([each.unit for each in block])
    least = np.maximum(done, 0.2 * unit)
    known = np.array([name in priors.works for name in classes])
    most = np.maximum(np.where(known, 3.0, DECADES_RATIO) * least, priors.most(classes))
    steps = np.arange(WORKS) / (WORKS - 1)
    nearest = NEAREST_RATIO * least
    ahead = nearest[:, None] * ((most - least) / nearest)[:, None] ** steps
    works = least[:, None] + ahead  # (jobs, works)
    prior = priors.density(classes, np.log(works)) * np.log((most - least) / nearest)[:, None] * ahead / works
    # Rates are taken together: the likelihood of each group, and its middle.
    likelihood = np.exp(scores).reshape(len(block), -1, GROUP).sum(axis=2)
    middle = curves.grid_rates().reshape(-1, GROUP)[None, :, GROUP // 2] / scale[:, None]  # (jobs, groups)
    expected = [priors.kappa_of(name) for name in classes]
    width = np.array([each.sigma for each in expected])
    width = np.where(family == curves.EXPONENTIAL, width, np.maximum(width, curves.KAPPA_LOG_SIGMA_SLOW))
    log_kappa = np.array([each.mean for each in expected])[:, None, None]
    kappa = (np.log(middle)[:, :, None] + np.log(works)[:, None, :] - log_kappa) / width[:, None, None]
    weight = likelihood[:, :, None] * np.exp(-(kappa**2) / 2) * prior[:, None, :]  # (jobs, groups, works)
    total = np.maximum(weight.sum(axis=(1, 2)), 1e-300)
    of_work = weight.sum(axis=1) / total[:, None]
    left = np.maximum(works - done[:, None], 1e-9)
    cumulative = np.cumsum(of_work, axis=1)
    at = (cumulative[:, None, :] >= PIECES[None, :, None]).argmax(axis=2)
    pieces = np.take_along_axis(left, at, axis=1)  # (jobs, pieces)
    value = np.zeros_like(pieces)
    shape = family[:, None]
    whole = np.maximum(1.0 - curves.phi(family[:, None, None], middle[:, :, None] * works[:, None, :]), 1e-12).astype(
        np.float32
    )
    singles, single_left = weight.astype(np.float32), left.astype(np.float32)  # half the time of 64 bits

    def reached(after: Floats) -> Singles:
        """U after so much work, shape (jobs, groups, works)."""
        falls = (1.0 - curves.phi(shape, middle * after[:, None])).astype(np.float32)
        value: Singles = utility(falls[:, :, None] / whole, weights)
        return value

    now = reached(done)
    for number in range(len(PIECES)):
        piece = pieces[:, number]
        gain = reached(done + piece) - now
        gain += np.float32(weights.end) * (piece.astype(np.float32)[:, None, None] >= single_left[:, None, :])
        value[:, number] = np.einsum("jgw,jgw->j", singles, gain) / total
    spent = (of_work[:, None, :] * np.minimum(pieces[:, :, None], left[:, None, :])).sum(axis=2)
    index = (value / np.maximum(spent, 1e-9)).max(axis=1)
    expected_log = (of_work * np.log(works)).sum(axis=1)
    sigma = np.sqrt(np.maximum(0.0, (of_work * np.log(works) ** 2).sum(axis=1) - expected_log**2))
    low, high = (
        np.take_along_axis(works, (cumulative >= each).argmax(axis=1)[:, None], axis=1)[:, 0]
        for each in (LOW_QUANTILE, HIGH_QUANTILE)
    )
    rate = np.exp((weight.sum(axis=2) * np.log(middle)).sum(axis=1) / total)
    for row, each in enumerate(block):
        each.index = float(each.job.objectives.weight * index[row])
        each.total, each.rate = float(np.exp(expected_log[row])), float(rate[row])
        each.low, each.high = float(low[row]), float(high[row])
        each.sigma = float(sigma[row])
