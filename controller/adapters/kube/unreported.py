"""Which workloads report no evaluation, and why: the pods of one workload are one training, so one of them speaks.

Before it: `joining.py`, which has lent a silent rank the evaluation of the one that reports. After it: `observer.py`,
whose snapshot has the cause with every pod of the workload, and the warning with one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from controller.adapters.kube.joining import PATIENCE_SECONDS
from controller.adapters.kube.standing import Standing
from controller.adapters.missing_evaluations import MissingEvaluations, Remedies, Unheard, unheard, with_missing
from controller.adapters.prometheus import JobSeries, PrometheusReading
from controller.adapters.prometheus_series import JobKey
from controller.model import Job, MissingEvaluation

REMEDIES = Remedies(
    no_target="give its container a port named metrics, or see what selects its targets",
    scrape_fails="see whether its exporter listens and answers",
    no_metrics="report one with slopewise-exporter, or name it in spec.evaluation.metric",
    failing_seconds=PATIENCE_SECONDS,
    missing_seconds=PATIENCE_SECONDS,
)

_NO_SERIES = JobSeries()


def explained(
    found: Sequence[Job],
    standings: Iterable[Standing],
    reading: PrometheusReading,
    missing: MissingEvaluations,
    now_seconds: float,
) -> list[Job]:
    """The jobs of a pass, each that should report an evaluation and does not with the cause as far as it is known."""
    silent = {job.uid: job for job in found if _lacks(job)}
    speakers = _speakers(silent, standings, reading, now_seconds) if silent else {}
    causes = missing.of(speakers.values(), now_seconds)
    if not causes:
        return list(found)
    return [_with_cause(job, speakers, causes) if job.uid in silent else job for job in found]


def _lacks(job: Job) -> bool:
    return job.evaluation is None and job.responses is None and not job.state.ended


def _workload(job_uid: str) -> str:
    return job_uid.rpartition(":")[0]


def _speakers(
    silent: Mapping[str, Job], standings: Iterable[Standing], reading: PrometheusReading, now_seconds: float
) -> dict[str, Unheard]:
    """By workload: the first of its pods that Prometheus scrapes, else the first."""
    found = _unheard(silent, standings, reading, now_seconds)
    speakers: dict[str, Unheard] = {}
    for uid, one in sorted(found, key=lambda each: (each[1].series.up is None, each[0])):
        speakers.setdefault(_workload(uid), one)
    return speakers


def _unheard(
    silent: Mapping[str, Job], standings: Iterable[Standing], reading: PrometheusReading, now_seconds: float
) -> Iterator[tuple[str, Unheard]]:
    """Each silent job whose container runs, by uid."""
    for standing in standings:
        managed = standing.managed
        since = managed.container.running_since_seconds
        if managed.job_uid not in silent or since is None:
            continue
        key = JobKey(managed.pod.namespace, managed.pod.name)
        one = unheard(key, reading.jobs.get(key, _NO_SERIES), now_seconds - since)
        if one is not None:
            yield managed.job_uid, one


def _with_cause(job: Job, speakers: Mapping[str, Unheard], causes: Mapping[JobKey, MissingEvaluation]) -> Job:
    speaker = speakers.get(_workload(job.uid))
    cause = None if speaker is None else causes.get(speaker.key)
    if speaker is None or cause is None:
        return job
    speaks = speaker.key == JobKey(job.namespace, job.name)
    return replace(
        job, missing_evaluation=cause, warnings=with_missing(job.warnings, cause) if speaks else job.warnings
    )
