"""The pictures of a sweep: each measure by policy over the seeds, the overlap, and who ran where in one seed.

Before it: `results.py`. After it: `report.py`, which puts the figures' JSON into a page. Look, colours and `label`,
which makes foreign text safe for plotly, are those of the demo's charts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from controller.demo.charts import colour, dress, label
from controller.simulator.measures import is_overlap, measure
from controller.simulator.model import JobOutcome, MoveKind, RunOutcome, Stay
from controller.simulator.results import SweepResult

_ROW_PIXELS = 22
_BAR_WIDTH = 0.9
"""Of a row. Left to itself, plotly makes a trace with few bars fill the space between them, other rows and all."""
_MOST_ROWS = 300
"""About 6,600 pixels: a day of 1,000 jobs on 64 nodes would be a picture that no browser draws."""
_MOVES: Mapping[MoveKind, tuple[str, str]] = {
    "migrated": ("slow move", "triangle-right"),
    "rebalanced": ("rebalancing move", "diamond"),
}
_LEGEND = {"orientation": "h", "y": -0.02, "yanchor": "top", "x": 0}


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the Gantt chart: stays on one node that do not overlap."""

    node: str
    stays: tuple[tuple[JobOutcome, Stay], ...]


def measure_figure(result: SweepResult, name: str) -> go.Figure:
    """A box for each policy over its seeds, with every seed as a point; the dashed line is the mean."""
    figure = go.Figure()
    for place, policy in reversed(list(enumerate(result.policies))):
        known = [value for value in result.values[policy][name] if value is not None]
        figure.add_box(
            x=[round(value, 4) for value in known],
            y=[place] * len(known),
            name=label(policy),
            orientation="h",
            boxmean=True,
            boxpoints="all",
            jitter=0.5,
            pointpos=0,
            marker={"color": colour(place), "size": 4, "opacity": 0.6},
            line={"width": 1.4},
            hoverinfo="x",
        )
    dress(figure, height=60 + 40 * len(result.policies))
    figure.update_layout(margin={"l": 96})
    figure.update_yaxes(
        tickvals=list(range(len(result.policies))),
        ticktext=[label(policy, 13) for policy in result.policies],
        range=(len(result.policies) - 0.5, -0.5),
    )
    return figure.update_xaxes(ticksuffix=" s" if measure(name).unit == "s" else "", rangemode="tozero")


def overlap_figure(result: SweepResult) -> go.Figure:
    """For how long how many jobs ran at the same time, the mean over the seeds."""
    names = [name for name in result.measures if is_overlap(name)]
    jobs = [int(name.rpartition("_")[2]) for name in names]
    figure = go.Figure()
    for place, (policy, estimates) in enumerate(result.summary().items()):
        seconds = [round(estimates[name].mean or 0.0, 2) for name in names]
        figure.add_bar(x=jobs, y=seconds, name=label(policy), marker={"color": colour(place)}, hoverinfo="x+y+name")
    dress(figure, height=260)
    figure.update_layout(
        margin={"b": 52}, showlegend=True, legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
    )
    figure.update_xaxes(title={"text": "jobs running at the same time", "standoff": 8})
    return figure.update_yaxes(ticksuffix=" s")


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
    while shown < len(nodes) and sum(lane.node in nodes[: shown + 1] for lane in every) <= _MOST_ROWS:
        shown += 1
    return [lane for lane in every if lane.node in nodes[:shown]], len(nodes[shown:])


def gantt_figure(rows: Sequence[Lane], models: Sequence[str], end_seconds: float) -> go.Figure:
    """A bar from when until when a job was on a node, coloured by its model; a mark where it came by a move."""
    figure = go.Figure()
    for place, model in enumerate(models):
        _add_bars(figure, rows, model, colour(place))
    for kind in _MOVES:
        _add_marks(figure, rows, kind)
    dress(figure, height=110 + _ROW_PIXELS * len(rows))
    figure.update_layout(
        margin={"l": 84, "t": 28}, barmode="overlay", showlegend=True, legend=_LEGEND,
        uniformtext={"minsize": 8, "mode": "hide"},
    )  # fmt: skip
    firsts = _first_rows(rows)
    for first in list(firsts.values())[1:]:
        figure.add_hline(y=first - 0.5, line={"color": "#8a94a0", "width": 0.8})
    figure.update_yaxes(
        tickvals=list(firsts.values()), ticktext=[label(node, 11) for node in firsts], range=(len(rows) - 0.5, -0.5)
    )
    return figure.update_xaxes(range=(0, end_seconds * 1.02), ticksuffix=" s", side="top")


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


def _add_bars(figure: go.Figure, rows: Sequence[Lane], model: str, bar_colour: str) -> None:
    found = [(y, job, stay) for y, lane in enumerate(rows) for job, stay in lane.stays if job.model == model]
    if found:
        figure.add_bar(
            x=[round(stay.to_seconds - stay.from_seconds, 2) for _, _, stay in found],
            base=[round(stay.from_seconds, 2) for _, _, stay in found],
            y=[y for y, _, _ in found],
            text=[label(job.name) for _, job, _ in found],
            hovertext=[_told(job, stay) for _, job, stay in found],
            name=label(model),
            orientation="h",
            width=_BAR_WIDTH,
            textposition="inside",
            insidetextanchor="start",
            textfont={"size": 10},
            marker={"color": bar_colour},
            hoverinfo="text",
        )


def _add_marks(figure: go.Figure, rows: Sequence[Lane], kind: MoveKind) -> None:
    found = [(y, job, stay) for y, lane in enumerate(rows) for job, stay in lane.stays if stay.came == kind]
    name, symbol = _MOVES[kind]
    if found:
        figure.add_scatter(
            x=[round(stay.from_seconds, 2) for _, _, stay in found],
            y=[y for y, _, _ in found],
            hovertext=[_told(job, stay) for _, job, stay in found],
            name=name,
            mode="markers",
            marker={"symbol": symbol, "size": 10, "color": "#ffffff", "line": {"color": "#1b2430", "width": 1.5}},
            hoverinfo="text",
        )


def _told(job: JobOutcome, stay: Stay) -> str:
    came = _MOVES[stay.came][0] if stay.came in _MOVES else "placed"
    return f"{label(job.name, 48)}: {stay.from_seconds:.1f} s to {stay.to_seconds:.1f} s, {came}"


def _first_rows(rows: Sequence[Lane]) -> dict[str, int]:
    firsts: dict[str, int] = {}
    for y, lane in enumerate(rows):
        firsts.setdefault(lane.node, y)
    return firsts
