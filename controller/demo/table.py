"""What the demo shows in a terminal: the live table while it runs, and the comparison at its end.

Before it: the runner's latest pass as `LiveRow`s, or `comparison.py` for the end. After it: rich, which drops the
colours where NO_COLOR is set or no terminal listens; nothing here is said by colour alone. Cells are `Text` and
never markup, because job names and reasons are foreign.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from controller.demo.cells import AnyCell, Row
from controller.demo.columns import Column, fitting, one_line, sized, table_of
from controller.demo.comparison import (
    ROUND_HEADINGS,
    Summary,
    caveats,
    condition_rows,
    job_blocks,
    measure_rows,
    round_rows,
    summaries,
)
from controller.demo.job_moves import move_rows
from controller.demo.results import DemoResult
from controller.demo.wording import UNKNOWN, cores, counted, finite, of_bound, plain, shortened
from controller.job_classes import MEANINGS
from controller.model import JobState

_VERDICT_STYLES = {"better": "green", "worse": "red", "same": "dim", "unclear": "dim", None: ""}
_STATE_STYLES = {
    "finished": "green",
    "failed": "red",
    "starting": "dim",
    "waiting": "dim",
    "moving": "cyan",
    "no loss": "yellow",
}
_RUNNING = {JobState.STARTING, JobState.TRAINING, JobState.CHECKPOINTING, "moving", "no loss"}
_ENDED = {JobState.FINISHED, JobState.FAILED}
_SPARKS = "▁▂▃▅▇"
_SPARK_WIDTH = 12
# Labels of 20 columns, `fair` of 8 and two policies of 22 fit 80 columns; more put the ratio below the figure.
_RUNS_ON_ONE_LINE = 3
# With intervals, `fair` takes 17 and each policy 33.
_RUNS_OF_ROUNDS_ON_ONE_LINE = 2
_LONGEST_NAME = 20
# With names of 20 letters the other columns take 82; a reason of fewer than 28 letters would tell nothing.
_LEAST_WIDTH_FOR_REASONS = 110
_LEAST_REASON_WIDTH = 20


@dataclass(frozen=True, slots=True)
class LiveRow:
    """One job at this moment. None: not known (yet)."""

    name: str
    state: str
    job_class: str | None
    loss: float | None
    loss_history: Sequence[float]
    growth: float | None
    """Growth efficiency, as the policy measured it last."""
    cpu_cores_used: float | None
    cpu_allotted_millicores_now: int | None
    cpu_wanted_millicores: int | None
    why: str
    pace_seconds: float | None = None
    """What a response, or a step, takes now."""
    objective_seconds: float | None = None
    """What it is to take; None: nothing was asked."""


@dataclass(frozen=True, slots=True)
class LiveHeader:
    """The run at this moment; counts are since its start. `note` is one sentence for trouble, else empty."""

    policy: str
    elapsed_seconds: float
    next_look_seconds: float | None
    passes: int
    resizes_applied: int
    withheld: int
    note: str = ""
    moves_applied: int = 0
    """Placements and migrations."""


def comparison(result: DemoResult) -> RenderableType:
    """The end of a demo: each measure and each job by policy with its ratio, then what is better and worse."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for run in result.runs:
        table.add_column(Text(plain(run.policy), style="bold"), no_wrap=True)
    stacked = len(result.runs) > (_RUNS_ON_ONE_LINE if len(result.rounds) == 1 else _RUNS_OF_ROUNDS_ON_ONE_LINE)
    for heading, rows in _blocks(result):
        if heading:
            table.add_row(one_line(heading, style="bold"))
        for row in rows:
            table.add_row(one_line(row.label), *(_cell_text(cell, stacked=stacked) for cell in row.cells))
    rounds: list[RenderableType] = [_rounds(result), ""] if len(result.rounds) > 1 else []
    return Group(table, "", *rounds, _closing_words(result))


def _rounds(result: DemoResult) -> Table:
    """Every run with its own figures, and whether it is in the ratios."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("Round", "Policy", *ROUND_HEADINGS):
        table.add_column(heading)
    for row in round_rows(result):
        note = "" if row.compared else "  (not compared)"
        table.add_row(str(row.number), Text(row.policy), *row.figures[:-1], f"{row.figures[-1]}{note}")
    return table


def live_table(rows: Sequence[LiveRow], header: LiveHeader) -> RenderableType:
    """The table that is redrawn while jobs run: names in full, and of the rest what the terminal has room for."""
    return _LiveTable(rows, header)


def plain_progress_line(rows: Sequence[LiveRow], header: LiveHeader) -> str:
    """One line for a log, e.g. `t=30s flowcon: 5 running, 1 done, 3 passes, 4 resizes`."""
    states = [row.state for row in rows]
    running = sum(state in _RUNNING for state in states)
    done, failed = states.count(JobState.FINISHED), states.count(JobState.FAILED)
    parts = [f"{running} running", f"{done} done"]
    parts += [f"{failed} failed"] if failed else []
    parts += [counted(header.passes, "pass", "passes"), counted(header.resizes_applied, "resize")]
    parts += [f"{header.moves_applied} placed or moved"] if header.moves_applied else []
    parts += [f"{header.withheld} withheld"] if header.withheld else []
    parts += [plain(header.note)] if header.note else []
    return f"t={header.elapsed_seconds:.0f}s {plain(header.policy)}: {', '.join(parts)}"


def sparkline(history: Sequence[float], width: int = _SPARK_WIDTH) -> str:
    """`history` as at most `width` blocks, low to high, each the mean of its share; a gap where none is finite."""
    if not history:
        return ""
    count = min(width, len(history))
    edges = [len(history) * place // count for place in range(count + 1)]
    means = [_finite_mean(history[start:end]) for start, end in pairwise(edges)]
    known = [mean for mean in means if mean is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    return "".join(" " if mean is None else _spark(mean, low, high) for mean in means)


def _blocks(result: DemoResult) -> Iterator[tuple[str, list[Row]]]:
    yield "", [*measure_rows(result), *move_rows(result), *condition_rows(result)]
    for block in job_blocks(result):
        yield block.heading, list(block.rows)


def _cell_text(cell: AnyCell, *, stacked: bool) -> Text:
    text = Text(cell.text)
    if cell.badge:
        text.append("\n" if stacked else "  ")
        text.append(cell.badge, style=_VERDICT_STYLES[cell.verdict])
    if cell.note:
        text.append(f"\n({cell.note})", style="dim")
    return text


def _closing_words(result: DemoResult) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for summary in summaries(result):
        if not summary.compared:
            text = f"{summary.policy} is not compared with {summary.baseline}; the notes say why"
            grid.add_row(Text("no verdict", style="yellow"), Text(text))
            continue
        grid.add_row(Text("better", style="green"), _phrases(summary, summary.better))
        grid.add_row(Text("worse", style="red"), _phrases(summary, summary.worse))
        if summary.unclear:
            grid.add_row(Text("unclear", style="dim"), _phrases(summary, summary.unclear))
    for sentence in caveats(result):
        grid.add_row(Text("note", style="yellow"), Text(sentence))
    return grid


def _phrases(summary: Summary, phrases: Sequence[str]) -> Text:
    return Text(f"{summary.policy} against {summary.baseline}: {'; '.join(phrases) or 'nothing'}")


@dataclass(frozen=True, slots=True)
class _LiveTable:
    """Laid out when it is drawn, because only then the width is known."""

    rows: Sequence[LiveRow]
    header: LiveHeader

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _header_lines(self.header)
        wide = options.max_width >= _LEAST_WIDTH_FOR_REASONS
        columns = fitting(_wanted(self.rows, wide=wide), _ORDER, options.max_width)
        yield table_of(columns, self.rows)
        if any(each.heading == _SHORT_CLASS for each in columns) and (meanings := _meanings(self.rows)):
            yield Text(meanings, style="dim", no_wrap=True, overflow="ellipsis")


_SHORT_CLASS, _LONG_CLASS = "CLASS", "CLASS "
"""The same to a reader: without and with room for the meaning."""

_ORDER = ("JOB", "STATE", _SHORT_CLASS, _LONG_CLASS, "LOSS", "TIME / GOAL", "", "GROWTH", "USED", "NOW → WANTED", "WHY")


def _wanted(rows: Sequence[LiveRow], *, wide: bool) -> Iterator[Column[LiveRow]]:
    """The columns in the order of what they tell; losses only where there are any, objectives likewise."""
    yield sized("JOB", rows, lambda row: one_line(row.name), most=_LONGEST_NAME)
    yield sized("STATE", rows, lambda row: Text(plain(row.state), style=_STATE_STYLES.get(row.state, "")))
    yield sized("NOW → WANTED", rows, _now_and_wanted, least=11)
    timed = any(row.objective_seconds is not None for row in rows)
    learning = not timed or any(row.loss is not None for row in rows)
    if timed:
        yield sized("TIME / GOAL", rows, _time_and_goal)
    if learning:
        yield Column("LOSS", 7, lambda row: Text(_figure(row.loss)), "right")
    yield sized(_SHORT_CLASS, rows, lambda row: Text(shortened(plain(row.job_class or UNKNOWN), 8)))
    yield Column("USED", 5, _used, "right")
    if not wide and _meanings(rows):
        yield sized(_LONG_CLASS, rows, _class_and_meaning, instead_of=_SHORT_CLASS)
    if learning:
        yield Column("GROWTH", 7, lambda row: Text(_figure(row.growth)), "right")
        yield Column("", _SPARK_WIDTH, lambda row: Text(sparkline(row.loss_history), style="cyan"))
    if wide:
        yield Column("WHY", _LEAST_REASON_WIDTH, lambda row: one_line(row.why), fills=True)


def _used(row: LiveRow) -> Text:
    return Text(UNKNOWN if row.cpu_cores_used is None else f"{row.cpu_cores_used:.2f}")


def _class_and_meaning(row: LiveRow) -> Text:
    known = plain(row.job_class or UNKNOWN)
    return Text(f"{known} {MEANINGS[known]}" if known in MEANINGS else shortened(known, 20))


def _meanings(rows: Sequence[LiveRow]) -> str:
    """What the classes in the table mean, in the order of `MEANINGS`; empty where all of them are words."""
    there = {row.job_class for row in rows}
    return ", ".join(f"{name} {meaning}" for name, meaning in MEANINGS.items() if name in there)


def _time_and_goal(row: LiveRow) -> Text:
    return Text(UNKNOWN if row.objective_seconds is None else of_bound(row.pace_seconds, row.objective_seconds))


def _header_lines(header: LiveHeader) -> Iterator[Text]:
    told = [f"{header.elapsed_seconds:.0f} s"]
    if header.next_look_seconds is not None:
        told.append(f"next look in {max(0.0, header.next_look_seconds):.0f} s")
    told += [counted(header.passes, "pass", "passes"), f"{counted(header.resizes_applied, 'resize')} applied"]
    told += [f"{header.moves_applied} placed or moved"] if header.moves_applied else []
    told += [f"{header.withheld} withheld"]
    yield Text.assemble((plain(header.policy), "bold"), "  ", "  ".join(told), no_wrap=True, overflow="ellipsis")
    if header.note:
        yield Text(plain(header.note), style="yellow")


def _now_and_wanted(row: LiveRow) -> Text:
    """`2.00 → 0.50` in cores; only the first where the policy wants what the job has."""
    now, wanted = row.cpu_allotted_millicores_now, row.cpu_wanted_millicores
    if row.state in _ENDED:
        return Text(UNKNOWN)
    if wanted is None or wanted == now:
        return Text(cores(now))
    return Text.assemble(cores(now), " → ", (cores(wanted), "bold"))


def _figure(value: float | None) -> str:
    """Three significant digits in at most seven characters; NaN and infinity as they are."""
    return UNKNOWN if value is None else f"{value:.3g}"


def _finite_mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if finite(value)]
    return fmean(known) if known else None


def _spark(value: float, low: float, high: float) -> str:
    if high <= low:
        return _SPARKS[0]
    return _SPARKS[min(len(_SPARKS) - 1, int((value - low) / (high - low) * len(_SPARKS)))]
