"""The history of a workload: its last actions in the JobGrowth, printed by `slopewise history`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.text import Text

from slopewise.crds.conditions import timestamp
from slopewise.crds.growth_status import change_text
from slopewise.crds.job_growth import HISTORY_KEPT, Action
from slopewise.model import (
    JobUid,
    Migrate,
    Move,
    MoveEvent,
    Outcome,
    PassReport,
    Place,
    Resize,
    ResizeMemory,
    Stop,
    Withheld,
)
from slopewise.reports import columns
from slopewise.reports.wording import plain
from slopewise.text import bounded

MAX_DETAIL = 240
"""What a move gains and costs is 180 characters; most actions are resizes, with 60."""


class Figures(NamedTuple):
    """What a decision record has of an action, and a JobGrowth has not."""

    policy: str
    """The TrainingPolicy."""
    node: str
    """Where it is decided; of a placement and a move, the target."""
    unit: str = ""
    """`millicores` or `bytes`; empty: nothing is resized."""
    before: int | None = None
    after: int | None = None
    guard: str = ""
    """The guard that withheld it; empty: none."""


@dataclass(frozen=True, slots=True)
class Line:
    """One action of one workload, for people."""

    namespace: str
    workload: str
    action: Action
    figures: Figures | None = None


def resized(outcome: Outcome[Resize | ResizeMemory], now_seconds: float) -> Action:
    """A resize of CPU or memory that was carried out, or tried."""
    resize = outcome.decision
    detail = outcome.detail or resize.reason
    return _action(resize.job_uid, "Resize", change_text(resize), outcome.result, detail, now_seconds)


def restored(job_uid: str, detail: str, now_seconds: float) -> Action:
    """Original resources that are back."""
    return _action(job_uid, "Restore", "original resources", "applied", detail, now_seconds)


def moved(outcome: Outcome[Move], now_seconds: float) -> Action:
    """A placement, or a migration that could not be begun."""
    move = outcome.decision
    name = "Move" if isinstance(move, Migrate) else "Place"
    return _action(move.job_uid, name, move_text(move), outcome.result, outcome.detail or move.reason, now_seconds)


def stopped(outcome: Outcome[Stop], now_seconds: float) -> Action:
    """A stop at the target that was carried out, or tried."""
    stop = outcome.decision
    return _action(stop.job_uid, "Stop", "at its target", outcome.result, outcome.detail or stop.reason, now_seconds)


def withheld(move: Withheld[Move], now_seconds: float) -> Action:
    """A move that a guard did not let through."""
    what = moved(Outcome(move.decision, "deferred", move.reason), now_seconds)
    return what.model_copy(update={"result": "withheld"})


def move_event(event: MoveEvent, now_seconds: float) -> Action:
    """What became known of a migration."""
    came_up_on = event.record.resumed_on if event.stage != "cancelled" else None
    change = f"{event.record.from_node} to {came_up_on or event.record.node}"
    return _action(event.job_uid, "Move", change, event.stage, event.message, now_seconds)


def move_ended(job_uid: str, change: str, result: str, detail: str, now_seconds: float) -> Action:
    """A move that came to nothing (`cancelled`), or a job that is tied to its node no more (`released`)."""
    return _action(job_uid, "Move", change, result, detail, now_seconds)


def move_text(move: Move) -> str:
    """From where to where."""
    return f"{move.from_node} to {move.node}" if isinstance(move, Migrate) else f"on {move.node}"


def _action(job_uid: str, name: str, change: str, result: str, detail: str, now_seconds: float) -> Action:
    return Action(
        time=timestamp(now_seconds),
        slot=JobUid.of(job_uid).slot,
        action=name,
        change=change,
        result=result,
        detail=bounded(detail, MAX_DETAIL),
    )


def actions_of(report: PassReport, job_uid: str) -> Iterator[Action]:
    """What a pass has tried for a job."""
    results, now = report.by_job[job_uid].results, report.taken_at_seconds
    yield from (resized(each, now) for each in results.of(Resize))
    yield from (resized(each, now) for each in results.of(ResizeMemory))
    yield from (moved(each, now) for each in results.of(Place))
    yield from (moved(each, now) for each in results.of(Migrate))
    yield from (stopped(each, now) for each in results.of(Stop))


def appended(history: Sequence[Action], action: Action) -> tuple[Action, ...]:
    """The history with one more action, without the oldest where there are too many.

    What is tried in vain again and again is there once, since when: ten refusals of one resize would say nothing else.
    """
    last = next((each for each in reversed(history) if each.slot == action.slot), None)
    if last is not None and action.result != "applied" and is_repeated(last, action):
        return tuple(history)
    return (*history, action)[-HISTORY_KEPT:]


def is_repeated(one: Action, other: Action) -> bool:
    """Whether the same is tried with the same result."""
    return (one.action, one.change, one.result) == (other.action, other.change, other.result)


def in_order(lines: Iterable[Line]) -> list[Line]:
    """Oldest first, as they follow one another on a terminal."""
    return sorted(lines, key=lambda line: (line.action.time, line.namespace, line.workload))


def as_json(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """For `--output json`."""
    return [
        {
            "namespace": line.namespace,
            "workload": line.workload,
            **line.action.model_dump(mode="json", by_alias=True),
            **({} if line.figures is None else line.figures._asdict()),
        }
        for line in lines
    ]


_CSV_COLUMNS = (
    "time", "namespace", "workload", "slot", "action", "change", "result", "detail", *Figures._fields,
)  # fmt: skip


def csv_text(lines: Iterable[Line]) -> str:
    """A row for each action; no cell is a formula to a spreadsheet. What is not known is empty."""
    return columns.csv_text(as_json(lines), _CSV_COLUMNS)


def listing(lines: Sequence[Line]) -> Text:
    """Two lines for each action: what was done, in columns, and its reason or outcome."""
    if not lines:
        return Text("Nothing was done yet.")
    rows = [_columns(line) for line in lines]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    text = Text()
    for row, line in zip(rows, lines, strict=True):
        columns = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        text.append(f"{columns}\n")
        if line.action.detail:
            text.append(f"    {plain(line.action.detail)}\n", style="dim")
    text.rstrip()
    return text


def _columns(line: Line) -> tuple[str, ...]:
    action, workload = line.action, f"{line.namespace}/{line.workload}"
    pod = workload if action.slot in ("", "0") else f"{workload} {action.slot}"
    cells = (action.time.strftime("%Y-%m-%d %H:%M:%S"), pod, action.action, action.change, action.result)
    return tuple(map(plain, cells))
