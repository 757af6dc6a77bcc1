"""Follows the jobs of a controller on this machine for `slopewise top --local`, by its `/metrics`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from slopewise.adapters.local.controller_metrics import ControllerJobs, read_jobs
from slopewise.errors import DataSourceError
from slopewise.explain.top_view import Losses, View
from slopewise.reports.live_table import LiveRow


class ControllerWatch:
    """The jobs of one controller, always the newest."""

    def __init__(self, url: str) -> None:
        """DataSourceError where no controller answers."""
        self._url = url
        self._losses = Losses()
        self._jobs = read_jobs(url)

    def view(self) -> View:
        """The jobs now; those of before, with the reason, where the controller has gone."""
        trouble = ""
        try:
            self._jobs = read_jobs(self._url)
        except DataSourceError as error:
            trouble = str(error)
        jobs = self._jobs
        self._losses.note({name: figures.get("evaluation") for name, figures in jobs.figures.items()})
        states = ", ".join(f"{count} {state}" for state, count in jobs.by_state.items() if count) or "none"
        now = datetime.now(UTC)
        ended = jobs.last_pass_at_seconds
        ago = "no pass yet" if ended is None else f"last pass {max(0.0, now.timestamp() - ended):.0f} s ago"
        heading = f"{now:%H:%M:%SZ}  jobs of {self._url}: {states}; {ago}"
        rows = [self._row(name, figures, jobs) for name, figures in jobs.figures.items()]
        return View(rows, (heading,), trouble)

    def _row(self, name: str, figures: Mapping[str, float], jobs: ControllerJobs) -> LiveRow:
        return LiveRow(
            name=name,
            state=_state(figures),
            job_class=jobs.classes.get(name),
            loss=figures.get("evaluation"),
            loss_history=self._losses.of(name),
            growth=figures.get("growth_efficiency"),
            cpu_cores_used=figures.get("cpu_usage_cores"),
            cpu_allotted_millicores_now=_millicores(figures.get("cpu_allocated_cores")),
            cpu_wanted_millicores=_millicores(figures.get("cpu_accepted_cores")),
            reason="",
            pace_seconds=figures.get("objective_took_seconds"),
            objective_seconds=figures.get("objective_seconds"),
        )


def _state(figures: Mapping[str, float]) -> str:
    """As far as the metrics of one job say it."""
    if figures.get("diverged"):
        return "diverged"
    return "reporting" if figures.get("metrics_available") else "no loss"


def _millicores(cores: float | None) -> int | None:
    return None if cores is None else round(1000 * cores)
