"""The demo's result as one self-contained HTML file: what a person shows to their team.

Before it: `runner.py` ran every policy, and `check_writable` was asked before the first job started. `comparison.py`
has the figures, `charts.py` the figures' pictures; the page around them is `report.html.j2`. After it: a browser,
which needs no network, and no script but for what it tells under the mouse. All foreign text reaches the page escaped:
by jinja2's autoescape in the text and the pictures, by `tojson` in the data of the script (no `</script>` can end it).
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from controller.demo import charts, comparison, job_moves, timeline, wording
from controller.demo.plots import Plot
from controller.demo.results import DecisionRow, DemoResult, RunResult
from controller.errors import SlopewiseError, UsageError

# The curves of eight jobs over five minutes are about 0.2 MiB, those of a hundred over a day 3 MiB.
_ROOM_BYTES = 8 * 1024 * 1024

_FIGURES: tuple[tuple[str, str, Callable[[RunResult, charts.Frame], Plot]], ...] = (
    ("loss", "Loss over time", charts.loss_figure),
    ("used", "CPU used, stacked", charts.used_figure),
    ("allotted", "CPU allotted, stacked", charts.allotted_figure),
    ("timeline", "Classes and changes", timeline.timeline_figure),
)


def check_writable(path: Path, option: str = "--report") -> None:
    """Find out before anything starts whether the file of `option` can be written to `path`.

    UsageError for a path that cannot be one, SlopewiseError where the disk has no room for the file.
    """
    try:
        _check(path, _real(path), option)
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be used ({error.strerror}); name another place.") from error


def write_report(result: DemoResult, path: Path) -> None:
    """Write the report to `path`, whole or not at all; SlopewiseError when it cannot be written."""
    write_page(render(result), path)


def write_page(page: str, path: Path) -> None:
    """Write a page to `path`, whole or not at all; SlopewiseError when it cannot be written."""
    target = _real(path)
    beside = target.with_name(f".slopewise-report-{uuid.uuid4().hex}.tmp")
    try:
        try:
            _write_through(beside, page.encode("utf-8", errors="replace"))
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise SlopewiseError(
            f"The report could not be written to {path} ({error.strerror}); make room or name another place."
        ) from error


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
            classes=timeline.classes(result),
            loss_top=shared.loss_top,
            cut_losses=[wording.listed(charts.cut_losses(run, shared)) for run in result.runs],
            colour_of={name: charts.colour(place) for place, name in enumerate(shared.names)},
        )
    )


def hover_data(figures: Mapping[str, Plot]) -> dict[str, Any]:
    """What the page's script tells under the mouse, by the chart's id; none of charts whose shapes have titles."""
    return {key: plot.hover() for key, plot in figures.items() if plot.lines or plot.areas}


def actuator_note(actuator: str) -> str:
    """What stop-and-continue means for the figures; empty for cgroups, whose name says it all.

    Why it was used is in the limiter's own description: as asked for, or because no cgroup could be used.
    """
    if "stop and continue" not in actuator:
        return ""
    return (
        "Each job's processes were stopped and continued in turn (duty cycling) to keep them near their limit, "
        "which is coarser than a limit of the kernel."
    )


def change_in_words(row: DecisionRow) -> str:
    """E.g. `2.00 → 0.50`, or the node of a placement; a dash when only the class changed."""
    if row.node:
        return f"to {row.node}"
    if not row.outcome or row.to_millicores is None:
        return wording.UNKNOWN
    return f"{wording.cores(row.from_millicores)} → {wording.cores(row.to_millicores)}"


def _check(path: Path, target: Path, option: str) -> None:
    if target.is_dir():
        raise UsageError(f"{option} {path} is a folder; name a file in it.")
    if target.exists() and not target.is_file():
        raise UsageError(f"{option} {path} is not a regular file; name one that can be written.")
    if not target.parent.is_dir():
        raise UsageError(f"{option} {path}: the folder {target.parent} is missing; create it or name another.")
    # The report is renamed into its place, so an older file there need not be writable, but its folder must be.
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {path}: this user cannot write to the folder {target.parent}; name another place.")
    if shutil.disk_usage(target.parent).free < _ROOM_BYTES:
        raise SlopewiseError(f"{option} {path}: its disk has less than 8 MiB free; make room or name another place.")


def _real(path: Path) -> Path:
    """Where a link leads, so that the file behind it is replaced and not the link. Never raises, unlike resolve."""
    return Path(os.path.realpath(path))


def _write_through(path: Path, data: bytes) -> None:
    """Write and wait for the disk: a full one may say so only now."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def environment(folder: Path) -> Environment:
    """For the templates in `folder`, and for what all pages share, which lies beside this file (`report.css`)."""
    shared = Environment(
        loader=FileSystemLoader([folder, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # The charts' data compact and in the order of the page.
    shared.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":")}
    shared.filters["plain"] = wording.plain
    return shared


def _environment() -> Environment:
    ours = environment(Path(__file__).parent)
    ours.filters |= {
        "seconds": wording.seconds,
        "allotment": wording.allotment,
        "actuator_note": actuator_note,
        "change_in_words": change_in_words,
    }
    return ours
