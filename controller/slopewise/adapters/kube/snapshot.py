"""Builds the jobs of a snapshot from pod facts and Prometheus readings, which `Reader` queries.

The pods of one workload are one training: a rank that reports no evaluation gets that of the rank that does. Each index
of an Indexed Job of a study is a trial, unless a variable of its container names another host as that of the first
rank. Where none reports, one pod of the workload carries the cause as a warning (`explained`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from slopewise.adapters.kube.cache.records import ManagedPod, PodPending
from slopewise.adapters.kube.resize.progress import WaitedSeconds, unconfirmed
from slopewise.adapters.kube.workloads.job_facts import JobFacts
from slopewise.adapters.prometheus.container_usage import ContainerKey, ContainerUse, Machine
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.missing_evaluations import (
    MissingEvaluations,
    PrometheusApi,
    Remedies,
    Unreachable,
    unreachable,
    with_missing,
)
from slopewise.adapters.prometheus.reader import JobSeries, PrometheusReading, Scope
from slopewise.estimators.speed import stated_cores
from slopewise.model import (
    ContainerHealth,
    Job,
    JobState,
    JobUid,
    MissingEvaluation,
    Movability,
    OutcomeResult,
    PendingResize,
)
from slopewise.own_policies.catalogue import favour_warnings
from slopewise.tracking import FirstSeen


class Reader(PrometheusApi, Protocol):
    """The queries to Prometheus (`reader.PrometheusReader`)."""

    scrape_interval_seconds: float

    def read(self, at_seconds: float, scope: Scope) -> PrometheusReading:
        """All series of the jobs in `scope`."""
        ...

    def machines(self, at_seconds: float) -> Mapping[str, Machine]:
        """The machines by node name."""
        ...

    def use_of_others(
        self, at_seconds: float, namespaces: Collection[str], ours: Container[JobKey]
    ) -> Mapping[str, float]:
        """Cores that the containers of all other pods use, by node name; a node without figures is left out."""
        ...


GRACE_SECONDS = 60.0
"""How long after its start a job may lack a target or a kubelet's figures without a warning: Prometheus discovers
targets every 5 s or more, and a kubelet measures containers every 10 to 15 s."""

_NO_SERIES = JobSeries()
_PENDING_RESULTS: Mapping[str, OutcomeResult] = {"Deferred": "deferred", "Infeasible": "infeasible", "Error": "failed"}
_ENDED: Mapping[str, JobState] = {"Succeeded": JobState.FINISHED, "Failed": JobState.FAILED}

_SCRAPE_FAILS = "Prometheus cannot scrape it; see whether its exporter listens and answers"
_NO_USE = "no kubelet reports its usage; scrape /metrics/cadvisor or /metrics/resource of its node"


def jobs(
    job_facts: Iterable[JobFacts],
    reading: PrometheusReading,
    now_seconds: float,
    first_seen: FirstSeen[Hashable],
    movability_inputs: Mapping[str, Movability],
    waited_seconds: WaitedSeconds = lambda _: None,
    policy: str = "",
) -> Iterator[Job]:
    """One job for each pod, in the order given; `movability_inputs` by job uid, of jobs that may be moved.

    `waited_seconds`: since when a pod's kubelet has not carried out what was accepted (`ResizeProgress`).
    """
    job_facts = list(job_facts)
    series = _series_by_uid(job_facts, reading)
    for facts in job_facts:
        pod, container = facts.managed.pod, facts.managed.container
        use = reading.resources.get(ContainerKey(pod.namespace, pod.name, container.name))
        uid = facts.managed.job_uid
        job = _job(facts, series[uid], use, now_seconds, first_seen, movability_inputs.get(uid))
        if useless := favour_warnings(job.objectives, policy, reports=job.evaluation is not None):
            job = job.altered(warnings=(*job.warnings, *useless))
        yield job if facts.matches_spec else with_cpu(job, facts, waited_seconds)


def with_cpu(job: Job, facts: JobFacts, waited_seconds: WaitedSeconds) -> Job:
    """The job with its pod's current CPU: accepted, actual, and what its kubelet has not carried out yet."""
    pod, container = facts.managed.pod, facts.managed.container
    ready, late = facts.node is None or facts.node.ready, waited_seconds(pod.uid)
    return job.altered(
        allocation=container.desired,
        actual=container.actual,
        memory=container.memory,
        unconfirmed=unconfirmed(facts.managed, late, node_is_ready=ready) if pod.awaits_kubelet else None,
    )


def _series_by_uid(job_facts: Iterable[JobFacts], reading: PrometheusReading) -> dict[str, JobSeries]:
    """The series of each job; a silent one gets those of the first rank of its workload that reports."""
    own: dict[str, JobSeries] = {}
    workloads: dict[str, list[ManagedPod]] = defaultdict(list)
    for managed in (facts.managed for facts in job_facts):
        own[managed.job_uid] = reading.jobs.get(JobKey(managed.pod.namespace, managed.pod.name), _NO_SERIES)
        workloads[managed.workload.uid].append(managed)
    for pods in (each for each in workloads.values() if len(each) > 1):
        uids, in_study = [each.job_uid for each in pods], any(each.study or own[each.job_uid].study for each in pods)
        if in_study and pods[0].workload.kind == "Job" and not pods[0].container.is_rank:
            continue
        if reporting := [uid for uid in uids if own[uid].evaluation is not None]:
            first = min(reporting, key=lambda uid: (len(uid), uid))  # ranks as numbers: 2 comes before 10
            own.update({uid: own[first] for uid in uids if _is_silent(own[uid])})
    return own


def _is_silent(series: JobSeries) -> bool:
    return series.evaluation is None and series.responses is None and series.steps_total is None


def _job(
    facts: JobFacts,
    series: JobSeries,
    use: ContainerUse | None,
    now_seconds: float,
    first_seen: FirstSeen[Hashable],
    movability: Movability | None,
) -> Job:
    managed, requested = facts.managed, facts.requested
    pod, container = managed.pod, managed.container
    return Job(
        uid=managed.job_uid,
        name=pod.name,
        namespace=pod.namespace,
        node=pod.node or "",
        state=_state(facts, series),
        started_at_seconds=min(facts.started_at_seconds, now_seconds),
        allocation=container.desired,
        actual=container.desired if container.reported is not None else None,
        pod_level=pod.pod_level,
        evaluation=series.evaluation,
        usage=None if use is None else use.usage,
        steps_total=series.steps_total,
        steps_planned=series.steps_planned,
        wait_ratio=series.wait_ratio,
        waited_seconds_total=series.waited_seconds_total,
        accelerators=pod.accelerators,
        gpu_use=use.gpu_use if use and pod.accelerators else None,
        request_follows_limit=facts.request_follows_limit,
        threads=series.threads,
        useful_parallelism_cores=stated_cores(
            requested.useful_parallelism_cores, None if pod.accelerators else series.useful_threads
        ),
        restarted=series.restarted,
        process_started_at_seconds=series.process_started_at_seconds,
        first_step_at_seconds=series.first_step_at_seconds,
        warnings=(*facts.warnings, *series.warnings, *_blind_spots(facts, series, use, now_seconds)),
        responses=series.responses,
        objectives=requested.objectives.in_study(series.study),
        memory_request_bytes=facts.memory_request_bytes,
        memory_at_start_bytes=facts.memory_at_start_bytes,
        memory=container.memory,
        memory_ineligible_reason=facts.memory_ineligible_reason,
        migratable=requested.migratable,
        accepts=facts.accepts,
        ineligible_reason=facts.ineligible_reason,
        container_health=ContainerHealth(
            restarts_total=container.restarts_total,
            oom_killed_at_seconds=container.oom_killed_at_seconds,
            cpu_periods_total=use.cpu_periods_total if use else None,
            cpu_throttled_periods_total=use.cpu_throttled_periods_total if use else None,
            cpu_waiting_seconds_total=use.cpu_waiting_seconds_total if use else None,
        ),
        pending=None if pod.pending is None else _pending(facts, pod.pending, now_seconds, first_seen),
        checkpoint=series.checkpoint,
        movability=movability,
        workload_class=facts.workload_class,
        points=series.points,
    )


def _state(facts: JobFacts, series: JobSeries) -> JobState:
    """How the pod ended, else the state that the job reports."""
    pod, container = facts.managed.pod, facts.managed.container
    if (ended := _ENDED.get(pod.phase)) is not None:
        return ended
    if container.running_since_seconds is None:
        return JobState.STARTING
    return series.reported_state


def _pending(
    facts: JobFacts, pending: PodPending, now_seconds: float, first_seen: FirstSeen[Hashable]
) -> PendingResize:
    managed = facts.managed
    key = (managed.pod.uid, pending.kind, pending.since_seconds)
    return PendingResize(
        result=_PENDING_RESULTS[pending.kind],
        since_seconds=first_seen.at(key, now_seconds),
        detail=pending.message,
        actual=managed.container.reported or managed.container.desired,
        actual_memory=None if managed.container.memory_matches_spec else managed.container.reported_memory,
    )


def _blind_spots(facts: JobFacts, series: JobSeries, use: ContainerUse | None, now_seconds: float) -> Iterator[str]:
    """Missing measurements of a job that has run for a while, and the remedy of each."""
    since = facts.managed.container.running_since_seconds
    if facts.managed.pod.ended or since is None or now_seconds - since < GRACE_SECONDS:
        return
    if series.up is False and series.evaluation is not None:  # without one `explained` has the cause
        yield _SCRAPE_FAILS
    if use is None:
        yield _NO_USE


REMEDIES = Remedies(
    no_target="give its container a port named metrics, or see what selects its targets",
    scrape_fails="see whether its exporter listens and answers",
    no_metrics="report one with slopewise-exporter, or name it in spec.evaluation.metric",
    failing_seconds=GRACE_SECONDS,
    missing_seconds=GRACE_SECONDS,
)


def explained(
    found: Sequence[Job],
    job_facts: Iterable[JobFacts],
    reading: PrometheusReading,
    missing: MissingEvaluations,
    now_seconds: float,
) -> list[Job]:
    """The jobs of a pass; those without an evaluation that should have one carry the cause, as far as it is known."""
    silent = {job.uid: job for job in found if job.evaluation is None and job.responses is None and not job.state.ended}
    speakers = _speakers(silent, job_facts, reading, now_seconds) if silent else {}
    causes = missing.of(speakers.values(), now_seconds)
    if not causes:
        return list(found)
    return [_with_cause(job, speakers, causes) if job.uid in silent else job for job in found]


def _speakers(
    silent: Mapping[str, Job], job_facts: Iterable[JobFacts], reading: PrometheusReading, now_seconds: float
) -> dict[str, Unreachable]:
    """By workload: the first of its pods that Prometheus scrapes, else the first."""
    found: dict[str, Unreachable] = {}
    for managed in (facts.managed for facts in job_facts):
        since = managed.container.running_since_seconds
        if managed.job_uid in silent and since is not None:
            key = JobKey(managed.pod.namespace, managed.pod.name)
            if (one := unreachable(key, reading.jobs.get(key, _NO_SERIES), now_seconds - since)) is not None:
                found[managed.job_uid] = one
    speakers: dict[str, Unreachable] = {}
    for uid in sorted(found, key=lambda uid: (found[uid].series.up is None, uid)):
        speakers.setdefault(JobUid.of(uid).workload, found[uid])
    return speakers


def _with_cause(job: Job, speakers: Mapping[str, Unreachable], causes: Mapping[JobKey, MissingEvaluation]) -> Job:
    speaker = speakers.get(JobUid.of(job.uid).workload)
    cause = None if speaker is None else causes.get(speaker.key)
    if speaker is None or cause is None:
        return job
    speaks = speaker.key == JobKey(job.namespace, job.name)
    return job.altered(missing_evaluation=cause, warnings=with_missing(job.warnings, cause) if speaks else job.warnings)
