"""Cells of a comparison table: durations, counts, objectives met or missed, plain text.

Each cell has its figure (`text`), its comparison (`badge`), and that as a phrase (`phrase`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """One figure under one policy."""

    text: str
    """`41.3 s`, or `41.3 ± 2.1 s` over several rounds."""
    badge: str = ""
    """Its comparison with the baseline, e.g. `×0.82 better`; empty where nothing is compared."""
    verdict: Verdict | None = None
    """None for the baseline itself, where runs are not comparable, and of what is neither better nor worse."""
    note: str = ""
    change: str = ""
    """The comparison in words, e.g. `18 % shorter`, `2 more`."""
    seconds: float | None = None
    """Of a duration: the mean over the rounds."""
    against: Estimate | None = None
    """Of a duration: its ratio to the baseline."""
    json: Mapping[str, Any] | None = None
    """The comparison in JSON."""
    counts: bool = False

    @property
    def ratio(self) -> float | None:
        """The mean ratio over the rounds that were compared."""
        return None if self.against is None else self.against.mean

    def phrase(self, label: str) -> str:
        """`makespan 18 % shorter`, `2 more deadlines met`."""
        return f"{self.change} {label}" if self.counts else f"{label} {self.change}"


def duration(shown: Estimate, against: Estimate | None = None, verdict: Verdict | None = None, note: str = "") -> Cell:
    """A duration in seconds, of which less is better, with its ratio to the baseline."""
    text = UNKNOWN if shown.mean is None else f"{plus_minus(shown, 1)} s"
    if against is None:
        return Cell(text, note=note, seconds=shown.mean)
    return Cell(
        text,
        "" if verdict is None else f"×{plus_minus(against, 2)} {verdict}",
        verdict,
        note,
        "" if against.mean is None else change(against.mean),
        shown.mean,
        against,
        {"ratio": against.as_json(), "verdict": verdict},
    )


def count(shown: Estimate, total: int, more: Estimate | None = None) -> Cell:
    """Some of a number of jobs, and how many more than under the baseline: more is better.

    One job more is better, one fewer is worse; over several rounds the interval decides.
    """
    digits = 0 if shown.count == 1 else 1
    text = f"{UNKNOWN if shown.mean is None else f'{shown.mean:.{digits}f}'} of {total}"
    if more is None or more.mean is None:
        return Cell(text, json=None if more is None else {"difference": more.as_json(), "verdict": None}, counts=True)
    verdict, digits = verdict_of_difference(more, total), 0 if more.half is None else 1
    figure = f"{more.mean:+.{digits}f}" + ("" if more.half is None else f" ± {more.half:.1f}")
    words = f"{abs(more.mean):.{digits}f} {'fewer' if more.mean < 0 else 'more'}"
    said = {"difference": more.as_json(), "verdict": verdict}
    return Cell(text, f"{figure} {verdict}", verdict, change=words, json=said, counts=True)


def bounded(
    seconds: float | None, bound_seconds: float, met: int, rounds: int, verdict: Verdict | None = None, note: str = ""
) -> Cell:
    """A duration beside its bound, met in so many of the rounds.

    `verdict`: met where the baseline missed it, or the reverse.
    """
    badge = ("met" if met else "missed") if rounds == 1 else f"met {met} of {rounds}"
    said = None if verdict is None else {"met": met, "verdict": verdict}
    return Cell(of_bound(seconds, bound_seconds), badge, verdict, note, "" if verdict is None else badge, json=said)


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
        return duration(shown, note=note)
    ratio = estimate([after / before for before, after in usable])
    same = max(same_ratio, tolerance_seconds / fmean(before for before, _ in usable))
    return duration(shown, ratio, verdict("less", ratio, same_ratio=same, single_ratio=SINGLE_RATIO), note)


@dataclass(frozen=True, slots=True)
class Row:
    """One measure, or one job: a cell for each policy, in the order of the policies."""

    label: str
    cells: tuple[Cell, ...]
    name: str = ""
    """Of the measure, or the job, in JSON."""


@dataclass(frozen=True, slots=True)
class Block:
    """One measure for each job."""

    heading: str
    rows: tuple[Row, ...]
    name: str = ""
    """Of the measure in JSON."""
