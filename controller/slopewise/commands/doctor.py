"""`slopewise doctor`: checks what a controller needs, one line a check, with the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slopewise.commands.console import out, print_json
from slopewise.commands.options import (
    Actuator,
    ActuatorOption,
    JobsFile,
    Kubeconfig,
    KubeContext,
    LeaseNamespace,
    OneNamespace,
    Output,
    OutputFormat,
    PrometheusConfig,
    ScrapeInterval,
)
from slopewise.commands.refusals import refuse

if TYPE_CHECKING:
    from slopewise.adapters.http.config import Endpoint
    from slopewise.operate.doctor.findings import Finding

Here = Annotated[bool, typer.Option("--local", help="Check what `run --local` needs on this machine, not a cluster.")]
CheckedPrometheus = Annotated[
    str | None,
    typer.Option("--prometheus", envvar="PROMETHEUS_URL", help="The Prometheus that scrapes the trainers."),
]


def doctor(
    call: typer.Context,
    local: Here = False,
    prometheus: CheckedPrometheus = None,
    prometheus_config: PrometheusConfig = None,
    scrape_interval: ScrapeInterval = 15.0,
    jobs: JobsFile = None,
    actuator: Actuator = ActuatorOption.auto,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    lease_namespace: LeaseNamespace = None,
    output: Output = OutputFormat.table,
) -> None:
    """Check what a controller needs, one line a check, with the remedy. It changes nothing.

    Exit codes: 1: a check failed; 4: the API server or Prometheus does not answer.
    Examples: `slopewise doctor --prometheus http://prometheus:9090`; `slopewise doctor --local --jobs mine.yaml`.
    """
    from slopewise.operate.doctor import findings

    endpoint = _endpoint(call, prometheus, prometheus_config, local=local)
    if local:
        refuse(call, _OF_CLUSTERS, "is for a cluster; leave it or --local out")
        found = _here(jobs, actuator, endpoint, scrape_interval)
    else:
        refuse(call, ("--jobs", "--actuator"), "is for this machine; add --local, or leave it out")
        found = _cluster(kubeconfig, context, namespace, lease_namespace, endpoint, scrape_interval)
    done: list[Finding] = []
    for finding in found:
        done.append(finding)
        if output is OutputFormat.table:
            out.print(findings.line(finding), soft_wrap=True)  # one line, also for a program such as grep
    if output is OutputFormat.json:
        print_json(findings.as_json(done))
    raise typer.Exit(findings.exit_code(done))


_OF_CLUSTERS = ("--kubeconfig", "--context", "--namespace", "--lease-namespace")


def _endpoint(call: typer.Context, url: str | None, config: Path | None, *, local: bool) -> Endpoint | None:
    """As for `run`: for this machine only the option counts, and not the variable PROMETHEUS_URL."""
    from slopewise.adapters.http.config import Endpoint
    from slopewise.commands.refusals import given

    if url is None or (local and "--prometheus" not in given(call)):
        refuse(call, ("--prometheus-config", "--scrape-interval"), "is for a Prometheus; add --prometheus")
        return None
    return Endpoint(url, config)


def _cluster(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    lease_namespace: str | None,
    prometheus: Endpoint | None,
    scrape_interval_seconds: float,
) -> Iterator[Finding]:
    from slopewise.adapters.kube.connection import Connection, lease_namespace_of, lease_namespaces_of
    from slopewise.operate.doctor.cluster import CheckOptions, check_cluster

    connection = Connection(kubeconfig, context, namespace)
    where, leases = lease_namespace_of(connection, lease_namespace), lease_namespaces_of(connection, lease_namespace)
    return check_cluster(CheckOptions(connection, where, leases, prometheus, scrape_interval_seconds))


def _here(
    jobs: Path | None, actuator: ActuatorOption, prometheus: Endpoint | None, scrape_interval_seconds: float
) -> Iterator[Finding]:
    from slopewise.operate.doctor.machine import LocalCheckOptions, check_machine

    return check_machine(LocalCheckOptions(jobs, actuator.value, prometheus, scrape_interval_seconds))
