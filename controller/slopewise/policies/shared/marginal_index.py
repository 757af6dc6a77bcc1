"""The index of `marginal`: the value of a job's next piece of work, per core-second.

Value is what is reached of 90 % and of 99 % of the job's improvement, on ramps below them, and its end. The piece of
work is the one of most value for its length, of 32 lengths up to what is left.

Worked example: a job of 100 core-seconds with kappa 10 begins: with weights .65/.10/.30 the best piece ends near 92 %
of its improvement, after 26 core-seconds: 0.65 / 26 = 0.025 a core-second; one that ends in 5 gains .30 / 5 = .06.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slopewise.estimators import curves
from slopewise.estimators.curves import Floats
from slopewise.policies.shared.prospects import Prospect

HORIZONS = 32

SIZE_EXPONENT = 0.35

LEAST_PIECE_RATIO = 1 / 400
"""Of the median work: a shorter piece counts as so long. 0.5 core-seconds where jobs need 200."""

DROP_PROBABILITY, SEEN_DROP_PROBABILITY = 0.1, 0.2
"""That a further fall like the one seen comes in what is left; the latter where the job's own losses have dropped."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What 90 %, 99 % and the end of a job are worth."""

    at_90: float
    at_99: float
    end: float


FAVOURS = {
    "balanced": Weights(0.65, 0.10, 0.30),
    "quality": Weights(0.72, 0.10, 0.22),
    "full": Weights(0.55, 0.25, 0.25),
    "ends": Weights(0.55, 0.10, 0.40),
}

UNPLANNED = {
    "balanced": Weights(0.50, 0.10, 0.45),
    "quality": Weights(0.85, 0.10, 0.20),
    "full": Weights(0.65, 0.25, 0.20),
    "ends": Weights(0.40, 0.10, 0.60),
}
"""Without a plan: how far 90 % is away is known sooner than the end, which therefore counts more."""


def ramps(weights: Weights) -> tuple[tuple[float, float, float], ...]:
    """The parts of U(y): the value of each ramp, where it begins, and how long it is."""
    return (weights.at_90, 0.85, 0.075), (weights.at_99, 0.97, 0.025)


def utility(improvement: Floats, weights: Weights) -> Floats:
    """U(y): the ramps from 85 to 92.5 %, and from 97 to 99.5 %."""
    value = np.zeros_like(improvement)
    for worth, begins, length in ramps(weights):
        value += worth * np.clip((improvement - begins) / length, 0.0, 1.0)
    return value


def planned_indices(
    planned: Sequence[Prospect], dropped: Sequence[bool], weights: Weights, median_work: float
) -> Floats:
    """The indices of jobs with a plan, shape (jobs,)."""
    if not planned:
        return np.zeros(0)
    family = np.array([each.fit.family for each in planned])[:, None]
    rate, done, total = (
        np.array([getattr(each, name) for each in planned])[:, None] for name in ("rate", "done", "total")
    )
    weight = np.array([each.job.objectives.weight for each in planned])
    left = np.maximum(total - done, 1e-9)
    pieces = left * (np.arange(1, HORIZONS + 1) / HORIZONS) ** 1.5
    now = utility(curves.improvement(family, rate, done, total), weights)
    gain = utility(curves.improvement(family, rate, done + pieces, total), weights) - now
    poor = np.array([each.fit.is_poor and each.growth_per_cpu_second is not None for each in planned])[:, None]
    growth = np.array([each.growth_per_cpu_second or 0.0 for each in planned])[:, None]
    reachable = weights.at_90 + weights.at_99
    gain = np.where(poor, reachable * np.minimum(1.0, growth * pieces), gain)
    chance = np.where(np.array(dropped), SEEN_DROP_PROBABILITY, DROP_PROBABILITY)[:, None]
    gain = (1 - chance) * gain + chance * reachable * pieces / left
    gain[:, -1] += weights.end
    best = (gain / np.maximum(pieces, LEAST_PIECE_RATIO * median_work)).max(axis=1)
    sized: Floats = weight * (median_work / total[:, 0]) ** SIZE_EXPONENT * best
    return sized
