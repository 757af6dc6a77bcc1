"""Renders the live table of a local run, and the line that replaces it in a log.

Nothing is said by colour alone: rich drops colours where NO_COLOR is set or no terminal listens. Cells are `Text` and
never markup, because job names and reasons are foreign.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from slopewise.model import JobState
from slopewise.model.learning import MEANINGS
from slopewise.reports.columns import Column, fitting, named, one_line, sized, table_of
from slopewise.reports.wording import UNKNOWN, cores, counted, finite, of_bound, plain
from slopewise.text import bounded

STATE_STYLES = {
    "finished": "green",
    "stopped at target": "green",
    "failed": "red",
    "stopped": "yellow",
    "cancelled": "yellow",
    "starting": "dim",
    "waiting": "dim",
    "moving": "cyan",
    "no loss": "yellow",
}
_RUNNING = {JobState.STARTING, JobState.TRAINING, JobState.CHECKPOINTING, "moving", "no loss", "stopping"}
_DONE = {JobState.FINISHED, "stopped at target"}
_ENDED = {JobState.FINISHED, JobState.FAILED}
_SPARKS = "▁▂▃▅▇"
_SPARK_WIDTH = 12
# With names of 20 letters the other columns take 82; a reason needs at least 28 letters.
_MIN_WIDTH_FOR_REASONS = 110
_MIN_REASON_WIDTH, _NARROW_REASON_WIDTH = 20, 28


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
    reason: str
    pace_seconds: float | None = None
    """The present time of a response or a step."""
    objective_seconds: float | None = None
    """Its objective; None: there is none."""
    note: str = ""
    """What is wrong with it now, shown before the reason; empty: nothing."""


@dataclass(frozen=True, slots=True)
class LiveHeader:
    """The run at this moment; counts are since its start. `note` is one sentence for trouble, else empty."""

    policy: str
    elapsed_seconds: float
    requeue_seconds: float | None
    passes: int
    resizes_applied: int
    withheld: int
    note: str = ""
    moves_applied: int = 0
    """Placements and migrations."""


def plain_progress_line(rows: Sequence[LiveRow], header: LiveHeader) -> str:
    """One line for a log, e.g. `t=30s flowcon: 5 running, 1 done, 3 passes, 4 resizes`."""
    states = [row.state for row in rows]
    running = sum(state in _RUNNING for state in states)
    done = sum(state in _DONE for state in states)
    parts = [f"{running} running", f"{done} done"]
    parts += [f"{states.count(ended)} {ended}" for ended in (JobState.FAILED, "cancelled", "ended") if ended in states]
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
    shares = ([value for value in history[start:end] if finite(value)] for start, end in pairwise(edges))
    means = [fmean(share) if share else None for share in shares]
    known = [mean for mean in means if mean is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    parts = (None if mean is None else (mean - low) / (high - low or 1.0) for mean in means)
    most = len(_SPARKS) - 1
    return "".join(" " if part is None else _SPARKS[min(most, int(part * len(_SPARKS)))] for part in parts)


@dataclass(frozen=True, slots=True)
class LiveTable:
    """The table that is redrawn while jobs run: names in full, and of the rest what the terminal has room for.

    Laid out when it is drawn, because only then the width is known.
    """

    rows: Sequence[LiveRow]
    header: LiveHeader | None = None
    """None: no line about a run, and no column of the used CPU where it is not known."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.header is not None:
            yield from _header_lines(self.header)
        wide = options.max_width >= _MIN_WIDTH_FOR_REASONS
        columns = fitting(self._wanted(wide=wide), _ORDER, options.max_width)
        yield table_of(columns, self.rows)
        if any(each.heading == _SHORT_CLASS for each in columns) and (meanings := _meanings(self.rows)):
            yield Text(meanings, style="dim", no_wrap=True, overflow="ellipsis")

    def _wanted(self, *, wide: bool) -> Iterator[Column[LiveRow]]:
        columns = _wanted(self.rows, wide=wide)
        shows_use = self.header is not None or any(row.cpu_cores_used is not None for row in self.rows)
        return columns if shows_use else (each for each in columns if each.heading != _USED)


_USED = "USED"
_SHORT_CLASS, _LONG_CLASS = "CLASS", "CLASS "
"""The same to a reader: without and with room for the meaning."""

_ORDER = (
    "JOB",
    "STATE",
    _SHORT_CLASS,
    _LONG_CLASS,
    "LOSS",
    "TIME / GOAL",
    "",
    "GROWTH",
    _USED,
    "NOW → WANTED",
    "REASON",
)


def _wanted(rows: Sequence[LiveRow], *, wide: bool) -> Iterator[Column[LiveRow]]:
    """The columns by importance; losses and objectives only where there are any."""
    yield named("JOB", rows, lambda row: row.name)
    yield sized("STATE", rows, lambda row: Text(plain(row.state), style=STATE_STYLES.get(row.state, "")))
    yield sized("NOW → WANTED", rows, _now_and_wanted, min_width=11)
    timed = any(row.objective_seconds is not None for row in rows)
    learning = not timed or any(row.loss is not None for row in rows)
    if timed:
        yield sized("TIME / GOAL", rows, lambda row: Text(of_bound(row.pace_seconds, row.objective_seconds)))
    if learning:
        yield Column("LOSS", 7, lambda row: Text(_figure(row.loss)), "right")
    yield sized(_SHORT_CLASS, rows, lambda row: Text(bounded(plain(row.job_class or UNKNOWN), 8)))
    yield Column(
        _USED, 5, lambda row: Text(UNKNOWN if row.cpu_cores_used is None else f"{row.cpu_cores_used:.2f}"), "right"
    )
    reason: Column[LiveRow] = Column(
        "REASON",
        _MIN_REASON_WIDTH if wide else _NARROW_REASON_WIDTH,
        lambda row: one_line("; ".join(filter(None, (row.note, row.reason)))),
        fills=True,
    )
    if not wide:
        yield sized(_LONG_CLASS, rows, _class_and_meaning, instead_of=_SHORT_CLASS) if _meanings(rows) else reason
    if learning:
        yield Column("GROWTH", 7, lambda row: Text(_figure(row.growth)), "right")
        yield Column("", _SPARK_WIDTH, lambda row: Text(sparkline(row.loss_history), style="cyan"))
    if wide:
        yield reason


def _class_and_meaning(row: LiveRow) -> Text:
    known = plain(row.job_class or UNKNOWN)
    return Text(f"{known} {MEANINGS[known]}" if known in MEANINGS else bounded(known, 20))


def _meanings(rows: Sequence[LiveRow]) -> str:
    """What the classes in the table mean, in the order of `MEANINGS`; empty where all of them are words."""
    there = {row.job_class for row in rows}
    return ", ".join(f"{name} {meaning}" for name, meaning in MEANINGS.items() if name in there)


def _header_lines(header: LiveHeader) -> Iterator[Text]:
    parts = [f"{header.elapsed_seconds:.0f} s"]
    if header.requeue_seconds is not None:
        parts.append(f"next pass in {max(0.0, header.requeue_seconds):.0f} s")
    parts += [counted(header.passes, "pass", "passes"), f"{counted(header.resizes_applied, 'resize')} applied"]
    parts += [f"{header.moves_applied} placed or moved"] if header.moves_applied else []
    parts += [f"{header.withheld} withheld"]
    yield Text.assemble((plain(header.policy), "bold"), "  ", "  ".join(parts), no_wrap=True, overflow="ellipsis")
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
