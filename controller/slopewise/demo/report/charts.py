"""Draws the curves of one run, loss and CPU used; and the axes that all charts of the report share.

A job has one colour in every chart of every run, and all runs share their axes, so that two runs can be laid
side by side. Grid, axis and text colours are left to the page, which has light ones and dark ones.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slopewise.demo.report.results import Curves, DemoResult, RunResult
from slopewise.reports.plots import MAX_POINTS, Area, Axis, Line, Plot, Points, Rule, colour, stacked, ticks
from slopewise.reports.wording import finite, label

_LOSS_FLOOR = -0.04
_MIN_LOSS_TOP = 1.12
# A loss that diverges to 50 times its first value would press all others flat: it is cut here, and named.
_MAX_LOSS_TOP = 1.5
_LOSS_TICKS = (0, 0.25, 0.5, 0.75, 1, 1.25, 1.5)
_HEADROOM_RATIO = 1.12
_MARGIN_RATIO = 1.02
_LOSS_PIXELS = 256
_AREA_PIXELS = 196


@dataclass(frozen=True, slots=True)
class Frame:
    """What the charts of all runs have in common, so that they can be compared by eye."""

    names: tuple[str, ...]
    """Every job of any run; the place of a job is its colour."""
    end_seconds: float
    node_cores: float
    loss_ranges: Mapping[str, tuple[float, float]]
    """By job: the value drawn as 1 (its first) and the one drawn as 0 (its best in any run)."""
    loss_top: float
    """Where the axis of the losses ends, between 1.12 and 1.5 times the first value: no loss above it is seen."""

    @property
    def time_axis(self) -> Axis:
        """The same for all charts of all runs."""
        end = self.end_seconds * _MARGIN_RATIO
        return Axis(0.0, end, ticks(0.0, end, unit=" s"))


def frame(result: DemoResult) -> Frame:
    """The shared axes and colours of a demo's charts."""
    names = tuple(result.job_names)
    ranges = {name: _loss_range([run.curves[name] for run in result.runs if name in run.curves]) for name in names}
    highest = max((_highest_loss(run, name, ranges[name]) for run in result.runs for name in run.curves), default=1.0)
    return Frame(
        names=names,
        end_seconds=max((_run_end(run) for run in result.runs), default=0.0) or 1.0,
        node_cores=result.node_cores,
        loss_ranges=ranges,
        loss_top=min(_MAX_LOSS_TOP, max(_MIN_LOSS_TOP, highest * 1.03)),
    )


def loss_figure(run: RunResult, shared: Frame) -> Plot:
    """Every job's loss, 1 at its first value and 0 at the best that any run reached.

    The raw value shows under the mouse.
    """
    lines = []
    for place, name in _drawn(run, shared):
        points = _finite(run.curves[name].loss)
        scaled = [(at, _scaled(value, shared.loss_ranges[name])) for at, value in points]
        lines.append(Line(label(name, 24), scaled, colour(place), place, [value for _, value in points]))
    marks = tuple((value, f"{value:g}") for value in _LOSS_TICKS if value <= shared.loss_top)
    return Plot(
        shared.time_axis,
        Axis(_LOSS_FLOOR, shared.loss_top, marks, "loss (1 = first, 0 = best)"),
        _LOSS_PIXELS,
        lines=tuple(lines),
    )


def cut_losses(run: RunResult, shared: Frame) -> list[str]:
    """The jobs whose loss rose out of the chart of `run`, for a note."""
    return [name for name in run.curves if _highest_loss(run, name, shared.loss_ranges[name]) > shared.loss_top]


def used_figure(run: RunResult, shared: Frame) -> Plot:
    """CPU used, one stepped area for each job on top of the other, under the line of the machine's cores."""
    jobs = _drawn(run, shared)
    at, held = _held_by_job(run, [name for _, name in jobs])
    edges = stacked(at, held)
    areas = [
        Area(label(name, 24), at, low, high, colour(place), place)
        for (place, name), (low, high) in zip(jobs, edges, strict=True)
    ]
    high, cores = shared.node_cores * _HEADROOM_RATIO, shared.node_cores
    return Plot(
        shared.time_axis,
        Axis(0.0, high, ticks(0.0, high, 4), "cores used"),
        _AREA_PIXELS,
        areas=tuple(areas),
        rules=(Rule(0.0, shared.end_seconds * _MARGIN_RATIO, cores, cores),),
        unit=" cores",
    )


def _drawn(run: RunResult, shared: Frame) -> list[tuple[int, str]]:
    return [(place, name) for place, name in enumerate(shared.names) if name in run.curves]


def _held_by_job(run: RunResult, names: Iterable[str]) -> tuple[list[float], list[list[float]]]:
    """The moments at which some job was sampled, thinned to what a screen shows, and each job's CPU then."""
    curves = [_finite(run.curves[name].cpu_cores) for name in names]
    moments = sorted({at for points in curves for at, _ in points})
    moments = moments[:: math.ceil(len(moments) / MAX_POINTS) or 1]
    return moments, [_held(points, moments) for points in curves]


def _held(points: Points, moments: Sequence[float]) -> list[float]:
    """The value that holds at each moment: the last one sampled; 0 before the first and after the last."""
    ats = [at for at, _ in points]
    places = [bisect_right(ats, moment) - 1 for moment in moments]
    return [
        points[place][1] if place >= 0 and moment <= ats[-1] else 0.0
        for place, moment in zip(places, moments, strict=True)
    ]


def _run_end(run: RunResult) -> float:
    """The last moment that a run shows anything of."""
    ends = [job.finished_seconds for job in run.jobs if job.finished_seconds is not None]
    sampled = [points[-1][0] for c in run.curves.values() for points in (c.loss, c.cpu_cores) if points]
    return max([*ends, *sampled], default=0.0)


def _loss_range(of_runs: Sequence[Curves]) -> tuple[float, float]:
    """First and best value over all runs; where a job never got better than its first, its worst and best."""
    curves = [points for curve in of_runs if (points := _finite(curve.loss))]
    if not curves:
        return 1.0, 0.0
    # The larger of two values is the better one where an accuracy is to rise: count everything downwards.
    sign = -1.0 if any(curve.objective == "max" for curve in of_runs) else 1.0
    values = [sign * value for points in curves for _, value in points]
    # Two runs scrape at different moments, and the later first sample is a little better: the worst is nearest.
    first, best = max(sign * points[0][1] for points in curves), min(values)
    worst = first if first > best else max(values)
    return (sign * worst, sign * best) if worst > best else (sign * (best + 1.0), sign * best)


def _scaled(value: float, worst_and_best: tuple[float, float]) -> float:
    worst, best = worst_and_best
    return (value - best) / (worst - best)


def _highest_loss(run: RunResult, name: str, worst_and_best: tuple[float, float]) -> float:
    """The highest point of a job's curve in the scale of the chart; 0 without a sample."""
    return max((_scaled(value, worst_and_best) for _, value in _finite(run.curves[name].loss)), default=0.0)


def _finite(points: Points) -> list[tuple[float, float]]:
    """JSON has no NaN and no infinity, and a curve has no place for them."""
    return [(at, value) for at, value in points if finite(value)]
