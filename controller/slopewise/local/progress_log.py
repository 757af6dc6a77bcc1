"""Logs the progress of each job once a minute, for runs without a terminal."""

from __future__ import annotations

import math

import structlog

from slopewise.local.live import NO_LOSS, live_rows
from slopewise.local.session import Session
from slopewise.model.job_classes import MEANINGS
from slopewise.reports.live_table import LiveRow

EVERY_SECONDS = 60.0

_ALIVE = frozenset({"starting", "training", "checkpointing", "moving", NO_LOSS})


class ProgressLog:
    """Logs `job progress` for each job that runs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._log = structlog.get_logger("slopewise")
        self._next_seconds = EVERY_SECONDS

    def tick(self, elapsed_seconds: float) -> None:
        """Called about ten times a second; most calls do nothing."""
        if elapsed_seconds < self._next_seconds:
            return
        self._next_seconds = elapsed_seconds + EVERY_SECONDS
        for row in live_rows(self._session):
            if row.state in _ALIVE:
                self._log.info("job progress", name=row.name, **self._figures(row))

    def _figures(self, row: LiveRow) -> dict[str, object]:
        """The known figures only, so that no line has a null."""
        tally = self._session.tally.of(row.name)
        allotted = row.cpu_allotted_millicores_now
        known = {
            "state": row.state,
            "progress": tally.steps_total / tally.steps_planned if tally.steps_total and tally.steps_planned else None,
            "loss": row.loss if row.loss is not None and math.isfinite(row.loss) else None,
            "growth": row.growth,
            "seconds": row.pace_seconds,
            "objective_seconds": row.objective_seconds,
            "cores_used": row.cpu_cores_used,
            "cores_allotted": None if allotted is None else allotted / 1000,
            "job_class": row.job_class,
            "meaning": MEANINGS.get(row.job_class or ""),
        }
        return {key: value for key, value in known.items() if value is not None}
