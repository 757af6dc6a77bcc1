"""The figures of a comparison as cells of a table: durations, counts, promises kept or missed, plain words.

Before it: `comparison.py` computes them. After it: `table.py` and `report.py` lay them out, and know nothing of their
kinds: each cell says its own figure (`text`), how it compares (`badge`), and the same in words (`phrase`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from controller.demo.wording import change, of_bound, ratio, seconds

Verdict = Literal["better", "worse", "same"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A duration: less is better. `ratio` to the baseline and `verdict` on it: None for the baseline itself or where
    no comparison is fair.
    """

    seconds: float | None
    ratio: float | None = None
    verdict: Verdict | None = None
    note: str = ""

    @property
    def text(self) -> str:
        """`41.3 s`."""
        return seconds(self.seconds)

    @property
    def badge(self) -> str:
        """`×0.82 better`; empty where nothing is compared."""
        return "" if self.verdict is None else f"{ratio(self.ratio)} {self.verdict}"

    @property
    def change(self) -> str:
        """`18 % shorter`; empty where nothing is compared."""
        return "" if self.ratio is None else change(self.ratio)

    def phrase(self, label: str) -> str:
        """`makespan 18 % shorter`."""
        return f"{label} {self.change}"


@dataclass(frozen=True, slots=True)
class Count:
    """Some of a number of jobs: more is better. `more` than under the baseline: None for the baseline itself."""

    count: int
    total: int
    more: int | None = None
    note: str = ""

    @property
    def verdict(self) -> Verdict | None:
        """One job more is better, one fewer is worse."""
        if self.more is None:
            return None
        return "same" if self.more == 0 else "better" if self.more > 0 else "worse"

    @property
    def text(self) -> str:
        """`5 of 8`."""
        return f"{self.count} of {self.total}"

    @property
    def badge(self) -> str:
        """`+2 better`; empty where nothing is compared."""
        return "" if self.more is None else f"{self.more:+d} {self.verdict}"

    @property
    def change(self) -> str:
        """`2 more`; empty where nothing is compared."""
        if self.more is None:
            return ""
        return f"{abs(self.more)} {'fewer' if self.more < 0 else 'more'}"

    def phrase(self, label: str) -> str:
        """`2 more deadlines met`."""
        return f"{self.change} {label}"


@dataclass(frozen=True, slots=True)
class Promise:
    """A duration beside the bound that was promised. `verdict`: kept where the baseline missed it, or the reverse."""

    seconds: float | None
    bound_seconds: float
    kept: bool
    verdict: Verdict | None = None
    note: str = ""

    @property
    def text(self) -> str:
        """`41.3 of 45.0 s`, in milliseconds where both are short."""
        return of_bound(self.seconds, self.bound_seconds)

    @property
    def badge(self) -> str:
        """Always: that is what the row is about."""
        return "kept" if self.kept else "missed"

    @property
    def change(self) -> str:
        """As the badge says; where nothing is compared, empty."""
        return "" if self.verdict is None else self.badge

    def phrase(self, label: str) -> str:
        """`digits-mlp kept`."""
        return f"{label} {self.badge}"


@dataclass(frozen=True, slots=True)
class Word:
    """A fact that is neither better nor worse, such as where a job ran."""

    text: str
    badge: str = ""
    change: str = ""
    verdict: Verdict | None = None
    note: str = ""

    def phrase(self, label: str) -> str:
        """`digits-mlp node-2`."""
        return f"{label} {self.text}"


AnyCell = Cell | Count | Promise | Word


@dataclass(frozen=True, slots=True)
class Row:
    """One measure, or one job: a cell for each run, in the order of the runs."""

    label: str
    cells: tuple[AnyCell, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """One measure for each job."""

    heading: str
    rows: tuple[Row, ...]

    def cells(self, label: str, runs: int) -> tuple[AnyCell | None, ...]:
        """The cells of one row by its label, one for each run; all None where it does not apply to that job."""
        found = next((row for row in self.rows if row.label == label), None)
        return (None,) * runs if found is None else found.cells
