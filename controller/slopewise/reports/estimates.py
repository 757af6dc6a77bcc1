"""Computes means over repeated runs with their confidence intervals, and the verdict of a ratio to a baseline.

Seeds of a simulation and rounds of a demo use the same verdicts, in tables, JSON and reports.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

Verdict = Literal["better", "worse", "same", "unclear"]
Direction = Literal["less", "more"]

SAME_RATIO = 0.01
"""Two figures less than 1 % apart are the same."""

_ROUNDING_RATIO = 1e-9
"""As binary fractions, 4.4 - 3.4 is a little more than 1 and 4.1 - 3.1 a little less."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over repetitions with its 95 % confidence interval (Student's t).

    No interval where fewer than two repetitions have the figure; no mean where none has.
    """

    mean: float | None
    low: float | None
    high: float | None
    count: int = 0
    """How many repetitions had the figure."""

    @property
    def half(self) -> float | None:
        """Half the width of the interval; None without one."""
        return None if self.mean is None or self.high is None else self.high - self.mean

    def as_json(self) -> dict[str, float | None]:
        """As it is printed: `{"mean", "low", "high"}`."""
        return {"mean": self.mean, "low": self.low, "high": self.high}


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and 95 % confidence interval of one figure of each repetition, e.g. 1, 2, 3 → 2 [-0.48, 4.48]."""
    if not values:
        return Estimate(None, None, None)
    mean, count = fmean(values), len(values)
    if count < 2:
        return Estimate(mean, None, None, count)
    half = student_t(count - 1) * stdev(values) / math.sqrt(count)
    return Estimate(mean, mean - half, mean + half, count)


def verdict(
    better: Direction, ratio: Estimate, *, same_ratio: float = SAME_RATIO, single_ratio: float = 0.0
) -> Verdict | None:
    """The verdict of a ratio to the baseline; None where the ratio is unknown.

    1.00 ± 0.05 is `unclear`, because the interval holds 1 and more than `same_ratio` on a side; 1.00 ± 0.005 is the
    `same`. `single_ratio`: how far the ratio of a single repetition, which has no interval, may be from the truth.
    """
    if ratio.mean is None:
        return None
    if ratio.low is None or ratio.high is None:
        low, high, reach = ratio.mean, ratio.mean, single_ratio - _ROUNDING_RATIO
    else:
        low, high, reach = ratio.low, ratio.high, 0.0
    margin = same_ratio - _ROUNDING_RATIO
    if low > 1 - margin and high < 1 + margin:
        return "same"
    if low - reach <= 1 <= high + reach:
        return "unclear"
    return "better" if (ratio.mean < 1) == (better == "less") else "worse"


# The 97.5 % quantiles for 1 to 5 degrees of freedom; from 6 on the expansion below errs by 0.005 % at most.
_STUDENT_T = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706)


def student_t(degrees: int) -> float:
    """Half the width of a 95 % interval in standard errors: the Cornish-Fisher expansion of Student's t."""
    if degrees <= len(_STUDENT_T):
        return _STUDENT_T[degrees - 1]
    z = 1.959964
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return math.fsum(term / math.pow(degrees, power) for power, term in enumerate(terms))
