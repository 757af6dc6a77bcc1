"""Renders the report of `slopewise advise` as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slopewise.advise import table
from slopewise.advise.advice import Advice, amount, timestamp
from slopewise.advise.findings import JobFinding, shown_hours
from slopewise.reports.page import environment
from slopewise.reports.plots import COLOURS, Axis, Box, Plot, Text, ticks
from slopewise.reports.wording import label
from slopewise.text import duration

MAX_JOBS = 500
"""As many rows as a page takes without becoming slow; JSON and CSV have all."""

MAX_BARS = 15
_ROW_PIXELS = 24
_TAIL_COLOUR, _WORK_COLOUR = COLOURS[1], COLOURS[0]


def render(advice: Advice) -> str:
    """The page as text."""
    jobs = advice.worst_first
    replays = advice.replays
    return (
        environment(Path(__file__).parent)
        .get_template("report.html.j2")
        .render(
            advice=advice,
            caveats=advice.caveats,
            since=timestamp(advice.period.from_seconds),
            until=timestamp(advice.period.until_seconds),
            period=duration(advice.period.seconds),
            totals=list(table.total_rows(advice)),
            tiles=_tiles(advice),
            namespaces=_namespaces(advice),
            bars=_bars(jobs),
            jobs=[(job, advice.sooner_by_job.get((job.namespace, job.pod), {})) for job in jobs[:MAX_JOBS]],
            jobs_left_out=max(0, len(jobs) - MAX_JOBS),
            shown_time=table.shown_time,
            shown_amount=table.shown_amount,
            policies=[each.policy for each in replays.policies],
            replay_rows=table.replay_rows(advice) if replays.policies else [],
            legend=table.legend(),
        )
    )


def _tiles(advice: Advice) -> list[tuple[str, str, str]]:
    """The three figures that come first: heading, figure, and what it is of."""
    totals = advice.totals
    found = []
    if totals["gpu_hours"]:
        part = totals["gpu_converged_hours"] / totals["gpu_hours"]
        found.append(("GPU-hours held by converged jobs", amount(totals["gpu_converged_hours"]), f"{part:.0%} of all"))
    if totals["cpu_held_core_hours"]:
        part = totals["cpu_held_converged_core_hours"] / totals["cpu_held_core_hours"]
        figure = amount(totals["cpu_held_converged_core_hours"])
        found.append(("Core-hours held by converged jobs", figure, f"{part:.0%} of all"))
    of = f"of {totals['jobs']:,.0f} jobs"
    found.append(("Jobs that ran on after they had converged", f"{totals['converged_jobs']:,.0f}", of))
    return found


def _namespaces(advice: Advice) -> list[tuple[str, list[str]]]:
    columns = ("jobs", "gpu_hours", "gpu_converged_hours", "cpu_held_core_hours", "cpu_held_converged_core_hours")
    rows = advice.by_namespace[list(columns)]
    return [
        (str(name), [amount(value) for value in row]) for name, row in zip(rows.index, rows.to_numpy(), strict=True)
    ]


def _bars(jobs: Sequence[JobFinding]) -> Plot | None:
    """The jobs that held most after they had converged: hours of work, then hours that brought nothing."""
    shown = [job for job in jobs if job.converged_hours][:MAX_BARS]
    if not shown:
        return None
    longest = max(job.hours for job in shown)
    boxes, names = [], []
    for row, job in enumerate(shown):
        top, bottom = len(shown) - row - 0.15, len(shown) - row - 0.85
        tail = job.converged_hours or 0.0
        worked = job.hours - tail
        name = label(f"{job.namespace}/{job.pod}", 48)
        converged = f"{name}: converged for {shown_hours(tail)}"
        boxes += [
            Box(0.0, worked, top, bottom, _WORK_COLOUR, title=f"{name}: improved for {shown_hours(worked)}"),
            Box(
                worked,
                job.hours,
                top,
                bottom,
                _TAIL_COLOUR,
                title=converged,
                hatched=True,
            ),
        ]
        names.append(Text(0.0, (top + bottom) / 2, name))
    return Plot(
        Axis(0.0, longest * 1.02, ticks(0.0, longest, unit=" h"), "hours"),
        Axis(0.0, float(len(shown))),
        _ROW_PIXELS * len(shown),
        boxes=tuple(boxes),
        texts=tuple(names),
        key=(("improved", _WORK_COLOUR), ("converged", _TAIL_COLOUR)),
        left_px=12,
    )
