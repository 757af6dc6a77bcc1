"""Reads the jobs of a controller from its `/metrics`: what it measured and decided in its last pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import requests
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from slopewise.adapters.http.answers import known_failure
from slopewise.errors import DataSourceError

TIMEOUT_SECONDS = 5.0
MAX_BYTES = 64 * 1024 * 1024
"""20 gauges of 5,000 jobs are 15 MB."""

_JOB = "slopewise_job_"


@dataclass(slots=True)
class ControllerJobs:
    """The jobs of a controller at its last pass."""

    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    """By `namespace/name`: gauges by their names without `slopewise_job_`."""
    classes: dict[str, str] = field(default_factory=dict)
    by_state: dict[str, int] = field(default_factory=dict)
    last_pass_at_seconds: float | None = None


def read_jobs(url: str) -> ControllerJobs:
    """The jobs of the controller that serves `url`; DataSourceError where none answers."""
    try:
        with requests.Session() as session:
            session.trust_env = False  # a proxy of the environment is not for this machine
            answer = session.get(f"{url}/metrics", timeout=TIMEOUT_SECONDS, stream=True)
            body = answer.raw.read(MAX_BYTES, decode_content=True)
            status = answer.status_code
    except (requests.RequestException, OSError) as error:
        reason = known_failure(str(error)) or type(error).__name__
        raise DataSourceError(
            f"{url}: no controller answers ({reason}); start one (slopewise run --local), or name its port with --port."
        ) from error
    if status != requests.codes.ok:
        raise DataSourceError(f"{url}/metrics answers {status}; name the port of a controller with --port.")
    try:
        return _jobs(sample for family in text_string_to_metric_families(body.decode()) for sample in family.samples)
    except (ValueError, UnicodeDecodeError) as error:
        raise DataSourceError(f"{url}/metrics is no list of metrics; name the port of a controller.") from error


def _jobs(samples: Iterable[Sample]) -> ControllerJobs:
    jobs, ours = ControllerJobs(), False
    for sample in samples:
        ours = ours or sample.name.startswith("slopewise_")
        if sample.name == "slopewise_jobs":
            jobs.by_state[sample.labels.get("state", "")] = int(sample.value)
        elif sample.name == "slopewise_last_pass_timestamp_seconds":
            jobs.last_pass_at_seconds = sample.value or None
        elif sample.name.startswith(_JOB):
            _add(jobs, sample)
    if not ours:
        raise ValueError("no metric of a controller")
    return jobs


def _add(jobs: ControllerJobs, sample: Sample) -> None:
    name = f"{sample.labels.get('job_namespace', '')}/{sample.labels.get('job_name', '')}"
    figures = jobs.figures.setdefault(name, {})
    figure = sample.name.removeprefix(_JOB)
    if figure == "class":
        jobs.classes[name] = sample.labels.get("class", "")
    elif sample.labels.get("resource", "cpu") == "cpu":
        figures[figure] = sample.value
