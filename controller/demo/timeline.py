"""The timeline of one run: each job's life in the colours of its classes, its pauses, and marks of what was changed.

Before it: `charts.py`, whose axes and job colours it shares. After it: `report.py`, which puts it into a page.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import plotly.graph_objects as go

from controller.demo.charts import Frame, colour, label, lay_out, run_end
from controller.demo.job_moves import cost_in_words
from controller.demo.results import DecisionRow, DemoResult, JobMove, JobResult, RunResult
from controller.demo.wording import cores, plain
from controller.job_classes import MEANINGS

_ROW_PIXELS = 38
# A row is 1 high: the job's name above, its bar below.
_NAME_OFFSET = -0.3
_BAR_OFFSET = 0.17
_BAR_HEIGHT = 0.5
_MARK_OFFSET = _BAR_OFFSET + _BAR_HEIGHT / 2  # on the lower edge, so that a mark hides no class

# One hue that fades as a job's growth does: it is no job's colour, and reads on light and on dark paper.
_CLASS_COLOURS = {
    "NL": "rgba(107,140,174,0.80)",
    "WL": "rgba(107,140,174,0.45)",
    "CL": "rgba(107,140,174,0.14)",
}
_NO_CLASS_COLOUR = "rgba(128,128,128,0.12)"
_OTHER_CLASS_COLOUR = "rgba(107,140,174,0.30)"
_PAUSE_COLOUR = "rgba(190,120,40,0.75)"


@dataclass(frozen=True, slots=True)
class Segment:
    """A job's stay in one class; None before it got one."""

    job: str
    job_class: str | None
    from_seconds: float
    to_seconds: float


@dataclass(frozen=True, slots=True)
class ClassKey:
    """A class in the page's key: its name, what it means, its colour as CSS."""

    name: str
    meaning: str
    colour: str


def timeline_figure(run: RunResult, shared: Frame) -> go.Figure:
    """A row for each job: its life in the colours of its classes, its pauses, and marks of what was changed."""
    figure = go.Figure()
    found = segments(run)
    for job_class in dict.fromkeys(segment.job_class for segment in found):
        _add_bars(figure, [segment for segment in found if segment.job_class == job_class], shared)
    _add_pauses(figure, run.jobs, shared)
    _add_marks(figure, run.decisions, shared)
    _add_names(figure, run.jobs, shared)
    lay_out(figure, shared, height=_ROW_PIXELS * len(shared.names) + 50)
    figure.update_layout(barmode="overlay", hovermode="closest")
    return figure.update_yaxes(visible=False, range=(len(shared.names) - 0.4, -0.6))


def segments(run: RunResult) -> list[Segment]:
    """Each job's classes one after the other, from its arrival to its end (or the run's)."""
    return [segment for job in run.jobs for segment in _segments_of(job, run)]


def classes(result: DemoResult) -> list[ClassKey]:
    """Every class that a decision of any run names, FlowCon's first, for the page's key of colours."""
    named = dict.fromkeys(row.job_class for run in result.runs for row in run.decisions if row.job_class)
    ordered = [name for name in _CLASS_COLOURS if name in named] + [n for n in named if n not in _CLASS_COLOURS]
    return [ClassKey(plain(name), MEANINGS.get(name, ""), _class_colour(name)) for name in ordered]


def _class_colour(job_class: str | None) -> str:
    return _NO_CLASS_COLOUR if job_class is None else _CLASS_COLOURS.get(job_class, _OTHER_CLASS_COLOUR)


def _segments_of(job: JobResult, run: RunResult) -> Iterable[Segment]:
    end = job.finished_seconds if job.finished_seconds is not None else max(run_end(run), job.arrived_seconds)
    turns: list[tuple[float, str | None]] = [(job.arrived_seconds, None)]
    for row in sorted(run.decisions, key=lambda row: row.at_seconds):
        if row.job == job.name and row.job_class not in (None, turns[-1][1]):
            turns.append((min(max(row.at_seconds, job.arrived_seconds), end), row.job_class))
    for (start, job_class), (until, _) in pairwise([*turns, (end, None)]):
        if until > start:
            yield Segment(job.name, job_class, start, until)


def _add_bars(figure: go.Figure, found: Sequence[Segment], shared: Frame) -> None:
    name = found[0].job_class
    told = "no class" if name is None else f"class {label(name)}"
    figure.add_bar(
        orientation="h",
        base=[round(segment.from_seconds, 2) for segment in found],
        x=[round(segment.to_seconds - segment.from_seconds, 2) for segment in found],
        y=[shared.names.index(segment.job) + _BAR_OFFSET for segment in found],
        width=_BAR_HEIGHT,
        text=[_bar_text(segment, shared) for segment in found],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        customdata=[
            f"{label(segment.job, 60)}<br>{told} from {segment.from_seconds:.1f} s to {segment.to_seconds:.1f} s"
            for segment in found
        ],
        hovertemplate="%{customdata}<extra></extra>",
        marker={"color": _class_colour(name), "line": {"color": "rgba(107,140,174,0.9)", "width": 1}},
        showlegend=False,
    )


def _add_pauses(figure: go.Figure, jobs: Sequence[JobResult], shared: Frame) -> None:
    """Hatched, over the bars: the time in which a job that was moved did no work."""
    pauses = [(job.name, move) for job in jobs for move in job.moves if move.pause_seconds is not None]
    if not pauses:
        return
    figure.add_bar(
        orientation="h",
        base=[round(move.at_seconds, 2) for _, move in pauses],
        x=[round(move.pause_seconds or 0.0, 2) for _, move in pauses],
        y=[shared.names.index(name) + _BAR_OFFSET for name, _ in pauses],
        width=_BAR_HEIGHT,
        customdata=[f"{label(name, 60)}<br>{_pause_text(move)}" for name, move in pauses],
        hovertemplate="%{customdata}<extra></extra>",
        marker={"color": _PAUSE_COLOUR, "pattern": {"shape": "/", "size": 5}, "line": {"width": 0}},
        showlegend=False,
    )


def _pause_text(move: JobMove) -> str:
    what = cost_in_words([move])
    return f"{label(move.from_node)} → {label(move.node)} at {move.at_seconds:.1f} s<br>{what}"


def _bar_text(segment: Segment, shared: Frame) -> str:
    """The class, where the bar is wide enough for it: about 4 % of the time shown."""
    wide = segment.to_seconds - segment.from_seconds >= 0.04 * shared.end_seconds
    return label(segment.job_class, 6) if segment.job_class is not None and wide else ""


def _add_marks(figure: go.Figure, decisions: Iterable[DecisionRow], shared: Frame) -> None:
    marked = [row for row in decisions if row.outcome and row.job in shared.names]
    figure.add_scatter(
        mode="markers",
        x=[round(row.at_seconds, 2) for row in marked],
        y=[shared.names.index(row.job) + _MARK_OFFSET for row in marked],
        marker={
            "symbol": [mark(row) for row in marked],
            "size": 9,
            "color": "#ffffff",
            "line": {"color": "#1b2430", "width": 1.4},
        },
        customdata=[_mark_text(row) for row in marked],
        hovertemplate="%{customdata}<extra></extra>",
        showlegend=False,
        cliponaxis=False,
    )


def _add_names(figure: go.Figure, jobs: Sequence[JobResult], shared: Frame) -> None:
    """Above each bar, from its start, or towards the left for a job that came late: names must not be cut off."""
    late = [job.arrived_seconds > 0.6 * shared.end_seconds for job in jobs]
    places = [shared.names.index(job.name) for job in jobs]
    figure.add_scatter(
        mode="text",
        x=[round(job.arrived_seconds, 2) for job in jobs],
        y=[place + _NAME_OFFSET for place in places],
        text=[
            f'<span style="color:{colour(place)}">⬤</span> {label(job.name, 28)}'
            for place, job in zip(places, jobs, strict=True)
        ],
        textposition=["middle left" if is_late else "middle right" for is_late in late],
        textfont={"size": 11},
        hoverinfo="skip",
        showlegend=False,
        cliponaxis=False,
    )


def mark(row: DecisionRow) -> str:
    """plotly's symbol for what became of a change: triangles were applied, a ring was withheld, a cross failed.

    A diamond is a job that was placed or moved, one with a dot a job that was seen at work again after a move.
    """
    if row.outcome.startswith("withheld"):
        return "circle"
    if row.outcome == "resumed":
        return "diamond-dot"
    if row.outcome != "applied":
        return "x"
    if row.node:
        return "diamond"
    lowered = row.from_millicores is not None and (row.to_millicores or 0) < row.from_millicores
    return "triangle-down" if lowered else "triangle-up"


def _mark_text(row: DecisionRow) -> str:
    change = f"to {label(row.node)}" if row.node else f"{cores(row.from_millicores)} → {cores(row.to_millicores)} cores"
    what = f"{change}, {label(row.outcome, 60)}"
    why = "<br>".join(label(line, 80) for line in textwrap.wrap(plain(row.reason), 60)[:6])
    return f"{label(row.job, 60)} at {row.at_seconds:.1f} s<br>{what}<br>{why}"
