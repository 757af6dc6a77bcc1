"""Renders advice as tables for the terminal. Cells are `Text` and never markup: names of pods are foreign."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slopewise.advise.advice import TOTALS, Advice, amount
from slopewise.advise.findings import JobFinding, shown_hours
from slopewise.advise.replay import MEASURES, PolicyReplay
from slopewise.reports.cells import Row, Word
from slopewise.reports.columns import Column, fitting, named, one_line, remarks, sized, table_of
from slopewise.reports.comparison_table import ComparisonTable
from slopewise.reports.estimates import Verdict
from slopewise.reports.wording import UNKNOWN, plain, plus_minus
from slopewise.text import duration

MAX_JOBS = 20
"""As many rows as one looks at; JSON, CSV and the report have more."""


def tables(advice: Advice, width: int) -> RenderableType:
    """Totals, jobs, replays, caveats, and the proposed policy."""
    parts: list[RenderableType] = [Text(advice.headline, style="bold"), "", _totals(advice), "", _jobs(advice, width)]
    left_out = len(advice.findings) - MAX_JOBS
    if left_out > 0:
        parts.append(Text(f"{left_out} more jobs: -o json, -o csv or --report has them.", style="dim"))
    if advice.replays.policies:
        parts += ["", _replays(advice), Text(legend(), style="dim")]
    notes = remarks(("note", "yellow", note) for note in advice.caveats)
    parts += ["", notes, "", Text(advice.policy_text)]
    return Group(*parts)


def legend() -> str:
    """How to read a cell of the replays."""
    return (
        "× is the ratio to fair sharing of the same jobs in the simulator, ± half of its 95 % interval over groups of "
        "jobs; a job ended sooner where every replay of it did, by 1 % or more."
    )


def total_rows(advice: Advice) -> Iterator[tuple[str, str]]:
    """Each total that is not 0, with its figure."""
    for name, label in TOTALS.items():
        value = advice.totals[name]
        if value:
            yield label, f"{amount(value)}{_part(advice, name)}"


ReplayCell = tuple[str, Verdict | None]
"""A text and its verdict."""


def replay_rows(advice: Advice) -> list[tuple[str, list[ReplayCell]]]:
    """A row for each measure: its label, and of each policy the cell and its verdict."""
    replays = advice.replays.policies
    rows = [
        (f"{name[0].upper()}{name[1:]}", [_ratio_cell(each, key) for each in replays]) for key, name in MEASURES.items()
    ]
    worst: list[ReplayCell] = [(f"×{plus_minus(each.worst_job, 2)}", None) for each in replays]
    sooner: list[ReplayCell] = [(f"{each.jobs_sooner} of {each.jobs}", None) for each in replays]
    later: list[ReplayCell] = [(f"{each.jobs_later} of {each.jobs}", None) for each in replays]
    return [
        *rows,
        ("Worst job", worst),
        ("Jobs that would have ended sooner", sooner),
        ("Jobs that would have ended later", later),
    ]


def shown_amount(value: float | None) -> str:
    """A number of core-hours or GPU-hours, or a dash where it is not known."""
    return UNKNOWN if value is None else amount(value)


def shown_time(hours: float | None) -> str:
    """`7h42m`, or a dash where it is not known."""
    return UNKNOWN if hours is None else shown_hours(hours)


def _totals(advice: Advice) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for _ in range(2):
        table.add_column(overflow="fold")
    period = duration(advice.period.seconds)
    table.add_row(Text(f"The last {period}"), Text(plain(advice.url), style="dim"))
    for label, value in total_rows(advice):
        table.add_row(Text(label), Text(value))
    return table


def _part(advice: Advice, name: str) -> str:
    """What part of all that was held, e.g. ` (31 %)`."""
    of = {
        "gpu_converged_hours": "gpu_hours",
        "cpu_held_converged_core_hours": "cpu_held_core_hours",
        "cpu_never_used_core_hours": "cpu_held_core_hours",
        "converged_jobs": "jobs",
    }.get(name)
    whole = advice.totals[of] if of else 0.0
    return f" ({advice.totals[name] / whole:.0%})" if whole else ""


def _jobs(advice: Advice, width: int) -> Table:
    rows = advice.worst_first[:MAX_JOBS]
    columns = [
        named("JOB", rows, lambda job: f"{job.namespace}/{job.pod}"),
        sized("RAN", rows, lambda job: Text(shown_time(job.hours)), "right"),
        sized("CONVERGED", rows, lambda job: Text(shown_time(job.converged_hours)), "right"),
        sized("CORE H", rows, lambda job: Text(shown_amount(job.cpu_held_core_hours)), "right"),
        sized("GPU H", rows, lambda job: Text(shown_amount(job.gpu_hours if job.gpus else None)), "right"),
        Column("FOUND", 24, _found, fills=True),
    ]
    order = [each.heading for each in columns]
    return table_of(fitting(columns, order, max(width, 60)), rows)


def _found(job: JobFinding) -> Text:
    return one_line("; ".join(job.messages) or "nothing")


def _replays(advice: Advice) -> ComparisonTable:
    rows = [
        Row(label, tuple(Word("", text, verdict=verdict) for text, verdict in cells))
        for label, cells in replay_rows(advice)
    ]
    policies = [each.policy for each in advice.replays.policies]
    return ComparisonTable("Against fair sharing, replayed", policies, [("", rows)], baseline="fair sharing")


def _ratio_cell(replay: PolicyReplay, measure: str) -> ReplayCell:
    verdict = replay.verdict(measure)
    return f"×{plus_minus(replay.ratios[measure], 2)} {verdict or ''}".strip(), verdict
