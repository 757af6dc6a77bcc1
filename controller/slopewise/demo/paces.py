"""Measures the mean time of a response or a training step, which is compared with a job's objective.

Read from the run's Prometheus, after the run. Only the second half of each job's run counts, when the policy has had
time to find out what the job needs.
"""

from __future__ import annotations

from collections.abc import Iterable

from slopewise.adapters.local.job_record import JobRecord
from slopewise.adapters.prometheus.reader import JobSeries, PrometheusReader


def mean_paces(reader: PrometheusReader, records: Iterable[JobRecord]) -> dict[str, float]:
    """Seconds a response or step of each job that has an objective, by name; without those that are unknown."""
    paces = {}
    for record in records:
        started, ended = record.started_at_seconds, record.finished_at_seconds
        if record.spec.objectives.qoe_seconds is None or started is None or ended is None:
            continue
        middle = (started + ended) / 2
        pace = mean_pace(_read(reader, record, middle), _read(reader, record, ended), ended - middle)
        if pace is not None:
            paces[record.spec.name] = pace
    return paces


def mean_pace(before: JobSeries | None, after: JobSeries | None, seconds: float) -> float | None:
    """Seconds each between two readings, `seconds` apart; None when nothing was done, or a restart lies between.

    Worked example: 200 responses that took 50 s together by the middle, 300 and 80 s by the end: 0.3 s each.
    """
    if before is None or after is None or _are_two_processes(before, after):
        return None
    if before.responses is not None and after.responses is not None:
        done = after.responses.count_total - before.responses.count_total
        busy_seconds = after.responses.seconds_total - before.responses.seconds_total
    elif before.steps_total is not None and after.steps_total is not None:
        done, busy_seconds = after.steps_total - before.steps_total, seconds
    else:
        return None
    return busy_seconds / done if done > 0 and busy_seconds >= 0 else None


def _are_two_processes(before: JobSeries, after: JobSeries) -> bool:
    """True when another process answers by now: its counters began at 0, and may be larger all the same."""
    starts = {before.process_started_at_seconds, after.process_started_at_seconds} - {None}
    return len(starts) > 1


def _read(reader: PrometheusReader, record: JobRecord, at_seconds: float) -> JobSeries | None:
    jobs = reader.read(at_seconds).jobs
    return next((series for key, series in jobs.items() if key.pod == record.spec.name), None)
