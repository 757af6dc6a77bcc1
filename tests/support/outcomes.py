"""Runs that were not simulated: the outcomes of jobs, written down by hand."""

from __future__ import annotations

from slopewise.simulator.world.model import JobOutcome, RunOutcome


def a_job_outcome(name: str, ends: float | None, *, arrived: float = 0.0, **more: object) -> JobOutcome:
    """A job of ten core-seconds that ended then; None: it did not."""
    figures: dict[str, object] = {
        "name": name, "model": "m", "arrived_seconds": arrived, "finished_seconds": ends, "at_90_seconds": None,
        "at_99_seconds": None, "work_cpu_seconds": 10.0, "served_cpu_seconds": 10.0, "stays": (),
        "cpu_jitter_ratio": 0.0,
    }  # fmt: skip
    return JobOutcome(**{**figures, **more})  # type: ignore[arg-type]


def a_run_outcome(*jobs: JobOutcome, **more: object) -> RunOutcome:
    """A run of these jobs."""
    figures: dict[str, object] = {
        "scenario": "s", "policy": "flowcon", "seed": 1, "jobs": jobs, "ended_seconds": 1000.0, "overlap_seconds": {},
        "growth_efficiency_sum": 0.5, "load_imbalance_ratio": 0.0, "cpu_utilisation_ratio": 0.9,
        "cpu_short_ratio": 0.5, "resizes_total": 4, "migrations_total": 0, "passes_total": 10, "withheld_total": 0,
    }  # fmt: skip
    return RunOutcome(**{**figures, **more})  # type: ignore[arg-type]
