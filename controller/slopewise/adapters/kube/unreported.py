"""Finds why workloads report no evaluation; one pod of each workload carries the warning.

`snapshot.py` has copied the evaluation of the reporting rank to silent ranks before this runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from slopewise.adapters.kube.snapshot import GRACE_SECONDS
from slopewise.adapters.kube.workloads.job_facts import JobFacts
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.missing_evaluations import (
    MissingEvaluations,
    Remedies,
    Unreachable,
    unreachable,
    with_missing,
)
from slopewise.adapters.prometheus.reader import JobSeries, PrometheusReading
from slopewise.model import Job, JobUid, MissingEvaluation

REMEDIES = Remedies(
    no_target="give its container a port named metrics, or see what selects its targets",
    scrape_fails="see whether its exporter listens and answers",
    no_metrics="report one with slopewise-exporter, or name it in spec.evaluation.metric",
    failing_seconds=GRACE_SECONDS,
    missing_seconds=GRACE_SECONDS,
)

_NO_SERIES = JobSeries()


def explained(
    found: Sequence[Job],
    job_facts: Iterable[JobFacts],
    reading: PrometheusReading,
    missing: MissingEvaluations,
    now_seconds: float,
) -> list[Job]:
    """The jobs of a pass; those without an evaluation that should have one carry the cause, as far as it is known."""
    silent = {job.uid: job for job in found if _lacks(job)}
    speakers = _speakers(silent, job_facts, reading, now_seconds) if silent else {}
    causes = missing.of(speakers.values(), now_seconds)
    if not causes:
        return list(found)
    return [_with_cause(job, speakers, causes) if job.uid in silent else job for job in found]


def _lacks(job: Job) -> bool:
    return job.evaluation is None and job.responses is None and not job.state.ended


def _speakers(
    silent: Mapping[str, Job], job_facts: Iterable[JobFacts], reading: PrometheusReading, now_seconds: float
) -> dict[str, Unreachable]:
    """By workload: the first of its pods that Prometheus scrapes, else the first."""
    found = _unreachable(silent, job_facts, reading, now_seconds)
    speakers: dict[str, Unreachable] = {}
    for uid, one in sorted(found, key=lambda each: (each[1].series.up is None, each[0])):
        speakers.setdefault(JobUid.of(uid).workload, one)
    return speakers


def _unreachable(
    silent: Mapping[str, Job], job_facts: Iterable[JobFacts], reading: PrometheusReading, now_seconds: float
) -> Iterator[tuple[str, Unreachable]]:
    """Each silent job whose container runs, by uid."""
    for facts in job_facts:
        managed = facts.managed
        since = managed.container.running_since_seconds
        if managed.job_uid not in silent or since is None:
            continue
        key = JobKey(managed.pod.namespace, managed.pod.name)
        one = unreachable(key, reading.jobs.get(key, _NO_SERIES), now_seconds - since)
        if one is not None:
            yield managed.job_uid, one


def _with_cause(job: Job, speakers: Mapping[str, Unreachable], causes: Mapping[JobKey, MissingEvaluation]) -> Job:
    speaker = speakers.get(JobUid.of(job.uid).workload)
    cause = None if speaker is None else causes.get(speaker.key)
    if speaker is None or cause is None:
        return job
    speaks = speaker.key == JobKey(job.namespace, job.name)
    return replace(
        job, missing_evaluation=cause, warnings=with_missing(job.warnings, cause) if speaks else job.warnings
    )
