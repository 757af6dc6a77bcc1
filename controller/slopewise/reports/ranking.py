"""Trials of a study by their losses: the best so far, the CPU spent on it, and those that ASHA would have stopped."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from slopewise.reports.columns import Column, named, sized
from slopewise.reports.live_table import STATE_STYLES
from slopewise.reports.trials import ETA, NOT_FINITE, RUNGS, Rungs, Trial, best_third, differing, percent
from slopewise.reports.wording import UNKNOWN, counted, finite, listed, plain
from slopewise.text import equal_messages

MAX_GAP_RATIO = 0.5
"""Between two points, of the work at a rung: amid so wide a gap a line is 7 % above a loss that is 1/work."""

FEW = 2
"""Trials whose common reason stands in the row of each; that of more is said once, below."""

_FIXED = ("study", "place", "trial", "loss", "state", "cpu_seconds", "asha_stops_at", "reason", "chance")
_IMPORTANT = ("trial", "loss", "state", "place", "cpu_seconds")
_HEADINGS = {"cpu_seconds": "CPU S", "asha_stops_at": "ASHA STOPS AT"}


def at_rungs(points: NDArray[np.float32], plan: float) -> Rungs:
    """By straight lines between points, shape (points, 2), of work and loss; `plan`: all of the work.

    Where two neighbours are far apart, as in trials of a few seconds, nothing is known between them.
    """
    works, losses = points.astype(np.float64).T
    found = {}
    for rung, part in enumerate(RUNGS):
        work = part * plan
        after = int(np.searchsorted(works, work))
        if 0 < after < len(works) and works[after] - works[after - 1] <= MAX_GAP_RATIO * work:
            found[rung] = float(np.interp(work, works, losses))
    return found


class Ranking:
    """The trials of one study, the best first; those without a loss come last, and those of another metric than most.

    Where most report no one metric, none is ranked.
    """

    def __init__(self, study: str, trials: Collection[Trial]) -> None:
        self.study = study
        self.differ = differing((each.name, each.metric) for each in trials)
        """That their metrics differ, as half a sentence; empty: they do not."""
        said = sorted(each.metric for each in trials if each.metric)
        most = max(said, key=said.count, default="")
        self._metrics = {"", most} if 2 * said.count(most) > len(said) or not said else set[str]()
        ranked = [each for each in trials if each.metric in self._metrics]
        self._sign = -1.0 if any(each.objective == "max" for each in ranked) else 1.0
        self.trials = sorted(trials, key=lambda each: (self._worth(each), each.name))
        self.stopped = self._stopped()
        """By name, the part of the plan at which ASHA would have stopped a trial."""
        reasons = equal_messages((each.name, each.reason) for each in self.trials if each.reason)
        self._common = {reason: names for reason, names in reasons.items() if len(names) > FEW}
        """The reasons of more than a few trials, and whose they are."""

    @property
    def best(self) -> Trial | None:
        """None: none has a loss, or none is ranked."""
        return None if math.isinf(self._worth(self.trials[0])) else self.trials[0]

    def _worth(self, trial: Trial, rung: int | None = None) -> float:
        """Of its loss, or of that at a rung: less is better."""
        loss = trial.loss if rung is None else trial.rungs.get(rung)
        if loss is None or not finite(loss) or trial.metric not in self._metrics:
            return math.inf
        return self._sign * loss

    def _stopped(self) -> dict[str, float]:
        stopped: dict[str, float] = {}
        for rung, part in enumerate(RUNGS):
            going_on = (each for each in self.trials if each.metric in self._metrics and each.name not in stopped)
            seen = {each.name: self._worth(each, rung) for each in going_on if rung in each.rungs}
            if len(seen) >= ETA:  # of fewer none is the best third
                stopped |= dict.fromkeys(seen.keys() - set(best_third(seen)), part)
        return stopped

    def rows(self) -> list[dict[str, Any]]:
        """A row for each trial, with its arguments; one that is called as a column gets `argument_` before it."""
        names = {
            name: f"argument_{name}" if name.lower() in _FIXED else plain(name)
            for each in self.trials
            for name in each.arguments
        }
        return [
            {
                "study": self.study,
                "place": place if math.isfinite(self._worth(each)) else None,
                "trial": each.name,
                **{shown: each.arguments.get(name) for name, shown in names.items()},
                "loss": each.loss if each.loss is not None and finite(each.loss) else None,
                "state": each.state,
                "cpu_seconds": None if each.cpu_seconds is None else round(each.cpu_seconds, 3),
                "asha_stops_at": self.stopped.get(each.name),
                "reason": each.reason,
                "chance": each.chance,
            }
            for place, each in enumerate(self.trials, start=1)
        ]

    def as_json(self) -> dict[str, Any]:
        """For `--output json`."""
        best, rest = self._spent()
        return {
            "study": self.study,
            "metrics_differ": self.differ or None,
            "cpu_seconds_of_best": None if best is None else round(best, 3),
            "cpu_seconds_of_rest": None if rest is None else round(rest, 3),
            "asha_would_have_stopped": sorted(self.stopped),
            "trials": self.rows(),
        }

    def _spent(self) -> tuple[float | None, float | None]:
        """Core-seconds of the best trial, if there is one, and of all others that are known; None: none is known."""
        best = self.best
        known = [each.cpu_seconds for each in self.trials if each is not best and each.cpu_seconds is not None]
        return best.cpu_seconds if best else None, math.fsum(known) if known else None

    def sentences(self) -> Iterator[str]:
        """The study in a few lines."""
        yield from self._figures()
        for reason, names in self._common.items():
            yield f"{len(names)} trials: {reason}"

    def _figures(self) -> Iterator[str]:
        best, (on_best, rest), trials = self.best, self._spent(), counted(len(self.trials), "trial")
        if best is None:
            why = f"not ranked, because {self.differ}" if self.differ else "none with a loss"
            yield f"study {self.study}: {trials}, {why}"
            return
        yield f"study {self.study}: the best so far of {trials} is {best.name}, loss {best.loss:.4g}, {best.state}"
        diverged = [each.name for each in self.trials if each.reason == NOT_FINITE]
        if 0 < len(diverged) <= FEW:  # a narrow terminal has no room for the reason in their rows
            yield f"{listed(diverged, at_most=FEW)}: {NOT_FINITE}"
        if on_best is not None:
            yield f"CPU: {on_best:.0f} core-s on it" + ("" if rest is None else f", {rest:.0f} on the others")
        if self.differ:
            yield f"not ranked with most trials are those of another metric: {self.differ}"
        if self.stopped:
            names = [each.name for each in self.trials if each.name in self.stopped]
            yield f"ASHA (η = 3) would have stopped {len(names)}: {listed(names, at_most=3)}"

    def shown_rows(self) -> list[dict[str, Any]]:
        """The rows of its table, where a reason of many trials is in `sentences` alone."""
        below = {name for names in self._common.values() for name in names}
        return [{**row, "reason": "" if row["trial"] in below else row["reason"]} for row in self.rows()]

    def columns(self) -> list[Column[dict[str, Any]]]:
        """Of those rows, by importance."""
        rows = self.shown_rows()
        shown = [name for name in rows[0] if name != "study" and any(row[name] not in (None, "") for row in rows)]
        ordered = sorted(shown, key=lambda name: _IMPORTANT.index(name) if name in _IMPORTANT else len(_IMPORTANT))
        return [_column(name, rows) for name in ordered]

    def order(self) -> list[str]:
        """The headings from left to right, the reason last."""
        return [_heading(name) for name in sorted(self.rows()[0], key="reason".__eq__)]


def _heading(name: str) -> str:
    return _HEADINGS.get(name, name.upper() if name in _FIXED else name)


def _column(name: str, rows: Sequence[dict[str, Any]]) -> Column[dict[str, Any]]:
    if name == "trial":
        return named("TRIAL", rows, lambda row: str(row["trial"]))
    if name == "reason":
        return Column("REASON", 24, lambda row: Text(plain(row["reason"])), fills=True, wraps=True)
    style = STATE_STYLES if name == "state" else {}
    return sized(_heading(name), rows, lambda row: Text(_cell(name, row[name]), style=style.get(row[name], "")))


def _cell(name: str, value: Any) -> str:
    if value is None:
        return UNKNOWN
    if name == "chance":
        return percent(value)
    if name == "asha_stops_at":
        return f"1/{round(1 / value)} of the plan"
    return plain(value) if isinstance(value, str) else f"{value:.4g}" if name == "loss" else f"{value:.0f}"
