"""The curves of one run as charts: loss, CPU used, CPU allotted; and what every chart of the report shares.

Before it: `results.py`, the curves. After it: `timeline.py`, which draws the decisions on the same axes, and
`report.py`, which puts the figures' JSON into a page.
A job has one colour in every chart of every run, and all runs share their axes, so that two runs can be laid
side by side. Grid, axis and background colours are left to the page, which knows light from dark.

plotly reads a small subset of HTML in names and texts (`<b>`, `<br>`, `<a href>`), and the subset's entities;
`label` makes foreign text safe for it. Foreign text never enters a hover template, where `%{…}` has a meaning.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from controller.demo.results import Curves, DemoResult, RunResult
from controller.demo.wording import finite, plain, shortened

Points = Sequence[tuple[float, float]]

# At least 3:1 against white and against the dark page (#161b22), so that one palette serves both.
JOB_COLOURS = ("#3b7dd8", "#e0732a", "#2e9e5b", "#9a5fd0", "#d9485f", "#1a9aa0", "#a98a12", "#c85aa8")
# The ninth job has the first colour again, with another dash and a pattern in its area.
_DASHES = ("solid", "dash", "dot", "dashdot")
_PATTERNS = ("", "/", ".", "x")

_LOSS_FLOOR = -0.04
_LOSS_TOP_LEAST = 1.12
# A loss that diverges to 50 times its first value would press all others flat: it is cut here, and named.
_LOSS_TOP_MOST = 1.5
_LOSS_TICKS = (0, 0.25, 0.5, 0.75, 1, 1.25, 1.5)
_HEADROOM_RATIO = 1.12
# Invisible ticks keep the two zeros of the axes apart.
_TICKS = {"ticks": "outside", "ticklen": 5, "tickcolor": "rgba(0,0,0,0)"}
_LABEL_WIDTH = 18
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
        loss_top=min(_LOSS_TOP_MOST, max(_LOSS_TOP_LEAST, highest * 1.03)),
        allotted_top_cores=max([result.node_cores, *(_highest_stack(run) for run in result.runs)]),
    )


def colour(place: int) -> str:
    """The colour of the job at `place` in the frame's names."""
    return JOB_COLOURS[place % len(JOB_COLOURS)]


def label(text: str, width: int = _LABEL_WIDTH) -> str:
    """Foreign text as plotly may show it: one line, cut to `width`, its markup and `$TeX$` shown, not obeyed."""
    return html.escape(shortened(plain(text), width), quote=False).replace("$", "&#36;")


def loss_figure(run: RunResult, shared: Frame) -> go.Figure:
    """Every job's loss, 1 at its first value and 0 at the best that any run reached; hover tells it raw."""
    figure = go.Figure()
    for place, name, curves in _curves(run, shared):
        points = _finite(curves.loss)
        figure.add_scatter(
            x=[round(at, 2) for at, _ in points],
            y=[round(_scaled(value, shared.loss_ranges[name]), 4) for _, value in points],
            customdata=[value for _, value in points],
            hovertemplate="%{customdata:.4g}<extra>%{fullData.name}</extra>",
            **_line(place, name),
        )
    lay_out(figure, shared, height=300)
    return figure.update_yaxes(
        title_text="loss (1 = first, 0 = best)", range=(_LOSS_FLOOR, shared.loss_top), tickvals=_LOSS_TICKS
    )


def cut_losses(run: RunResult, shared: Frame) -> list[str]:
    """The jobs whose loss rose out of the chart of `run`: whoever reads it has to be told."""
    return [name for name in run.curves if _highest_loss(run, name, shared.loss_ranges[name]) > shared.loss_top]


def used_figure(run: RunResult, shared: Frame) -> go.Figure:
    """CPU used, one area for each job on top of the other, under the line of the machine's cores."""
    grid = _grid([curves.cpu_cores for _, _, curves in _curves(run, shared)])
    areas = [(place, name, _resampled(curves.cpu_cores, grid)) for place, name, curves in _curves(run, shared)]
    figure = _stacked(grid, areas, shape="linear")
    lay_out(figure, shared, height=240)
    _draw_cores(figure, shared)
    return figure.update_yaxes(title_text="cores used", range=(0, shared.node_cores * _HEADROOM_RATIO))


def allotted_figure(run: RunResult, shared: Frame) -> go.Figure:
    """CPU allotted, one stepped area for each job on top of the other.

    Shares add up to the machine's cores; limits may add up to more, and the axis has room for the highest stack.
    """
    moments = _moments(run)
    areas = [(place, name, _held(curves.allotted_cores, moments)) for place, name, curves in _curves(run, shared)]
    figure = _stacked(moments, areas, shape="hv")
    lay_out(figure, shared, height=240)
    _draw_cores(figure, shared)
    return figure.update_yaxes(title_text="cores allotted", range=(0, shared.allotted_top_cores * _HEADROOM_RATIO))


def _stacked(at: Sequence[float], areas: Iterable[tuple[int, str, Sequence[float]]], *, shape: str) -> go.Figure:
    """Areas of (place, job, cores) on one another; all have a value at each moment of `at`."""
    figure = go.Figure()
    for place, name, values in areas:
        figure.add_scatter(
            x=[round(moment, 2) for moment in at],
            y=[round(value, 3) for value in values],
            stackgroup="cpu",
            fillpattern={"shape": _PATTERNS[place // len(JOB_COLOURS) % len(_PATTERNS)], "solidity": 0.2},
            hovertemplate="%{y:.2f} cores<extra>%{fullData.name}</extra>",
            **_line(place, name, width=0.8, shape=shape),
        )
    return figure


def _curves(run: RunResult, shared: Frame) -> Iterable[tuple[int, str, Curves]]:
    return ((place, name, run.curves[name]) for place, name in enumerate(shared.names) if name in run.curves)


def _line(place: int, name: str, width: float = 2.2, shape: str = "linear") -> dict[str, object]:
    dash = _DASHES[place // len(JOB_COLOURS) % len(_DASHES)]
    return {
        "name": label(name, 24),
        "meta": place,  # the page's buttons find a job's traces by it
        "mode": "lines",
        "line": {"color": colour(place), "width": round(width, 2), "shape": shape, "dash": dash},
    }


def lay_out(figure: go.Figure, shared: Frame, *, height: int) -> None:
    """Give `figure` the shared time axis and look, `height` pixels high; its width is that of the page."""
    dress(figure, height=height)
    figure.update_layout(hovermode="x unified")
    figure.update_xaxes(range=(0, shared.end_seconds * 1.02), ticksuffix=" s", hoverformat=".1f")


def dress(figure: go.Figure, *, height: int) -> None:
    """Give `figure` the look of every chart, whatever is on its axes."""
    figure.update_layout(
        template=go.layout.Template(),
        height=height,
        margin={"l": 56, "r": 14, "t": 8, "b": 36},
        font={"family": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif", "size": 12},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        showlegend=False,
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": "#8a94a0", "activecolor": "#3b7dd8"},
        hoverlabel={"bgcolor": "#1b2430", "bordercolor": "#1b2430", "font": {"color": "#f4f6f8", "size": 12}},
    )
    figure.update_xaxes(zeroline=False, **_TICKS)
    figure.update_yaxes(zeroline=False, fixedrange=True, **_TICKS)


def _draw_cores(figure: go.Figure, shared: Frame) -> None:
    figure.add_hline(y=shared.node_cores, line={"color": "#8a94a0", "width": 1.2, "dash": "dash"})


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
    """Moments at which every area has a value: plotly would drop an area to 0 where only others have one.

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
