"""Draws the timeline of one run: each job in the colours of its classes, its pauses, and marks of changes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from slopewise.demo.report.charts import Frame, run_end, time_axis
from slopewise.demo.report.job_moves import cost_text
from slopewise.demo.report.results import DecisionRow, DemoResult, JobMove, JobResult, RunResult
from slopewise.model.job_classes import MEANINGS
from slopewise.reports.plots import Axis, Box, Mark, Plot, Text, colour
from slopewise.reports.wording import cores, label, plain

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
_RIM_COLOUR = "rgba(107,140,174,0.9)"
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


def timeline_figure(run: RunResult, shared: Frame) -> Plot:
    """A row for each job in the colours of its classes, with its pauses and marks of changes."""
    rows = len(shared.names)
    return Plot(
        time_axis(shared),
        Axis(rows - 0.4, -0.6),
        _ROW_PIXELS * max(1, rows),
        boxes=(*(_bar(segment, shared) for segment in segments(run)), *_pauses(run.jobs, shared)),
        marks=tuple(_marks(run.decisions, shared)),
        texts=tuple(_names(run.jobs, shared)),
    )


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


def _bar(segment: Segment, shared: Frame) -> Box:
    name, place = segment.job_class, shared.names.index(segment.job)
    class_text = "no class" if name is None else f"class {label(name)}"
    return Box(
        segment.from_seconds,
        segment.to_seconds,
        place + _BAR_OFFSET - _BAR_HEIGHT / 2,
        place + _BAR_OFFSET + _BAR_HEIGHT / 2,
        _class_colour(name),
        _RIM_COLOUR,
        f"{label(segment.job, 60)}\n{class_text} from {segment.from_seconds:.1f} s to {segment.to_seconds:.1f} s",
        _bar_text(segment, shared),
        place=place,
    )


def _pauses(jobs: Sequence[JobResult], shared: Frame) -> Iterator[Box]:
    """Hatched, over the bars: the time in which a job that was moved did no work."""
    for job in jobs:
        place = shared.names.index(job.name)
        for move in job.moves:
            if move.pause_seconds is not None:
                yield Box(
                    move.at_seconds,
                    move.at_seconds + move.pause_seconds,
                    place + _BAR_OFFSET - _BAR_HEIGHT / 2,
                    place + _BAR_OFFSET + _BAR_HEIGHT / 2,
                    _PAUSE_COLOUR,
                    title=f"{label(job.name, 60)}\n{_pause_text(move)}",
                    hatched=True,
                    place=place,
                )


def _pause_text(move: JobMove) -> str:
    what = cost_text([move])
    return f"{label(move.from_node)} → {label(move.node)} at {move.at_seconds:.1f} s\n{what}"


def _bar_text(segment: Segment, shared: Frame) -> str:
    """The class, where the bar is wide enough for it: about 4 % of the time shown."""
    wide = segment.to_seconds - segment.from_seconds >= 0.04 * shared.end_seconds
    return label(segment.job_class, 6) if segment.job_class is not None and wide else ""


def _marks(decisions: Iterable[DecisionRow], shared: Frame) -> Iterator[Mark]:
    for row in decisions:
        if row.outcome and row.job in shared.names:
            place = shared.names.index(row.job)
            yield Mark(row.at_seconds, place + _MARK_OFFSET, mark(row), _mark_text(row), place=place)


def _names(jobs: Sequence[JobResult], shared: Frame) -> Iterator[Text]:
    """Above each bar, from its start, or towards the left for a job that came late: names must not be cut off."""
    for job in jobs:
        place = shared.names.index(job.name)
        late = job.arrived_seconds > 0.6 * shared.end_seconds
        yield Text(job.arrived_seconds, place + _NAME_OFFSET, label(job.name, 28), colour(place), leftwards=late)


def mark(row: DecisionRow) -> str:
    """The symbol for the outcome of a change: triangles were applied, a ring was withheld, a cross failed.

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
    reason = "\n".join(textwrap.wrap(plain(row.reason), 60)[:6])
    return f"{label(row.job, 60)} at {row.at_seconds:.1f} s\n{what}\n{reason}"
