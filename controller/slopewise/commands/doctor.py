"""`slopewise doctor`: checks what a controller needs, one line a check, with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slopewise.commands.console import out, print_json
from slopewise.commands.options import (
    Actuator,
    JobsFile,
    Kubeconfig,
    KubeContext,
    LeaseNamespace,
    OneNamespace,
    Output,
    PrometheusConfig,
    ScrapeInterval,
    given,
    refuse,
    refuse_clusters,
)

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
    actuator: Actuator = "auto",
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    lease_namespace: LeaseNamespace = None,
    output: Output = "table",
) -> None:
    """Check what a controller needs, one line a check, with the remedy. It changes nothing.

    Exit codes: 1: a check failed; 4: the API server or Prometheus does not answer.
    Examples: `slopewise doctor --prometheus http://prometheus:9090`; `slopewise doctor --local --jobs mine.yaml`.
    """
    from slopewise.operate.doctor import findings

    endpoint = _endpoint(call, prometheus, prometheus_config, local=local)
    if local:
        refuse_clusters(call, "--local")
        from slopewise.operate.doctor.machine import check_machine

        found = check_machine(jobs, actuator, endpoint, scrape_interval)
    else:
        refuse(call, ("--jobs", "--actuator"), "is for this machine; add --local, or leave it out")
        from slopewise.adapters.kube.connection import Connection, lease_namespace_of, lease_namespaces_of
        from slopewise.operate.doctor.cluster import CheckOptions, check_cluster

        connection = Connection(kubeconfig, context, namespace)
        where = lease_namespace_of(connection, lease_namespace)
        leases = lease_namespaces_of(connection, lease_namespace)
        found = check_cluster(CheckOptions(connection, where, leases, endpoint, scrape_interval))
    done: list[Finding] = []
    for finding in found:
        done.append(finding)
        if output == "table":
            out.print(findings.line(finding), soft_wrap=True)  # one line, also for a program such as grep
    if output == "json":
        print_json(findings.as_json(done))
    raise typer.Exit(findings.exit_code(done))


def _endpoint(call: typer.Context, url: str | None, config: Path | None, *, local: bool) -> Endpoint | None:
    """As for `run`: for this machine only the option counts, and not the variable PROMETHEUS_URL."""
    from slopewise.adapters.http.config import Endpoint

    if url is None or (local and "--prometheus" not in given(call)):
        refuse(call, ("--prometheus-config", "--scrape-interval"), "is for a Prometheus; add --prometheus")
        return None
    return Endpoint(url, config)
