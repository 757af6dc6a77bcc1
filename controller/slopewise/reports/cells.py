"""Cells of a comparison table: durations, counts, objectives met or missed, plain text.

Each cell has its figure (`text`), its comparison (`badge`), and both as a phrase (`phrase`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from slopewise.reports.estimates import Estimate, Verdict, estimate, verdict
from slopewise.reports.wording import UNKNOWN, change, of_bound, plus_minus

SINGLE_RATIO = 0.05
"""How far one pair of runs may be from the truth. Three pairs of the same demo on an idle machine of two cores gave
ratios of 0.77, 0.83 and 0.81, of 1.06, 1.12 and 1.09, and of 0.97, 0.99 and 0.97."""


def once(value: float | None) -> Estimate:
    """The figure of a single run."""
    return estimate([] if value is None else [value])


@dataclass(frozen=True, slots=True)
class Cell:
    """A duration: less is better.

    `against` is its ratio to the baseline and `verdict` the result of the comparison: None for the baseline itself or
    where runs are not comparable.
    """

    shown: Estimate
    against: Estimate | None = None
    verdict: Verdict | None = None
    note: str = ""

    @property
    def seconds(self) -> float | None:
        """The mean over the rounds."""
        return self.shown.mean

    @property
    def ratio(self) -> float | None:
        """The mean ratio over the rounds that were compared."""
        return None if self.against is None else self.against.mean

    @property
    def text(self) -> str:
        """`41.3 s`, or `41.3 ± 2.1 s`."""
        return UNKNOWN if self.seconds is None else f"{plus_minus(self.shown, 1)} s"

    @property
    def badge(self) -> str:
        """`×0.82 better`, or `×0.82 ± 0.03 better`; empty where nothing is compared."""
        if self.against is None or self.verdict is None:
            return ""
        return f"×{plus_minus(self.against, 2)} {self.verdict}"

    @property
    def change(self) -> str:
        """`18 % shorter`; empty where nothing is compared."""
        return "" if self.ratio is None else change(self.ratio)

    def phrase(self, label: str) -> str:
        """`makespan 18 % shorter`."""
        return f"{label} {self.change}"

    def as_json(self) -> dict[str, Any] | None:
        """The ratio and what it says; None where nothing is compared."""
        return None if self.against is None else {"ratio": self.against.as_json(), "verdict": self.verdict}


@dataclass(frozen=True, slots=True)
class Count:
    """Some of a number of jobs: more is better. `more` than under the baseline: None where nothing is compared."""

    shown: Estimate
    total: int
    more: Estimate | None = None
    note: str = ""

    @property
    def verdict(self) -> Verdict | None:
        """One job more is better, one fewer is worse; over several rounds the interval decides."""
        return None if self.more is None else verdict_of_difference(self.more, self.total)

    @property
    def text(self) -> str:
        """`5 of 8`, or `5.3 of 8` over several rounds."""
        return f"{_count(self.shown)} of {self.total}"

    @property
    def badge(self) -> str:
        """`+2 better`, or `+1.3 ± 0.9 better`; empty where nothing is compared."""
        if self.more is None or self.more.mean is None:
            return ""
        figure = f"{self.more.mean:+.0f}" if self.more.half is None else f"{self.more.mean:+.1f} ± {self.more.half:.1f}"
        return f"{figure} {self.verdict}"

    @property
    def change(self) -> str:
        """`2 more`; empty where nothing is compared."""
        if self.more is None or self.more.mean is None:
            return ""
        figure = f"{abs(self.more.mean):.0f}" if self.more.half is None else f"{abs(self.more.mean):.1f}"
        return f"{figure} {'fewer' if self.more.mean < 0 else 'more'}"

    def phrase(self, label: str) -> str:
        """`2 more deadlines met`."""
        return f"{self.change} {label}"

    def as_json(self) -> dict[str, Any] | None:
        """The difference and what it says; None where nothing is compared."""
        return None if self.more is None else {"difference": self.more.as_json(), "verdict": self.verdict}


@dataclass(frozen=True, slots=True)
class BoundedDuration:
    """A duration beside its bound. `verdict`: met where the baseline missed it, or the reverse."""

    seconds: float | None
    bound_seconds: float
    met: int
    """In how many rounds; of one round also True or False."""
    verdict: Verdict | None = None
    note: str = ""
    rounds: int = 1

    @property
    def text(self) -> str:
        """`41.3 of 45.0 s`, in milliseconds where both are short."""
        return of_bound(self.seconds, self.bound_seconds)

    @property
    def badge(self) -> str:
        """Always: that is what the row is about."""
        if self.rounds == 1:
            return "met" if self.met else "missed"
        return f"met {self.met} of {self.rounds}"

    @property
    def change(self) -> str:
        """As the badge says; where nothing is compared, empty."""
        return "" if self.verdict is None else self.badge

    def phrase(self, label: str) -> str:
        """`digits-mlp met`."""
        return f"{label} {self.badge}"

    def as_json(self) -> dict[str, Any] | None:
        """In how many rounds it was met, and the verdict; None where nothing is compared."""
        return None if self.verdict is None else {"met": int(self.met), "verdict": self.verdict}


@dataclass(frozen=True, slots=True)
class Word:
    """A text that is neither better nor worse, such as the node of a job."""

    text: str
    badge: str = ""
    change: str = ""
    verdict: Verdict | None = None
    note: str = ""

    def phrase(self, label: str) -> str:
        """`digits-mlp node-2`."""
        return f"{label} {self.text}"

    def as_json(self) -> dict[str, Any] | None:
        """Nothing is compared."""
        return None


AnyCell = Cell | Count | BoundedDuration | Word


def verdict_of_difference(more: Estimate, total: int) -> Verdict | None:
    """What a difference between two counts of so many says, in the words that are used for ratios."""
    if more.mean is None:
        return None
    low, high = (None if each is None else 1 + each / total for each in (more.low, more.high))
    return verdict("more", Estimate(1 + more.mean / total, low, high, more.count), same_ratio=1e-6)


def compared(
    shown: Estimate, pairs: Sequence[tuple[float, float]], tolerance_seconds: float, same_ratio: float, note: str = ""
) -> Cell:
    """A cell that shows a duration, judged by pairs of durations: the baseline's and the policy's, one a round.

    What differs by less than `tolerance_seconds`, or than `same_ratio`, is the same.
    """
    usable = [(before, after) for before, after in pairs if before > 0]
    if not usable:
        return Cell(shown, note=note)
    ratio = estimate([after / before for before, after in usable])
    same = max(same_ratio, tolerance_seconds / fmean(before for before, _ in usable))
    return Cell(shown, ratio, verdict("less", ratio, same_ratio=same, single_ratio=SINGLE_RATIO), note)


@dataclass(frozen=True, slots=True)
class Row:
    """One measure, or one job: a cell for each policy, in the order of the policies."""

    label: str
    cells: tuple[AnyCell, ...]
    name: str = ""
    """Of the measure, or the job, in JSON."""


@dataclass(frozen=True, slots=True)
class Block:
    """One measure for each job."""

    heading: str
    rows: tuple[Row, ...]
    name: str = ""
    """Of the measure in JSON."""

    def cells(self, label: str, runs: int) -> tuple[AnyCell | None, ...]:
        """The cells of one row by its label, one for each run; all None where it does not apply to that job."""
        found = next((row for row in self.rows if row.label == label), None)
        return (None,) * runs if found is None else found.cells


def _count(shown: Estimate) -> str:
    if shown.mean is None:
        return UNKNOWN
    return f"{shown.mean:.0f}" if shown.count == 1 else f"{shown.mean:.1f}"
