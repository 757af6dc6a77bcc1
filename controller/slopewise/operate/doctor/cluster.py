"""Runs the checks of a cluster in order; each finding comes as soon as it is known."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.kube.cache.records import PodRecord
from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.connection import Connection, connect
from slopewise.adapters.kube.state.training_policies import PolicyRecord
from slopewise.config.training_policy import TrainingPolicySpec
from slopewise.operate.doctor.alerts import check_alerts
from slopewise.operate.doctor.findings import Finding
from slopewise.operate.doctor.jobs import Sought, check_jobs, check_threads, read_pods
from slopewise.operate.doctor.prometheus import check_labels, check_prometheus
from slopewise.operate.doctor.rights import check_rights
from slopewise.operate.doctor.server import check_leader, check_nodes, check_server, moves_wanted, read_policies

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
        yield from check_nodes(api, time.time())


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
