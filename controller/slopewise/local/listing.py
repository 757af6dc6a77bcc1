"""The jobs of this machine's session as a table, and as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import to_builtins
from rich.console import RenderableType
from rich.text import Text

from slopewise.adapters.local.session_requests import JobAnswer
from slopewise.reports.columns import Column, fitting, named, sized, table_of
from slopewise.reports.live_table import STATE_STYLES
from slopewise.reports.wording import UNKNOWN, loss_change, plain, steps_done
from slopewise.text import bounded, duration

_ORDER = ("JOB", "STATE", "TIME", "LOSS", "STEPS", "CPU", "REASON")
_MIN_REASON_WIDTH = 36
"""Two lines of it hold what a job waits for and when it ends."""

MAX_REASON = 240
"""Characters; `--output json` has all of them."""


def jobs_table(jobs: Sequence[JobAnswer], width: int) -> RenderableType:
    """A row for each job, as wide as the terminal."""
    return table_of(fitting(_columns(jobs), _ORDER, width), jobs)


def _columns(jobs: Sequence[JobAnswer]) -> Iterator[Column[JobAnswer]]:
    """By importance."""
    yield named("JOB", jobs, lambda job: job.name)
    yield sized("STATE", jobs, lambda job: Text(plain(job.state), style=STATE_STYLES.get(job.state, "")))
    yield sized("TIME", jobs, _time, "right")
    yield Column(
        "REASON", _MIN_REASON_WIDTH, lambda job: Text(bounded(plain(job.reason), MAX_REASON)), fills=True, wraps=True
    )
    yield sized("LOSS", jobs, lambda job: Text(loss_change(job.loss_first, job.loss_last)))
    yield sized("STEPS", jobs, lambda job: Text(steps_done(job.steps, job.steps_planned)), "right")
    yield sized("CPU", jobs, lambda job: Text((job.status or {}).get("cpu", UNKNOWN)), "right")


def _time(job: JobAnswer) -> Text:
    if job.started_at_seconds is None:
        return Text(UNKNOWN)
    until = time.time() if job.finished_at_seconds is None else job.finished_at_seconds
    return Text(duration(max(0.0, until - job.started_at_seconds)))


def as_json(jobs: Sequence[JobAnswer]) -> list[dict[str, Any]]:
    """For `--output json`: every key of each job."""
    keys = JobAnswer.__struct_fields__
    return [{key: to_builtins(getattr(job, key)) for key in keys} for job in jobs]
