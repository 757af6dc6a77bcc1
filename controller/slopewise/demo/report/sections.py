"""The report of a demo: the comparison, each run with its charts, and what ran it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slopewise.demo.report import charts
from slopewise.demo.report.comparison import (
    Summary,
    caveats,
    fact_rows,
    job_blocks,
    measure_rows,
    report_blocks,
    summaries,
)
from slopewise.demo.report.objectives import kinds
from slopewise.demo.report.results import DemoResult, RunResult
from slopewise.reports.cells import Cell, Row
from slopewise.reports.estimates import Verdict
from slopewise.reports.plots import colour
from slopewise.reports.report import (
    STYLES,
    Cards,
    Chart,
    Comparison,
    Facts,
    Jobs,
    Notes,
    Part,
    Report,
    Section,
    Text,
    Tiles,
    notes_of,
)
from slopewise.reports.wording import UNKNOWN, listed, plain

_MEANINGS = (
    "Completion time (JCT): from a job's arrival to its end. Time to 90 %: from its arrival until 90 % of its loss's "
    "total improvement. Makespan: from the first arrival to the last end. A ratio is said to be better or worse where "
    "its 95 % interval over the rounds excludes 1, the same within 1 % (of time to 90 %, within 1 s, because losses "
    "are read once a second), else unclear; of a single round, where it is 5 % or more from 1."
)
_OBJECTIVES = (
    "An objective is satisfied when a response, or a step, took at most 1.1 times as long when it was last measured; a "
    "deadline is met when the job ended before it."
)
_NOT_COMPARED = (
    "Nothing is compared where a policy did nothing, where jobs failed, or where what everything else on the machine "
    "left of its CPU to the jobs differed by more than 5 %."
)


def report_of(result: DemoResult) -> Report:
    """The whole of it; a terminal has the comparison and the verdicts."""
    policies = [plain(run.policy) for run in result.runs]
    compared, rows, shared = summaries(result), measure_rows(result), charts.frame(result)
    facts = fact_rows(result) if result.runs else []
    blocks = [("", [*rows, *facts]), *((block.heading, block.rows) for block in job_blocks(result))]
    sections = [
        *(_summary(each, rows, place) for place, each in enumerate(compared, start=1)),
        Section("", [Comparison("", policies, blocks)], on="terminal"),
        *(_measures_and_jobs(result, policies, [*rows, *facts]) if result.runs else ()),
        Section("", [*map(_verdicts, compared), *notes_of(caveats(result))], on="terminal"),
        Section("What ran it", [_facts(result)], on="page"),
        *(_runs(result, shared) if result.runs else ()),
    ]
    against = f"{', '.join(policies[1:])} against " if policies[1:] else ""
    once = "" if len(result.rounds) > 1 else " Each policy ran once: --repeat gives intervals."
    return Report(
        f"Demo: {against}{policies[0] if policies else 'no run'}",
        sections,
        _lead(result, shared, policies),
        caveats(result),
        [_MEANINGS, *([_OBJECTIVES] if kinds(result) else []), _NOT_COMPARED + once],
    )


def _lead(result: DemoResult, shared: charts.Frame, policies: list[str]) -> str:
    jobs = f"{len(shared.names)} {'served models' if result.is_served else 'training jobs'}"
    nodes = f" of {result.nodes} nodes" if result.nodes > 1 else ""
    where = f"{jobs} on {result.node_cores:g} cores{nodes}, the same under {', then '.join(policies) or 'no policy'}."
    return where if result.is_served else f"{where} Of durations, less is better."


def _summary(summary: Summary, rows: list[Row], place: int) -> Section:
    """One policy against the baseline: the measures in boxes, then what is better and worse."""
    parts: list[Part] = [Tiles([_tile(row.label, row.cells[0], row.cells[place]) for row in rows])]
    if summary.compared:
        parts.append(Notes(_phrases(summary)))
    else:
        parts.append(Text("Why is said above. The figures below are what was measured.", "dim"))
    state = "" if summary.compared else ": not compared"
    return Section(f"{summary.policy} against {summary.baseline}{state}", parts, on="page")


def _tile(label: str, base: Cell, cell: Cell) -> tuple[str, str, str, Verdict | None]:
    figure = cell.verdict if cell.verdict in ("same", "unclear") else cell.change if cell.verdict else UNKNOWN
    said = {"better": " better", "worse": " worse", "unclear": f" {cell.badge}"}.get(cell.verdict or "", "")
    figures = cell.note or f"{base.text} → {cell.text}"
    return label, "the same" if figure == "same" else figure, f"{figures}{said}", cell.verdict


def _phrases(summary: Summary) -> list[tuple[str, str, Sequence[str]]]:
    """What is better and worse, also where that is nothing, and what is the same or unclear where anything is."""
    shown = [(word, said) for word, said in summary.phrases.items() if said or word in ("better", "worse")]
    return [(word, STYLES[word], said) for word, said in shown]


def _verdicts(summary: Summary) -> Notes:
    """For a terminal, which leaves out what is the same."""
    if not summary.compared:
        said = f"{summary.policy} is not compared with {summary.baseline}; the notes say why"
        return Notes([("no verdict", "yellow", [said])])
    rows = [row for row in _phrases(summary) if row[0] != "same"]
    return Notes(rows, f"{summary.policy} against {summary.baseline}")


def _measures_and_jobs(result: DemoResult, policies: Sequence[str], rows: Sequence[Row]) -> Iterator[Section]:
    """On a page, where there is room for each job's time to 90 %."""
    caption = f"Each measure by policy, with its ratio to {policies[0]}"
    yield Section("The comparison", [Comparison("Measure", policies, [("", rows)], caption)], on="page")
    blocks = [(block.heading, block.rows) for block in report_blocks(result)]
    yield Section(
        "", [Comparison("Job", policies, blocks, "Each job by policy; times are from its arrival")], on="page"
    )


def _facts(result: DemoResult) -> Facts:
    note = actuator_note(result.actuator)
    nodes = f", as {result.nodes} nodes with cores of their own" if result.nodes > 1 else ""
    return Facts(
        [
            ("Measured by", f"Prometheus {result.prometheus_version}, scraping every job's own metrics"),
            ("CPU given by", f"{result.actuator}. {note}" if note else result.actuator),
            ("Cores shared", f"{result.node_cores:g}{nodes}"),
            ("Interval", f"{result.interval_seconds:g} s between two passes; events interrupt it"),
        ]
    )


def _runs(result: DemoResult, shared: charts.Frame) -> Iterator[Section]:
    """Each run of the first round with its charts."""
    cards = [_run(number, run, shared) for number, run in enumerate(result.runs, start=1)]
    jobs = Jobs([(name, colour(place)) for place, name in enumerate(shared.names)])
    heading = "The runs of the first round" if len(result.rounds) > 1 else "Each run"
    yield Section(heading, [jobs, Cards(cards)], on="page")


def _run(number: int, run: RunResult, shared: charts.Frame) -> Section:
    policy = plain(run.policy)
    moved = f"{run.moves_applied} jobs placed or moved, " if run.moves_applied else ""
    facts = (
        f"{run.passes} passes ({run.passes_held} held), {run.resizes_applied} resizes applied, {moved}{run.withheld} "
        f"withheld; its passes used {run.controller_cpu_ratio * 100:.2f} % of one core. {plain(run.note)}"
    )
    cut = listed(charts.cut_losses(run, shared))
    scale = "Each job on its own scale: 1 is its first value, 0 the best it reached in any run. Hover for the loss."
    out = f" Out of the chart above {shared.loss_top:g}: {cut}." if cut else ""
    used = "Dashed: the cores of this machine that the jobs share."
    drawn = (
        ("loss", "Loss over time", charts.loss_figure, scale + out),
        ("used", "CPU used, stacked", charts.used_figure, used),
    )
    label = f"of {len(run.jobs)} jobs under {policy}; the tables of this page show the same in figures"
    figures = [
        Chart(f"run-{number}-{kind}", heading, figure(run, shared), f"{heading} {label}", note)
        for kind, heading, figure, note in drawn
    ]
    return Section(policy, [Text(facts.strip()), *figures])


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
