"""Runs the checks of a cluster in order, that of the way of an alert among them; each finding comes at once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from slopewise.adapters.http.alert_webhook import PATH
from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.kube.cache.records import PodRecord
from slopewise.adapters.kube.cache.reflector import objects
from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Api, Json, path_of
from slopewise.adapters.kube.client.retry import get_or_none
from slopewise.adapters.kube.connection import LEASE_NAME, Connection, connect
from slopewise.adapters.kube.state.training_policies import PolicyRecord
from slopewise.config.training_policy import TrainingPolicySpec
from slopewise.operate.doctor.findings import Finding
from slopewise.operate.doctor.jobs import Sought, check_jobs, check_threads, read_pods
from slopewise.operate.doctor.prometheus import check_labels, check_prometheus
from slopewise.operate.doctor.rights import check_rights
from slopewise.operate.doctor.server import check_leader, check_nodes, check_server, moves_wanted, read_policies
from slopewise.reports.wording import counted

NO_PROMETHEUS = Finding(
    "Prometheus",
    "unchecked",
    "no Prometheus is named, so targets, series and checkpoints are not checked",
    "add --prometheus http://HOST:9090, or set PROMETHEUS_URL",
)


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The options of the command line."""

    connection: Connection
    lease_namespace: str
    """Where the controller's account is."""
    lease_namespaces: tuple[str, ...]
    """Where its Lease can be."""
    prometheus: Endpoint | None
    scrape_interval_seconds: float


def check_cluster(options: CheckOptions) -> Iterator[Finding]:
    """All findings; UsageError where the kubeconfig cannot be used."""
    with closing(connect(options.connection)) as api:
        policies: Sequence[PolicyRecord] = ()
        pods: Sequence[PodRecord] = ()
        answers = False
        for finding in check_server(api):
            answers = answers or finding.verdict != "unreachable"
            yield finding
        if answers:
            found, policies = read_policies(api)
            yield from found
            yield from _around(api, options, policies)
            found, pods = read_pods(api, options.connection.namespace)
            yield from found
            yield from check_threads(api, options.connection.namespace)
    yield from _measured(options, [each.document.spec for each in policies if each.document is not None], pods)


def _around(api: KubeApi, options: CheckOptions, policies: Sequence[PolicyRecord]) -> Iterator[Finding]:
    """Leader, rights, the way of alerts, and nodes."""
    namespace = options.connection.namespace
    yield check_leader(api, options.lease_namespaces)
    yield from check_rights(api, namespace, options.lease_namespace, moves=moves_wanted(policies))
    if namespace is None:
        yield from check_alerts(api, options.lease_namespace)
        yield from check_nodes(api)


def _measured(
    options: CheckOptions, specs: Sequence[TrainingPolicySpec], pods: Sequence[PodRecord]
) -> Iterator[Finding]:
    """All that Prometheus has."""
    endpoint, now = options.prometheus, time.time()
    if endpoint is None:
        yield NO_PROMETHEUS
        return
    answers = False
    for finding in check_prometheus(endpoint, options.scrape_interval_seconds, now):
        answers = answers or finding.verdict != "unreachable"
        yield finding
    if not answers:
        return
    specs = specs or [TrainingPolicySpec()]  # what all policies together look for: any of them may select a pod
    sought = Sought(
        list({each.evaluation.model_dump_json(): each.evaluation for each in specs}.values()),
        list({each.responses.model_dump_json(): each.responses for each in specs}.values()),
        options.scrape_interval_seconds,
        max(each.migration.max_checkpoint_age_seconds for each in specs),
    )
    if pods:
        yield from check_jobs(endpoint, sought, pods, options.connection.namespace, now)
    yield from check_labels(endpoint, sought.evaluations, now)


SERVICE = "slopewise-alerts"
OPTION = "--alert-token-file"
_APPLY = "apply manifests/components/alerts in the namespace of the controller"


def check_alerts(api: Api, namespace: str) -> Iterator[Finding]:
    """`namespace`: the controller's. No finding where neither the controller nor a Service is for alerts."""
    listens = None
    try:
        listens = _listens(api, namespace)
        service = get_or_none(api, path_of("v1", "services", namespace, SERVICE))
        if service is None:
            if listens:
                text = f"the controller takes alerts, and there is no Service {namespace}/{SERVICE}: none arrives"
                yield Finding("alerts", "failed", text, _APPLY)
            return
        yield _of_service(api, namespace, service, listens=listens)
    except ApiError as error:
        if listens is False and error.is_forbidden:
            return  # the controller's own account may not read Services, and needs none here
        yield Finding("alerts", "unchecked", f"the way of alerts cannot be read: {error}")


def _listens(api: Api, namespace: str) -> bool:
    """Whether the Deployment of the controller has the option; False where there is none."""
    deployment = get_or_none(api, path_of("apps/v1", "deployments", namespace, LEASE_NAME)) or {}
    template: Json = (deployment.get("spec") or {}).get("template") or {}
    containers = (template.get("spec") or {}).get("containers") or ()
    return any(str(arg).startswith(OPTION) for each in containers for arg in each.get("args") or ())


def _of_service(api: Api, namespace: str, service: Json, *, listens: bool) -> Finding:
    """What the Service leads to."""
    name = f"Service {namespace}/{SERVICE}"
    if not listens:
        return Finding("alerts", "failed", f"{name} leads to a controller without {OPTION}", _APPLY)
    path = path_of("discovery.k8s.io/v1", "endpointslices", namespace)
    params = {"labelSelector": f"kubernetes.io/service-name={SERVICE}"}
    slices = list(objects(api, path, params))
    # Kubernetes takes an unknown state for ready.
    ready = [
        slice_
        for slice_ in slices
        for each in slice_.get("endpoints") or ()
        if (each.get("conditions") or {}).get("ready") is not False
    ]
    if not ready:
        remedy = "see whether the controller is ready, and compare the Service's selector with its pods' labels"
        return Finding("alerts", "failed", f"{name} leads to no ready pod: no alert arrives", remedy)
    if not all(any(each.get("port") for each in slice_.get("ports") or ()) for slice_ in ready):
        return Finding(
            "alerts", "failed", f"{name} leads to no port of its pods", "name the pods' port in its targetPort"
        )
    port = next((each.get("port") for each in (service.get("spec") or {}).get("ports") or ()), None)
    url = f"http://{SERVICE}.{namespace}.svc:{port}{PATH}"
    return Finding("alerts", "ok", f"{url} leads to {counted(len(ready), 'ready pod')}")
