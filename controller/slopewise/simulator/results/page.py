"""Renders the report of `slopewise simulate` as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slopewise.reports.cells import Word
from slopewise.reports.estimates import Estimate, verdict
from slopewise.reports.page import environment, write_page
from slopewise.reports.plots import Plot
from slopewise.reports.wording import ratio, seconds
from slopewise.simulator.results import charts, table
from slopewise.simulator.results.measures import is_overlap, measure
from slopewise.simulator.results.sweep_result import SweepResult
from slopewise.simulator.world.model import RunOutcome

MAX_JOBS = 200
"""As many rows as a person scrolls through; JSON and the trace have all."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job of the seed that is shown, with a cell for each policy."""

    name: str
    model: str
    arrived: str
    cells: tuple[Word, ...]
    """Its completion times, set against the baseline's where both are known."""


def write_report(result: SweepResult, path: Path) -> None:
    """Write the report to `path`, whole or not at all; SlopewiseError when it cannot be written."""
    write_page(render(result), path)


def render(result: SweepResult) -> str:
    """The page as text; of the seeds whose runs were kept, the first is shown job by job."""
    runs = _shown_runs(result)
    names = table.shown_measures(result)
    boxes = {f"measure-{name}": charts.measure_figure(result, name) for name in names}
    overlap = {"overlap": charts.overlap_figure(result)} if any(map(is_overlap, result.measures)) else {}
    gantts, nodes_left_out = _gantts(runs)
    figures = boxes | overlap | gantts
    jobs = job_rows(result, runs)
    return (
        environment(Path(__file__).parent)
        .get_template("report.html.j2")
        .render(
            result=result,
            rows=table.rows(result),
            caveats=table.caveats(result),
            legend=table.legend(result),
            figures=figures,
            boxes=[(name, measure(name)) for name in names],
            runs=runs,
            nodes_left_out=nodes_left_out,
            jobs=jobs[:MAX_JOBS],
            jobs_left_out=len(jobs[MAX_JOBS:]),
        )
    )


def job_rows(result: SweepResult, runs: Mapping[str, RunOutcome]) -> list[JobRow]:
    """Each job of the shown seed in order of arrival, which is the same under every policy."""
    if not runs:
        return []
    times = {policy: {job.name: job.jct_seconds for job in run.jobs} for policy, run in runs.items()}
    base = times[result.baseline]
    return [
        JobRow(
            job.name,
            job.model,
            seconds(job.arrived_seconds),
            tuple(
                Word(seconds(times[policy][job.name]))
                if policy == result.baseline
                else _job_cell(times[policy][job.name], base[job.name])
                for policy in result.policies
            ),
        )
        for job in runs[result.baseline].jobs
    ]


def _job_cell(ours: float | None, base: float | None) -> Word:
    if ours is None or not base:
        return Word(seconds(ours))
    quotient = ours / base
    judgement = verdict("less", Estimate(quotient, None, None, 1))
    return Word(seconds(ours), f"{ratio(quotient)} {judgement}", verdict=judgement)


def _shown_runs(result: SweepResult) -> dict[str, RunOutcome]:
    """By policy, the runs of the first seed whose runs were kept; empty when none were."""
    seed = next((seed for seed in result.seeds if (result.baseline, seed) in result.runs), None)
    return {} if seed is None else {policy: result.runs[policy, seed] for policy in result.policies}


def _gantts(runs: Mapping[str, RunOutcome]) -> tuple[dict[str, Plot], int]:
    """A Gantt chart for each policy, all on one time axis and with the same colours."""
    if not runs:
        return {}, 0
    shown = {policy: charts.shown_lanes(run) for policy, run in runs.items()}
    models = charts.models_of(runs.values())
    end_seconds = max(run.ended_seconds for run in runs.values())
    figures = {
        f"gantt-{number}": charts.gantt_figure(lanes, models, end_seconds)
        for number, (lanes, _) in enumerate(shown.values(), start=1)
    }
    return figures, max(left_out for _, left_out in shown.values())
