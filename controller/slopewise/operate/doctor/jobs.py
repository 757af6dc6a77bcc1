"""Checks of the managed pods: their series in Prometheus, their kubelets' figures, and their checkpoints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.kube.cache.parsing import parse_pod
from slopewise.adapters.kube.cache.records import MANAGED_LABEL, PodRecord
from slopewise.adapters.kube.cache.reflector import objects
from slopewise.adapters.kube.cache.store import UNREADABLE
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Api, path_of
from slopewise.adapters.kube.moves.movability import volume_reasons
from slopewise.adapters.kube.snapshot import REMEDIES
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.missing_evaluations import MissingEvaluations, Unreachable, unreachable
from slopewise.adapters.prometheus.queries import AnyOf
from slopewise.adapters.prometheus.reader import JobSeries, PrometheusReader, PrometheusReading, Scope
from slopewise.config.metric_mappings import EvaluationMapping, ResponseMapping
from slopewise.crds import oversubscription
from slopewise.errors import ObservationError
from slopewise.guards.moves import short_grace_reason, unsaved_reason
from slopewise.operate.doctor.findings import Finding, grouped
from slopewise.operate.doctor.prometheus import TIMEOUT_SECONDS, check_targets, without_pass
from slopewise.operate.growths import growths_of
from slopewise.reports.wording import counted

_NO_SERIES = JobSeries()


@dataclass(frozen=True, slots=True)
class Sought:
    """What is sought in Prometheus."""

    evaluations: Sequence[EvaluationMapping]
    responses: Sequence[ResponseMapping]
    scrape_interval_seconds: float
    max_checkpoint_age_seconds: float


def read_pods(api: Api, namespace: str | None) -> tuple[list[Finding], list[PodRecord]]:
    """The managed pods that run, and what is wrong with the list of them."""
    path, params = path_of("v1", "pods", namespace), {"labelSelector": f"{MANAGED_LABEL}=true"}
    pods, unreadable = [], []
    try:
        for raw in objects(api, path, params):
            try:
                pods.append(parse_pod(raw))
            except UNREADABLE as error:
                unreadable.append(str(error))
    except ApiError as error:
        return [Finding("pods", "unchecked", f"pods may not be read: {error}")], []
    running = [pod for pod in pods if pod.node is not None and not pod.ended]
    found = [Finding("pods", "failed", each) for each in unreadable[:3]]
    if running:
        found.append(Finding("pods", "ok", f"{counted(len(running), 'managed pod')} on nodes"))
    else:
        remedy = f'label the pods of trainings {MANAGED_LABEL}: "true"'
        found.append(Finding("pods", "note", "no managed pod is on a node", remedy))
    return found, running


def check_threads(api: Api, namespace: str | None) -> Iterator[Finding]:
    """The workloads of which the controller says that they oversubscribe their CPU."""
    try:
        costs = [
            (each.name, oversubscription.message(each.status.conditions, oversubscription.OVERSUBSCRIBES))
            for each in growths_of(api, namespace)
        ]
    except ApiError as error:
        yield Finding("threads", "unchecked", f"the JobGrowths cannot be read: {error}")
        return
    found = [(name, cost) for name, cost in costs if cost]
    yield from grouped("threads", "note", found)
    if costs and not found:
        yield Finding("threads", "ok", f"{counted(len(costs), 'workload')}: none is known to oversubscribe its CPU")


def check_jobs(
    endpoint: Endpoint, sought: Sought, pods: Sequence[PodRecord], namespace: str | None, now_seconds: float
) -> Iterator[Finding]:
    """Everything about the series of these pods."""
    reader = PrometheusReader(
        endpoint,
        {"pod": AnyOf()} if namespace is None else {"namespace": namespace},
        sought.scrape_interval_seconds,
        sought.evaluations,
        window_seconds=0.0,
        timeout_seconds=TIMEOUT_SECONDS,
        resource_matchers={},
        responses=sought.responses,
    )
    containers = {container.name for pod in pods for container in pod.containers}
    scope = Scope(tuple(sorted({pod.namespace for pod in pods})), tuple(sorted(containers)))
    keys = {JobKey(pod.namespace, pod.name) for pod in pods}

    def named(labels: Mapping[str, str]) -> str:
        key = JobKey(labels.get("namespace", ""), labels.get("pod", ""))
        return f"{key.namespace}/{key.pod}" if key in keys else ""

    with reader:
        try:
            reading = reader.read(now_seconds, scope)
        except ObservationError as error:
            yield Finding("series", "unreachable", without_pass(error))
            return
        yield from check_targets(reader.targets, named)
        missing = MissingEvaluations(reader, sought.evaluations, 0.0, REMEDIES)
        yield from _series(pods, reading, missing, now_seconds)
    yield from _containers(pods, reading)
    yield from _checkpoints(pods, reading, sought.max_checkpoint_age_seconds, now_seconds)


def _series(
    pods: Sequence[PodRecord], reading: PrometheusReading, missing: MissingEvaluations, now_seconds: float
) -> Iterator[Finding]:
    """A workload is found when one of its pods reports: often only the first rank does."""
    silent: dict[str, list[PodRecord]] = defaultdict(list)
    reporting = set()
    for pod in pods:
        series = reading.jobs.get(JobKey(pod.namespace, pod.name), _NO_SERIES)
        workload = f"{pod.namespace}/{pod.name if pod.owner is None else pod.owner.name}"
        if series.evaluation is not None or series.responses is not None:
            reporting.add(workload)
        else:
            silent[workload].append(pod)
    silent = {workload: each for workload, each in silent.items() if workload not in reporting}
    if reporting:
        yield Finding("series", "ok", f"{counted(len(reporting), 'workload')} report a loss or response times")
    speakers = {workload: _speaker(each, reading, now_seconds) for workload, each in silent.items()}
    known = {workload: one for workload, one in speakers.items() if one is not None}
    causes = missing.of(known.values(), now_seconds)
    caused = {name: causes[one.key].message for name, one in known.items() if one.key in causes}
    yield from grouped("series", "failed", caused.items())
    if starting := len(silent) - len(caused):
        yield Finding("series", "ok", f"{counted(starting, 'workload')} may still be starting")


def _speaker(pods: Sequence[PodRecord], reading: PrometheusReading, now_seconds: float) -> Unreachable | None:
    """The pod whose endpoint is looked into: the first that Prometheus scrapes, else the first that runs."""
    found = []
    for pod in pods:
        key = JobKey(pod.namespace, pod.name)
        since = [each.running_since_seconds for each in pod.containers if each.running_since_seconds is not None]
        one = unreachable(key, reading.jobs.get(key, _NO_SERIES), now_seconds - min(since)) if since else None
        if one is not None:
            found.append(one)
    return min(found, key=lambda one: (one.series.up is None, one.key), default=None)


def _containers(pods: Sequence[PodRecord], reading: PrometheusReading) -> Iterator[Finding]:
    """Whether kubelets' figures of the containers are in Prometheus."""
    seen = {(key.namespace, key.pod) for key in reading.resources}
    lacking = [pod for pod in pods if (pod.namespace, pod.name) not in seen]
    if lacking and len(lacking) == len(pods):
        text = "Prometheus has no CPU use of any managed container, so growth per CPU is not known"
        yield Finding("containers", "failed", text, "scrape the kubelets' /metrics/cadvisor")
    elif lacking:
        names = [(f"{pod.namespace}/{pod.name}", "Prometheus has no CPU use of it") for pod in lacking]
        yield from grouped("containers", "note", names)
    elif pods:
        yield Finding("containers", "ok", f"the CPU use of {counted(len(pods), 'pod')} is known")


def _checkpoints(
    pods: Sequence[PodRecord], reading: PrometheusReading, max_age_seconds: float, now_seconds: float
) -> Iterator[Finding]:
    """The contract of docs/checkpointing.md, as far as it can be seen from outside."""
    migratable = [pod for pod in pods if pod.migratable and pod.scheduling is not None]
    broken = [
        (f"{pod.namespace}/{pod.name}", reason)
        for pod in migratable
        if (reason := _broken(pod, reading, max_age_seconds, now_seconds)) is not None
    ]
    if broken:
        yield from grouped("checkpoints", "failed", broken)
    elif migratable:
        yield Finding("checkpoints", "ok", f"{counted(len(migratable), 'migratable pod')} can save before a move")
    elif pods:
        yield Finding("checkpoints", "ok", "no managed pod is migratable, so none is moved")


def _broken(pod: PodRecord, reading: PrometheusReading, max_age_seconds: float, now_seconds: float) -> str | None:
    """Why a move would lose work of this pod; None: it would not, as far as is seen."""
    series = reading.jobs.get(JobKey(pod.namespace, pod.name), _NO_SERIES)
    if pod.scheduling is None or (series.responses is not None and series.checkpoint is None):
        return None  # a model that only serves has nothing to save
    reason = next(volume_reasons(pod.scheduling), None)
    reason = reason or unsaved_reason(series.checkpoint, max_age_seconds, now_seconds)
    return reason or short_grace_reason(series.checkpoint, pod.scheduling.grace_seconds)
