"""Reads the jobs of a history with a progress bar, and makes one scenario of all of them.

`slopewise advise` and `slopewise simulate --from-prometheus` read alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from slopewise.adapters.clock import SystemClock
from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.prometheus.history import JobHistory, Lifetime, Period, PrometheusHistory
from slopewise.advise.scenarios.groups import most_used_cores
from slopewise.advise.scenarios.recorded_jobs import recorded_job, write_scenario
from slopewise.errors import UsageError
from slopewise.model import Objective
from slopewise.own_policies import catalogue
from slopewise.simulator.command import ProgressBar

SEEDS = 2


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """Which history is read."""

    endpoint: Endpoint
    since_seconds: float
    metric: str
    objective: Objective
    namespaces: Sequence[str]
    max_jobs: int
    timeout_seconds: float


def scenario_of_history(options: HistoryOptions, folder: Path, policies: Sequence[str], console: Console) -> Path:
    """Write one scenario of all jobs and nodes of a history into the folder; UsageError where there are none.

    `policies`: names, or paths from where the process was started.
    """
    found = [catalogue.find(catalogue.name_of(each)) for each in policies]
    with closing(open_history(options)) as history:
        lifetimes = find_jobs(history, options)
        node_cores = history.node_cores()
        read = (recorded_job(job, number) for number, job in enumerate(read_jobs(history, lifetimes, console), start=1))
        jobs = [job for job in read if job is not None]
    if not jobs:
        raise UsageError(
            f"Prometheus at {history.shown_url} has no CPU use of the jobs; have it scrape kubelets' /metrics/cadvisor."
        )
    names = sorted({job.node for job in jobs})
    nodes = {name: node_cores.get(name) or most_used_cores([job for job in jobs if job.node == name]) for name in names}
    entries = [each.file or each.name for each in found]
    return write_scenario("recorded", jobs, nodes, folder, policies=entries, seeds=SEEDS)


def open_history(options: HistoryOptions) -> PrometheusHistory:
    """The history until now; UsageError for an endpoint or a name that cannot be used."""
    now = SystemClock().now()
    return PrometheusHistory(
        options.endpoint,
        Period(now - options.since_seconds, now),
        metric=options.metric,
        objective=options.objective,
        namespaces=options.namespaces,
        max_jobs=options.max_jobs,
        timeout_seconds=options.timeout_seconds,
    )


def find_jobs(history: PrometheusHistory, options: HistoryOptions) -> list[Lifetime]:
    """The jobs there were; UsageError where there were none, with the metrics that may be meant."""
    lifetimes = history.find()
    if lifetimes:
        return lifetimes
    names = history.loss_names()
    meant = f"name one of these with --metric: {', '.join(names[:5])}" if names else "see docs/metrics.md for how"
    where = f" in {', '.join(options.namespaces)}" if options.namespaces else ""
    raise UsageError(
        f"Prometheus at {history.shown_url} has no {options.metric} and no pod with GPUs of that time{where}; have "
        f"trainings export it, or {meant}."
    )


def read_jobs(history: PrometheusHistory, lifetimes: Sequence[Lifetime], console: Console) -> Iterator[JobHistory]:
    """The jobs one by one, with a bar where a terminal listens."""
    with ProgressBar(console, "reading jobs", len(lifetimes)) as bar:
        for job in history.read(lifetimes):
            yield job
            bar.done()
