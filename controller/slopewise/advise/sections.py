"""The report of `slopewise advise`: what jobs held without need, what policies would bring, and one to begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich import text as rich_text

from slopewise.advise.actions import actions
from slopewise.advise.advice import TOTALS, Advice, amount, timestamp
from slopewise.advise.findings import JobFinding, shown_hours
from slopewise.advise.replay import MEASURES, PolicyReplay, Replays
from slopewise.reports.cells import Cell, Row
from slopewise.reports.columns import Column, named, one_line, sized
from slopewise.reports.plots import COLOURS, Axis, Box, Plot, ticks
from slopewise.reports.plots import Text as PlotText
from slopewise.reports.report import Chart, Comparison, Facts, Part, Report, Section, Table, Text, Tiles, notes_of
from slopewise.reports.wording import UNKNOWN, label, plus_minus, ratio
from slopewise.text import duration

TERMINAL_JOBS = 20
"""As many rows as one looks at; JSON, CSV and the page have more."""

PAGE_JOBS = 500
"""As many rows as a page takes without becoming slow; JSON and CSV have all."""

MAX_BARS = 15
_ROW_PIXELS = 24
_TAIL_COLOUR, _WORK_COLOUR = COLOURS[1], COLOURS[0]

_MEANINGS = (
    "A loss is flat that gained next to nothing in its last half, on held-out data only where the training loss does "
    "not fall; converged, if its plan is done too. Held is what was requested, or used where no request is known. "
    "Replays are simulated: the decisions are those of the real controller, the nodes and the trainings are models "
    "made of the recorded curves."
)

LEGEND = (
    "× is the ratio to fair sharing of the same jobs in the simulator, ± half of its 95 % interval over groups of "
    "jobs; a job ended sooner where every replay of it did, by 1 % or more."
)
"""How to read a cell of the replays."""


def report_of(advice: Advice) -> Report:
    """The whole of it: totals, jobs, replays, notes, and the proposed policy."""
    jobs, period = advice.worst_first, duration(advice.period.seconds)
    since, until = timestamp(advice.period.from_seconds), timestamp(advice.period.until_seconds)
    return Report(
        "What your training jobs held",
        [
            Section("", [Text(advice.headline, "bold")], on="terminal"),
            Section("", [Tiles(list(_tiles(advice)))], on="page"),
            Section("Jobs that held most while their loss was flat", _bars(jobs), on="page"),
            Section("In total", [Facts([(f"The last {period}", advice.url), *total_rows(advice)])]),
            Section("By namespace", _namespaces(advice), on="page"),
            Section("", _jobs_of_terminal(jobs), on="terminal"),
            Section("What to do", notes_of(list(actions(jobs)))),
            Section("What policies would have brought", _replays(advice.replays)),
            Section("What CPU for jobs with GPUs would have brought", _replays(advice.replays_by_need)),
            Section("Each job", [_jobs_of_page(advice)], on="page"),
            Section("", notes_of(advice.caveats), on="terminal"),
            Section("A policy to begin with", [Text(advice.policy_text, "code")] if advice.policy_text else []),
        ],
        f"{advice.headline} {len(jobs)} jobs of the last {period}, {since} to {until}, as {advice.url} recorded them.",
        advice.caveats,
        [_MEANINGS],
    )


def total_rows(advice: Advice) -> Iterator[tuple[str, str]]:
    """Each total that is not 0, with its figure."""
    for name, what in TOTALS.items():
        value = advice.totals[name]
        if value:
            yield what, f"{amount(value)}{_part(advice, name)}{_price(advice, name)}"


def _part(advice: Advice, name: str) -> str:
    """What part of all that was held, e.g. ` (31 %)`."""
    of = {
        "gpu_flat_hours": "gpu_hours",
        "gpu_waiting_hours": "gpu_hours",
        "cpu_held_flat_core_hours": "cpu_held_core_hours",
        "cpu_never_used_core_hours": "cpu_held_core_hours",
        "flat_jobs": "jobs",
    }.get(name)
    whole = advice.totals[of] if of else 0.0
    return f" ({advice.totals[name] / whole:.0%})" if whole else ""


def _price(advice: Advice, name: str) -> str:
    """What these GPU-hours cost, e.g. `, 1,240 at 2.5 each`; empty without a price."""
    price = advice.price_gpu_hour
    if price is None or name not in ("gpu_hours", "gpu_flat_hours", "gpu_stalled_hours", "gpu_waiting_hours"):
        return ""
    return f", {amount(price * advice.totals[name])} at {price:g} each"


def _tiles(advice: Advice) -> Iterator[tuple[str, str, str, None]]:
    """The three figures that come first: what it is, the figure, and what it is of."""
    totals = advice.totals
    for what, flat, held in (
        ("GPU-hours held while the loss was flat", "gpu_flat_hours", "gpu_hours"),
        ("GPU-hours that waited for batches", "gpu_waiting_hours", "gpu_hours"),
        ("Core-hours held while the loss was flat", "cpu_held_flat_core_hours", "cpu_held_core_hours"),
    ):
        if totals[held]:
            yield what, amount(totals[flat]), f"{totals[flat] / totals[held]:.0%} of all", None
    of = f"of {totals['jobs']:,.0f} jobs"
    yield "Jobs that ran on while their loss was flat", f"{totals['flat_jobs']:,.0f}", of, None


def _namespaces(advice: Advice) -> list[Part]:
    """Of several."""
    columns = {
        "jobs": "Jobs",
        "gpu_hours": "GPU-hours",
        "gpu_flat_hours": "GPU-hours flat",
        "cpu_held_core_hours": "Core-hours",
        "cpu_held_flat_core_hours": "Core-hours flat",
    }
    by_name = advice.by_namespace[list(columns)]
    rows = [
        Row(str(name), tuple(Cell(amount(value)) for value in row))
        for name, row in zip(by_name.index, by_name.to_numpy(), strict=True)
    ]
    caption = "Hours held in all, and while the loss was flat"
    return [Comparison("Namespace", list(columns.values()), [("", rows)], caption)] if len(rows) > 1 else []


def _jobs_of_terminal(jobs: Sequence[JobFinding]) -> list[Part]:
    shown, left_out = jobs[:TERMINAL_JOBS], len(jobs) - TERMINAL_JOBS
    columns = [*_figures(shown), Column("FOUND", 24, _found, fills=True)]
    more = Text(f"{left_out} more jobs: -o json, -o csv or --report has them.", "dim")
    return [Table(columns, shown), *([more] if left_out > 0 else [])]


def _jobs_of_page(advice: Advice) -> Table:
    """With the ratio of each job under each policy that was replayed."""
    jobs = advice.worst_first
    shown, left_out = jobs[:PAGE_JOBS], len(jobs) - PAGE_JOBS

    def sooner(job: JobFinding, policy: str) -> rich_text.Text:
        return rich_text.Text(ratio(advice.sooner_by_job.get((job.namespace, job.pod), {}).get(policy)))

    columns = [
        *_figures(shown),
        *(
            sized(each.policy, shown, lambda job, policy=each.policy: sooner(job, policy), "right")  # type: ignore[misc]
            for each in advice.replays.policies
        ),
        Column("FOUND", 24, _found),
    ]
    more = f"; {left_out} more jobs are not shown" if left_out > 0 else ""
    return Table(columns, shown, caption=f"Those that held most in vain first{more}")


def _figures(jobs: Sequence[JobFinding]) -> list[Column[JobFinding]]:
    def hours(
        heading: str, of: Callable[[JobFinding], float | None], shown: Callable[[float], str]
    ) -> Column[JobFinding]:
        def cell(job: JobFinding) -> rich_text.Text:
            value = of(job)
            return rich_text.Text(UNKNOWN if value is None else shown(value))

        return sized(heading, jobs, cell, "right")

    return [
        named("JOB", jobs, lambda job: f"{job.namespace}/{job.pod}"),
        hours("RAN", lambda job: job.hours, shown_hours),
        hours("FLAT", lambda job: job.flat_hours, shown_hours),
        hours("CORE H", lambda job: job.cpu_held_core_hours, amount),
        hours("GPU H", lambda job: job.gpu_hours if job.gpus else None, amount),
    ]


def _found(job: JobFinding) -> rich_text.Text:
    return one_line("; ".join(job.messages) or "nothing")


def _replays(found: Replays) -> list[Part]:
    """A row for each measure, then of how many jobs it would have been sooner and later."""
    replays = found.policies
    if not replays:
        return []
    rows = [
        Row(f"{name[0].upper()}{name[1:]}", tuple(_ratio_cell(each, key) for each in replays))
        for key, name in MEASURES.items()
        if key in replays[0].ratios
    ]
    rows += [
        Row("Worst job", tuple(Cell("", f"×{plus_minus(each.worst_job, 2)}") for each in replays)),
        Row("Jobs that would have ended sooner", tuple(_of_jobs(each, each.jobs_sooner) for each in replays)),
        Row("Jobs that would have ended later", tuple(_of_jobs(each, each.jobs_later) for each in replays)),
    ]
    title, policies = "Against fair sharing, replayed", [each.policy for each in replays]
    return [Comparison(title, policies, [("", rows)], "Replays by policy", "fair sharing"), Text(LEGEND, "dim")]


def _of_jobs(replay: PolicyReplay, jobs: int) -> Cell:
    return Cell("", f"{jobs} of {replay.jobs}")


def _ratio_cell(replay: PolicyReplay, measure: str) -> Cell:
    verdict = replay.verdict(measure)
    return Cell("", f"×{plus_minus(replay.ratios[measure], 2)} {verdict or ''}".strip(), verdict=verdict)


def _bars(jobs: Sequence[JobFinding]) -> list[Part]:
    """The jobs that held most while their loss was flat: hours of work, then hours that brought nothing."""
    shown = [job for job in jobs if job.flat_hours][:MAX_BARS]
    if not shown:
        return []
    longest = max(job.hours for job in shown)
    boxes, names = [], []
    for row, job in enumerate(shown):
        top, bottom = len(shown) - row - 0.15, len(shown) - row - 0.85
        tail = job.flat_hours or 0.0
        worked = job.hours - tail
        name = label(f"{job.namespace}/{job.pod}", 48)
        flat = f"{name}: flat for {shown_hours(tail)}"
        boxes += [
            Box(0.0, worked, top, bottom, _WORK_COLOUR, title=f"{name}: improved for {shown_hours(worked)}"),
            Box(worked, job.hours, top, bottom, _TAIL_COLOUR, title=flat, hatched=True),
        ]
        names.append(PlotText(0.0, (top + bottom) / 2, name))
    plot = Plot(
        Axis(0.0, longest * 1.02, ticks(0.0, longest, unit=" h"), "hours"),
        Axis(0.0, float(len(shown))),
        _ROW_PIXELS * len(shown),
        boxes=tuple(boxes),
        texts=tuple(names),
        key=(("improved", _WORK_COLOUR), ("flat", _TAIL_COLOUR)),
        left_px=12,
    )
    caption = "From its start to its end; hatched: its loss was flat"
    described = "Hours of improvement and hours of a flat loss by job; the table of jobs below has the figures"
    return [Chart("bars", caption, plot, described)]
