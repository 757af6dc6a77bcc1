"""Draws the curves of one run: loss, CPU used, CPU allotted; and the axes that all charts of the report share.

A job has one colour in every chart of every run, and all runs share their axes, so that two runs can be laid
side by side. Grid, axis and text colours are left to the page, which has light ones and dark ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slopewise.demo.report.results import Curves, DemoResult, RunResult
from slopewise.reports.plots import Area, Axis, Line, Plot, Points, Rule, colour, stacked, ticks
from slopewise.reports.wording import finite, label

OTHERS_COLOUR = "#8a94a0"

_LOSS_FLOOR = -0.04
_MIN_LOSS_TOP = 1.12
# A loss that diverges to 50 times its first value would press all others flat: it is cut here, and named.
_MAX_LOSS_TOP = 1.5
_LOSS_TICKS = (0, 0.25, 0.5, 0.75, 1, 1.25, 1.5)
_HEADROOM_RATIO = 1.12
_MARGIN_RATIO = 1.02
_LOSS_PIXELS = 256
_AREA_PIXELS = 196
_AREA_POINTS = 600


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
    allotted_top_cores: float
    """The highest stack of allotted CPU in any run, at least the node's cores."""


def frame(result: DemoResult) -> Frame:
    """The shared axes and colours of a demo's charts."""
    names = tuple(result.job_names)
    ranges = {name: _loss_range(name, result.runs) for name in names}
    highest = max((_highest_loss(run, name, ranges[name]) for run in result.runs for name in run.curves), default=1.0)
    return Frame(
        names=names,
        end_seconds=max((run_end(run) for run in result.runs), default=0.0) or 1.0,
        node_cores=result.node_cores,
        loss_ranges=ranges,
        loss_top=min(_MAX_LOSS_TOP, max(_MIN_LOSS_TOP, highest * 1.03)),
        allotted_top_cores=max([result.node_cores, *(_highest_stack(run) for run in result.runs)]),
    )


def loss_figure(run: RunResult, shared: Frame) -> Plot:
    """Every job's loss, 1 at its first value and 0 at the best that any run reached.

    The raw value shows under the mouse.
    """
    lines = []
    for place, name, curves in _curves(run, shared):
        points = _finite(curves.loss)
        scaled = [(at, _scaled(value, shared.loss_ranges[name])) for at, value in points]
        lines.append(Line(label(name, 24), scaled, colour(place), place, [value for _, value in points]))
    marks = tuple((value, f"{value:g}") for value in _LOSS_TICKS if value <= shared.loss_top)
    return Plot(
        time_axis(shared),
        Axis(_LOSS_FLOOR, shared.loss_top, marks, "loss (1 = first, 0 = best)"),
        _LOSS_PIXELS,
        lines=tuple(lines),
    )


def cut_losses(run: RunResult, shared: Frame) -> list[str]:
    """The jobs whose loss rose out of the chart of `run`, for a note."""
    return [name for name in run.curves if _highest_loss(run, name, shared.loss_ranges[name]) > shared.loss_top]


def used_figure(run: RunResult, shared: Frame) -> Plot:
    """CPU used, one area for each job on top of the other, everything else on the machine on top of all.

    Together they are under the line of the machine's cores.
    """
    grid = _grid([curves.cpu_cores for _, _, curves in _curves(run, shared)])
    used = [(place, name, _resampled(curves.cpu_cores, grid)) for place, name, curves in _curves(run, shared)]
    others = [_means_before(run.other_cpu_curve, grid)] if run.other_cpu_curve else []
    return _stack(grid, used, others, shared, "cores used", shared.node_cores, stepped=False)


def allotted_figure(run: RunResult, shared: Frame) -> Plot:
    """CPU allotted, one stepped area for each job on top of the other.

    Shares add up to the machine's cores; limits may add up to more, and the axis has room for the highest stack.
    """
    moments = _moments(run)
    held = [(place, name, _held(curves.allotted_cores, moments)) for place, name, curves in _curves(run, shared)]
    return _stack(moments, held, [], shared, "cores allotted", shared.allotted_top_cores, stepped=True)


def _stack(
    at: Sequence[float],
    areas: Sequence[tuple[int, str, Sequence[float]]],
    others: Sequence[Sequence[float]],
    shared: Frame,
    title: str,
    top_cores: float,
    *,
    stepped: bool,
) -> Plot:
    """Areas of (place, job, cores) on one another, then what belongs to no job, under the line of the cores."""
    edges = stacked(at, [*(values for _, _, values in areas), *others])
    drawn = [
        Area(label(name, 24), at, low, high, colour(place), place, stepped)
        for (place, name, _), (low, high) in zip(areas, edges, strict=False)
    ]
    drawn += [Area("everything else", at, low, high, OTHERS_COLOUR) for low, high in edges[len(areas) :]]
    high = top_cores * _HEADROOM_RATIO
    cores = shared.node_cores
    return Plot(
        time_axis(shared),
        Axis(0.0, high, ticks(0.0, high, 4), title),
        _AREA_PIXELS,
        areas=tuple(drawn),
        rules=(Rule(0.0, shared.end_seconds * _MARGIN_RATIO, cores, cores, dashed=True),),
        unit=" cores",
    )


def _curves(run: RunResult, shared: Frame) -> list[tuple[int, str, Curves]]:
    return [(place, name, run.curves[name]) for place, name in enumerate(shared.names) if name in run.curves]


def time_axis(shared: Frame) -> Axis:
    """The same for all charts of all runs."""
    end = shared.end_seconds * _MARGIN_RATIO
    return Axis(0.0, end, ticks(0.0, end, unit=" s"))


def run_end(run: RunResult) -> float:
    """The last moment that a run shows anything of."""
    ends = [job.finished_seconds for job in run.jobs if job.finished_seconds is not None]
    sampled = [points[-1][0] for c in run.curves.values() for points in (c.loss, c.cpu_cores) if points]
    return max([*ends, *sampled, *(row.at_seconds for row in run.decisions)], default=0.0)


def _loss_range(name: str, runs: Iterable[RunResult]) -> tuple[float, float]:
    """First and best value over all runs; where a job never got better than its first, its worst and best."""
    found = [(run.curves[name].objective, _finite(run.curves[name].loss)) for run in runs if name in run.curves]
    curves = [points for _, points in found if points]
    if not curves:
        return 1.0, 0.0
    # The larger of two values is the better one where an accuracy is to rise: count everything downwards.
    sign = -1.0 if any(objective == "max" for objective, _ in found) else 1.0
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


def _grid(curves: Sequence[Points]) -> list[float]:
    """Moments at which every area has a value, so that areas can be stacked.

    Two for each sample of the longest curve, so that 90 samples make 180 moments; at most 600.
    """
    ends = [points[-1][0] for points in curves if points]
    longest = max((len(points) for points in curves), default=0)
    if not ends:
        return []
    count = min(_AREA_POINTS, max(2, round(longest * 2)))
    return [float(at) for at in np.linspace(0.0, max(ends), count)]


def _resampled(points: Points, grid: Sequence[float]) -> list[float]:
    """`points` at the moments of `grid`; 0 before the first and after the last."""
    known = _finite(points)
    if not known:
        return [0.0] * len(grid)
    at, value = zip(*known, strict=True)
    return [float(v) for v in np.interp(grid, at, value, left=0.0, right=0.0)]


def _means_before(points: Points, grid: Sequence[float]) -> list[float]:
    """Of points that are each the mean since the one before, what held at each moment of `grid`."""
    at, value = zip(*points, strict=True)
    place = np.minimum(np.searchsorted(at, grid, side="left"), len(at) - 1)
    return [float(value[each]) for each in place]


def _moments(run: RunResult) -> list[float]:
    """Every moment at which some job's allotment was sampled, in order."""
    return sorted({at for curves in run.curves.values() for at, _ in _finite(curves.allotted_cores)})


def _held(points: Points, moments: Sequence[float]) -> list[float]:
    """The value that holds at each moment: the last one sampled; 0 before the first and after the last."""
    known = _finite(points)
    if not known:
        return [0.0] * len(moments)
    at, value = zip(*known, strict=True)
    latest = np.searchsorted(at, moments, side="right") - 1
    return [
        float(value[place]) if place >= 0 and moment <= at[-1] else 0.0
        for place, moment in zip(latest, moments, strict=True)
    ]


def _highest_stack(run: RunResult) -> float:
    moments = _moments(run)
    held = [_held(curves.allotted_cores, moments) for curves in run.curves.values()]
    return max((sum(values) for values in zip(*held, strict=True)), default=0.0)
