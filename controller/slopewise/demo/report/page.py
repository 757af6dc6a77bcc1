"""Renders the results of a demo as one self-contained HTML file.

The browser needs no network, and no script but for the values under the mouse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slopewise.demo.report import charts, comparison, job_moves
from slopewise.demo.report.results import DecisionRow, DemoResult, RunResult
from slopewise.reports import wording
from slopewise.reports.page import environment, write_page
from slopewise.reports.plots import Plot, colour

if TYPE_CHECKING:
    from jinja2 import Environment

_FIGURES: tuple[tuple[str, str, Callable[[RunResult, charts.Frame], Plot]], ...] = (
    ("loss", "Loss over time", charts.loss_figure),
    ("used", "CPU used, stacked", charts.used_figure),
    ("allotted", "CPU allotted, stacked", charts.allotted_figure),
)


def write_report(result: DemoResult, path: Path) -> None:
    """Write the report to `path`, whole or not at all; SlopewiseError when it cannot be written."""
    write_page(render(result), path)


def render(result: DemoResult) -> str:
    """The page as text."""
    shared = charts.frame(result)
    figures = {
        f"run-{number}-{kind}": figure(run, shared)
        for number, run in enumerate(result.runs, start=1)
        for kind, _, figure in _FIGURES
    }
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            result=result,
            figures=figures,
            hover=hover_data(figures),
            figure_kinds=[(kind, title) for kind, title, _ in _FIGURES],
            summaries=comparison.summaries(result),
            caveats=comparison.caveats(result),
            measures=comparison.measure_rows(result),
            facts=[*job_moves.move_rows(result), *comparison.condition_rows(result)],
            rounds=comparison.round_rows(result),
            round_headings=comparison.ROUND_HEADINGS,
            blocks=comparison.report_blocks(result),
            durations=not comparison.ends_mean_nothing(result),
            loss_top=shared.loss_top,
            cut_losses=[wording.listed(charts.cut_losses(run, shared)) for run in result.runs],
            colour_of={name: colour(place) for place, name in enumerate(shared.names)},
        )
    )


def hover_data(figures: Mapping[str, Plot]) -> dict[str, Any]:
    """Data for the values under the mouse, by the chart's id; without charts whose shapes have titles."""
    return {key: plot.hover() for key, plot in figures.items() if plot.lines or plot.areas}


def actuator_note(actuator: str) -> str:
    """What stop-and-continue means for the figures; empty for cgroups.

    Why it was used is in the limiter's own description: as asked for, or because no cgroup could be used.
    """
    if "stop and continue" not in actuator:
        return ""
    return (
        "Each job's processes were stopped and continued in turn (duty cycling) to keep them near their limit, "
        "which is coarser than a limit of the kernel."
    )


def change_text(row: DecisionRow) -> str:
    """E.g. `2.00 → 0.50`, or the node of a placement; a dash when only the class changed."""
    if row.node:
        return f"to {row.node}"
    if not row.outcome or row.to_millicores is None:
        return wording.UNKNOWN
    return f"{wording.cores(row.from_millicores)} → {wording.cores(row.to_millicores)}"


def _environment() -> Environment:
    ours = environment(Path(__file__).parent)
    ours.filters |= {
        "seconds": wording.seconds,
        "allotment": wording.allotment,
        "actuator_note": actuator_note,
        "change_text": change_text,
    }
    return ours
