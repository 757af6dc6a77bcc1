"""Charts of a sweep: each measure by policy over the seeds, the overlap, and the placement of jobs in one seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from slopewise.reports.plots import Axis, Box, Mark, Plot, Rule, colour, ticks
from slopewise.reports.wording import label
from slopewise.simulator.results.measures import measure
from slopewise.simulator.results.sweep_result import SweepResult
from slopewise.simulator.world.model import JobOutcome, MoveKind, RunOutcome, Stay

_ROW_PIXELS = 22
_MEASURE_PIXELS = 40
_BAR_WIDTH = 0.9
"""Of a row."""
_SPREAD = (0.0, -0.14, 0.14, -0.07, 0.07)
_CHARACTERS = 180
_MIN_CHARACTERS = 3
_MAX_ROWS = 300
"""About 6,600 pixels: a day of 1,000 jobs on 64 nodes would be a picture that no browser draws."""
_MOVES: Mapping[MoveKind, tuple[str, str]] = {
    "migrated": ("slow move", "triangle-right"),
    "rebalanced": ("rebalancing move", "diamond"),
}


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the Gantt chart: stays on one node that do not overlap."""

    node: str
    stays: tuple[tuple[JobOutcome, Stay], ...]


def measure_figure(result: SweepResult, name: str) -> Plot:
    """A box for each policy over its seeds, with every seed as a point; the dashed line is the mean."""
    rows = [[value for value in result.values[policy][name] if value is not None] for policy in result.policies]
    highest = max((value for row in rows for value in row), default=1.0)
    lowest = min((value for row in rows for value in row), default=0.0)
    unit = " s" if measure(name).unit == "s" else ""
    low, high = min(0.0, lowest), highest + 0.04 * (highest - min(0.0, lowest) or 1.0)
    places = [(place, values) for place, values in enumerate(rows) if values]
    return Plot(
        Axis(low, high, ticks(low, high, unit=unit)),
        Axis(len(rows) - 0.5, -0.5, tuple((place, label(policy, 13)) for place, policy in enumerate(result.policies))),
        _MEASURE_PIXELS * len(rows),
        boxes=tuple(_middle_half(place, values, unit) for place, values in places),
        rules=tuple(rule for place, values in places for rule in _whiskers(place, values)),
        marks=tuple(mark for place, values in places for mark in _seeds(place, values, unit)),
        left_px=96,
    )


def _middle_half(place: int, values: Sequence[float], unit: str) -> Box:
    low, median, high = (float(each) for each in np.percentile(values, (25, 50, 75)))
    title = f"median {median:.4g}{unit}\nmiddle half {low:.4g} to {high:.4g}{unit}"
    return Box(low, high, place - 0.25, place + 0.25, f"{colour(place)}33", colour(place), title)


def _whiskers(place: int, values: Sequence[float]) -> list[Rule]:
    """From end to end, the median, and the mean, which is dashed."""
    low, median, high = (float(each) for each in np.percentile(values, (25, 50, 75)))
    mean, own = fmean(values), colour(place)
    return [
        Rule(min(values), low, place, place, colour=own),
        Rule(high, max(values), place, place, colour=own),
        Rule(median, median, place - 0.25, place + 0.25, colour=own),
        Rule(mean, mean, place - 0.25, place + 0.25, dashed=True, colour=own),
    ]


def _seeds(place: int, values: Sequence[float], unit: str) -> list[Mark]:
    """A point for each seed, spread over the row's height in turn, so that equal ones do not hide each other."""
    return [
        Mark(value, place + _SPREAD[number % len(_SPREAD)], "dot", f"{value:.4g}{unit}", colour(place))
        for number, value in enumerate(values)
    ]


def lanes(run: RunOutcome) -> list[Lane]:
    """Every stay of the run, by node, in as few rows as its most crowded moment needs."""
    by_node: dict[str, list[tuple[JobOutcome, Stay]]] = {}
    for job in run.jobs:
        for stay in job.stays:
            by_node.setdefault(stay.node, []).append((job, stay))
    return [Lane(node, tuple(row)) for node in sorted(by_node) for row in _packed(by_node[node])]


def shown_lanes(run: RunOutcome) -> tuple[list[Lane], int]:
    """The rows of as many whole nodes as a page can show, and how many nodes were left out."""
    every = lanes(run)
    nodes = list(dict.fromkeys(lane.node for lane in every))
    shown = 1
    while shown < len(nodes) and sum(lane.node in nodes[: shown + 1] for lane in every) <= _MAX_ROWS:
        shown += 1
    return [lane for lane in every if lane.node in nodes[:shown]], len(nodes[shown:])


def gantt_figure(rows: Sequence[Lane], models: Sequence[str], end_seconds: float) -> Plot:
    """A bar from when until when a job was on a node, coloured by its model; a mark where it came by a move."""
    end = (end_seconds or 1.0) * 1.02
    firsts = _first_rows(rows)
    return Plot(
        Axis(0.0, end, ticks(0.0, end, unit=" s")),
        Axis(len(rows) - 0.5, -0.5, tuple((first, label(node, 11)) for node, first in firsts.items())),
        _ROW_PIXELS * max(1, len(rows)),
        boxes=tuple(
            _stay(y, job, stay, colour(models.index(job.model)), end)
            for y, lane in enumerate(rows)
            for job, stay in lane.stays
        ),
        marks=tuple(
            Mark(stay.from_seconds, y, _MOVES[stay.came][1], _tooltip(job, stay))
            for y, lane in enumerate(rows)
            for job, stay in lane.stays
            if stay.came in _MOVES
        ),
        rules=tuple(Rule(0.0, end, first - 0.5, first - 0.5) for first in list(firsts.values())[1:]),
        key=tuple((label(model), colour(place)) for place, model in enumerate(models)),
        left_px=84,
        ticks_above=True,
    )


def _stay(y: int, job: JobOutcome, stay: Stay, fill: str, end_seconds: float) -> Box:
    """Its name stands inside where it fits: a character is about 6 of some 1,200 pixels."""
    room = int((stay.to_seconds - stay.from_seconds) / end_seconds * _CHARACTERS)
    name = label(job.name, min(18, room)) if room >= _MIN_CHARACTERS else ""
    half = _BAR_WIDTH / 2
    return Box(stay.from_seconds, stay.to_seconds, y - half, y + half, fill, title=_tooltip(job, stay), text=name)


def models_of(runs: Iterable[RunOutcome]) -> list[str]:
    """Every model of these runs; the place of a model in here is its colour."""
    return sorted({job.model for run in runs for job in run.jobs})


def _packed(stays: list[tuple[JobOutcome, Stay]]) -> list[list[tuple[JobOutcome, Stay]]]:
    """Each stay in the first row that is free when it begins."""
    rows: list[list[tuple[JobOutcome, Stay]]] = []
    for job, stay in sorted(stays, key=lambda each: (each[1].from_seconds, each[0].name)):
        free = next((row for row in rows if row[-1][1].to_seconds <= stay.from_seconds), None)
        if free is None:
            rows.append([(job, stay)])
        else:
            free.append((job, stay))
    return rows


def _tooltip(job: JobOutcome, stay: Stay) -> str:
    came = _MOVES[stay.came][0] if stay.came in _MOVES else "placed"
    return f"{label(job.name, 48)}: {stay.from_seconds:.1f} s to {stay.to_seconds:.1f} s, {came}"


def _first_rows(rows: Sequence[Lane]) -> dict[str, int]:
    firsts: dict[str, int] = {}
    for y, lane in enumerate(rows):
        firsts.setdefault(lane.node, y)
    return firsts
