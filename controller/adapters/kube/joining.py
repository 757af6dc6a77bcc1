"""From what is known of each pod and what Prometheus has measured to the jobs of a snapshot.

`observer.py` reads both and hands them in; nothing here talks to anyone. The pods of one workload are one training:
a rank that reports nothing is judged by the evaluation of the rank that does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace

from controller.adapters.kube.records import PodPending
from controller.adapters.kube.resize_progress import WaitedSeconds, nothing_awaited, unconfirmed
from controller.adapters.kube.standing import Standing
from controller.adapters.prometheus import JobSeries, PrometheusReading
from controller.adapters.prometheus_resources import ContainerKey, ContainerUse
from controller.adapters.prometheus_series import JobKey
from controller.model import Job, JobState, Mobility, OutcomeResult, PendingResize, Vitals

PATIENCE_SECONDS = 60.0
"""How long after its start a job may be without a target or a kubelet's figures before its owner is told: Prometheus
looks for new targets every 5 s or more, and a kubelet at its containers every 10 to 15 s."""

_NO_SERIES = JobSeries()
_PENDING_RESULTS: Mapping[str, OutcomeResult] = {"Deferred": "deferred", "Infeasible": "infeasible", "Error": "failed"}
_ENDED: Mapping[str, JobState] = {"Succeeded": JobState.FINISHED, "Failed": JobState.FAILED}

_SCRAPE_FAILS = "Prometheus cannot scrape it; see whether its exporter listens and answers"
_NO_USE = "no kubelet tells what it uses; scrape /metrics/cadvisor or /metrics/resource of its node"


class FirstSights:
    """When we first saw something, by our own clock; what is not asked for in a pass is forgotten after it.

    A node whose clock is five minutes behind would otherwise have its resizes taken back as soon as they wait.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, float] = {}
        self._asked: dict[Hashable, float] = {}

    def at(self, what: Hashable, now_seconds: float) -> float:
        """When this was first seen; now, if it is new."""
        return self._asked.setdefault(what, self._known.get(what, now_seconds))

    def end_pass(self) -> None:
        """Forget what is over."""
        self._known, self._asked = self._asked, {}


def jobs(
    standings: Iterable[Standing],
    reading: PrometheusReading,
    now_seconds: float,
    sights: FirstSights,
    mobilities: Mapping[str, Mobility],
    waited_seconds: WaitedSeconds = nothing_awaited,
) -> Iterator[Job]:
    """One job for each pod, in the order given; `mobilities` by job uid, of those that may be moved.

    `waited_seconds`: since when a pod's kubelet has not carried out what was accepted (`ResizeProgress`).
    """
    standings = list(standings)
    series = _series_by_uid(standings, reading)
    for standing in standings:
        pod, container = standing.managed.pod, standing.managed.container
        use = reading.resources.get(ContainerKey(pod.namespace, pod.name, container.name))
        uid = standing.managed.job_uid
        job = _job(standing, series[uid], use, now_seconds, sights, mobilities.get(uid))
        yield job if standing.is_in_effect else with_cpu(job, standing, waited_seconds)


def with_cpu(job: Job, standing: Standing, waited_seconds: WaitedSeconds) -> Job:
    """The job with the CPU that its pod has by now: accepted, actual, and what its kubelet has not carried out yet."""
    pod, container = standing.managed.pod, standing.managed.container
    ready, late = standing.node is None or standing.node.ready, waited_seconds(pod.uid)
    return replace(
        job,
        allocation=container.wished,
        actual=container.actual,
        unconfirmed=unconfirmed(standing.managed, late, node_is_ready=ready) if pod.awaits_kubelet else None,
    )


def _series_by_uid(standings: Iterable[Standing], reading: PrometheusReading) -> dict[str, JobSeries]:
    """What Prometheus knows of each job; a silent one borrows from the first of its workload that reports."""
    own: dict[str, JobSeries] = {}
    workloads: dict[str, list[str]] = defaultdict(list)
    for standing in standings:
        managed = standing.managed
        own[managed.job_uid] = reading.jobs.get(JobKey(managed.pod.namespace, managed.pod.name), _NO_SERIES)
        workloads[managed.workload.uid].append(managed.job_uid)
    for uids in workloads.values():
        if len(uids) == 1:
            continue
        reporter = min((uid for uid in uids if own[uid].evaluation is not None), key=_rank, default=None)
        if reporter is not None:
            own.update({uid: own[reporter] for uid in uids if _is_silent(own[uid])})
    return own


def _rank(job_uid: str) -> tuple[int, str]:
    """Ranks as numbers: 2 comes before 10."""
    return len(job_uid), job_uid


def _is_silent(series: JobSeries) -> bool:
    return series.evaluation is None and series.responses is None and series.steps_total is None


def _job(
    standing: Standing,
    series: JobSeries,
    use: ContainerUse | None,
    now_seconds: float,
    sights: FirstSights,
    mobility: Mobility | None,
) -> Job:
    managed, asked = standing.managed, standing.asked
    pod, container = managed.pod, managed.container
    return Job(
        uid=managed.job_uid,
        name=pod.name,
        namespace=pod.namespace,
        node=pod.node or "",
        state=_state(standing, series),
        started_at_seconds=min(standing.started_at_seconds, now_seconds),
        allocation=container.wished,
        actual=container.wished if container.in_effect is not None else None,
        pod_level=pod.pod_level,
        evaluation=series.evaluation,
        usage=None if use is None else use.usage,
        steps_total=series.steps_total,
        steps_planned=series.steps_planned,
        useful_parallelism_cores=asked.useful_parallelism_cores,
        restarted=series.restarted,
        life_started_at_seconds=series.life_started_at_seconds,
        first_step_at_seconds=series.first_step_at_seconds,
        warnings=(*standing.warnings, *series.warnings, *_blind_spots(standing, series, use, now_seconds)),
        responses=series.responses,
        promises=asked.promises,
        memory_request_bytes=standing.memory_request_bytes,
        migratable=asked.migratable,
        accepts=standing.accepts,
        hands_off=standing.hands_off,
        vitals=Vitals(
            restarts_total=container.restarts_total,
            oom_killed_at_seconds=container.oom_killed_at_seconds,
            cpu_periods_total=use.cpu_periods_total if use else None,
            cpu_throttled_periods_total=use.cpu_throttled_periods_total if use else None,
        ),
        pending=None if pod.pending is None else _pending(standing, pod.pending, now_seconds, sights),
        checkpoint=series.checkpoint,
        mobility=mobility,
    )


def _state(standing: Standing, series: JobSeries) -> JobState:
    """How the pod ended, else what the job says."""
    pod, container = standing.managed.pod, standing.managed.container
    if (ended := _ENDED.get(pod.phase)) is not None:
        return ended
    if container.running_since_seconds is None:
        return JobState.STARTING
    return series.reported_state


def _pending(standing: Standing, pending: PodPending, now_seconds: float, sights: FirstSights) -> PendingResize:
    managed = standing.managed
    sight = (managed.pod.uid, pending.kind, pending.since_seconds)
    return PendingResize(
        result=_PENDING_RESULTS[pending.kind],
        since_seconds=sights.at(sight, now_seconds),
        detail=pending.message,
        in_effect=managed.container.in_effect or managed.container.wished,
    )


def _blind_spots(standing: Standing, series: JobSeries, use: ContainerUse | None, now_seconds: float) -> Iterator[str]:
    """What keeps us from seeing a job that has been running for a while, and what to do about it."""
    since = standing.managed.container.running_since_seconds
    if standing.managed.pod.ended or since is None or now_seconds - since < PATIENCE_SECONDS:
        return
    if series.up is False and series.evaluation is not None:  # without one `unreported.py` says why
        yield _SCRAPE_FAILS
    if use is None:
        yield _NO_USE
