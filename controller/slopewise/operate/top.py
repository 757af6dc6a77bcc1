"""What `slopewise top` shows: the workloads at this moment, as many as the terminal has lines for."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.text import Text

from slopewise.adapters.local.job_record import ENDED_STATES
from slopewise.adapters.local.session_requests import session_and_jobs
from slopewise.crds import oversubscription
from slopewise.crds.job_growth import JobGrowthStatus
from slopewise.errors import SlopewiseError
from slopewise.operate.local_session import status_of
from slopewise.reports.live_table import LiveRow, LiveTable
from slopewise.reports.wording import finite, plain

LOSSES_KEPT = 120
"""Of each workload, for the curve: a dozen blocks of ten changes each."""

MIN_ROWS = 3
_STATES = {"NoLoss": "no loss"}


Sort = Literal["growth", "cpu", "name"]
"""By what the workloads are ordered; those that have ended come last."""


@dataclass(frozen=True, slots=True)
class View:
    """All workloads at one moment."""

    rows: Sequence[LiveRow]
    headings: Sequence[str]
    """Sentences above the table."""
    trouble: str = ""
    """Why the figures are old; empty: they are not."""


@dataclass(slots=True)
class Losses:
    """The last losses of each workload, each change once."""

    _known: dict[str, deque[float]] = field(default_factory=dict)

    def note(self, losses: Mapping[str, float | None]) -> None:
        """What each workload reports now; the others are forgotten."""
        for name, loss in losses.items():
            history = self._known.setdefault(name, deque(maxlen=LOSSES_KEPT))
            if loss is not None and finite(loss) and (not history or history[-1] != loss):
                history.append(loss)
        for name in self._known.keys() - losses.keys():
            del self._known[name]

    def of(self, name: str) -> Sequence[float]:
        """Oldest first."""
        return list(self._known.get(name, ()))


def row_of(name: str, status: JobGrowthStatus, losses: Sequence[float]) -> LiveRow:
    """One workload, from the status of its JobGrowth."""
    state = status.state or "unknown"
    return LiveRow(
        name=name,
        state=_STATES.get(state, state.lower()),
        job_class=status.job_class,
        loss=status.loss,
        loss_history=losses,
        growth=status.growth,
        cpu_cores_used=None,
        cpu_allotted_millicores_now=status.cpu_millicores,
        cpu_wanted_millicores=status.cpu_wanted_millicores,
        reason=status.reason or "",
        pace_seconds=status.took_seconds,
        objective_seconds=status.objective_seconds,
        note=oversubscription.message(status.conditions),
    )


_KEYS: Mapping[Sort, Callable[[LiveRow], tuple[Any, ...]]] = {
    "growth": lambda row: (-(row.growth or 0.0) if finite(row.growth or 0.0) else 0.0, row.name),
    "cpu": lambda row: (-(row.cpu_allotted_millicores_now or 0), row.name),
    "name": lambda row: (row.name,),
}


def ordered(rows: Sequence[LiveRow], sort: Sort) -> list[LiveRow]:
    """Largest first; what has ended last."""
    return sorted(rows, key=lambda row: (row.state in ENDED_STATES, *_KEYS[sort](row)))


def screen(view: View, sort: Sort, height: int | None = None) -> RenderableType:
    """The whole screen; `height`: lines of the terminal, None: all workloads."""
    parts: list[RenderableType] = [
        Text(plain(each), style="bold" if not at else "", no_wrap=True, overflow="ellipsis")
        for at, each in enumerate(view.headings)
    ]
    if view.trouble:
        parts.append(Text(plain(view.trouble), style="yellow", no_wrap=True, overflow="ellipsis"))
    rows = ordered(view.rows, sort)
    room = len(rows) if height is None else max(MIN_ROWS, height - len(parts) - 3)  # headings, meanings, "more"
    if rows:
        parts.append(LiveTable(rows[:room]))
    if len(rows) > room:
        parts.append(Text(f"{len(rows) - room} more: --namespace, --sort, a taller terminal", style="dim"))
    return Group(*parts)


def as_json(view: View, sort: Sort) -> dict[str, Any]:
    """For `--output json`."""
    return {
        "headings": list(view.headings),
        "trouble": view.trouble,
        "jobs": [_json(r) for r in ordered(view.rows, sort)],
    }


def _json(row: LiveRow) -> dict[str, Any]:
    figures = {
        "loss": row.loss,
        "growth": row.growth,
        "cpuUsedCores": row.cpu_cores_used,
        "tookSeconds": row.pace_seconds,
        "objectiveSeconds": row.objective_seconds,
    }
    return {
        "name": row.name,
        "state": row.state,
        "class": row.job_class,
        **{name: value if value is None or finite(value) else None for name, value in figures.items()},
        "cpuMillicores": row.cpu_allotted_millicores_now,
        "cpuWantedMillicores": row.cpu_wanted_millicores,
        "reason": row.reason,
        "note": row.note,
    }


class LocalWatch:
    """The jobs of the session on this machine, always the newest."""

    def __init__(self) -> None:
        """NoServiceError where no session runs."""
        self._losses = Losses()
        self._view = self._read()

    def view(self) -> View:
        """The jobs now; those of before, with the reason, where the session has gone."""
        try:
            self._view = self._read()
        except SlopewiseError as error:
            return replace(self._view, trouble=str(error))
        return self._view

    def _read(self) -> View:
        session, jobs = session_and_jobs()
        self._losses.note({job.name: job.loss_last for job in jobs})
        states = ", ".join(f"{count} {state}" for state, count in Counter(job.state for job in jobs).items()) or "none"
        heading = f"{datetime.now(UTC).astimezone():%H:%M:%S}  {session.policy}, mode {session.mode}; jobs: {states}"
        rows = ((job.loss_last, row_of(job.name, status_of(job), self._losses.of(job.name))) for job in jobs)
        shown = [row if loss is None else replace(row, loss=loss) for loss, row in rows]
        return View(shown, (heading,), session.held)
