"""`slopewise run`: the controller of a cluster, or of commands on this machine."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import structlog
import typer

from slopewise.commands.console import JSON_LOGS, announce, err, out, print_json
from slopewise.commands.options import (
    Actuator,
    ActuatorOption,
    JobsFile,
    Kubeconfig,
    KubeContext,
    LeaseNamespace,
    OneNamespace,
    OutputFormat,
    PoliciesFolders,
    PolicyFile,
    PrometheusConfig,
    RecordFolder,
    RecordSize,
    ScrapeInterval,
)
from slopewise.commands.refusals import given, refuse
from slopewise.errors import UsageError
from slopewise.manager.signals import received_signals
from slopewise.signals import orderly_stop

if TYPE_CHECKING:
    from slopewise.adapters.grafana.annotations import GrafanaAccess
    from slopewise.decision_record.recorder import RecordOptions
    from slopewise.local.run import LocalRunOptions
    from slopewise.manager.options import ClusterOptions
    from slopewise.manager.signals import StopSignal

_Value = TypeVar("_Value")

Local = Annotated[bool, typer.Option("--local", help="Manage commands on this machine, not a cluster.")]
LocalPolicy = Annotated[
    str | None, typer.Option(help="With --local: the policy, or its file; instead of --policy-file.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Decide and report, write nothing.")]
Once = Annotated[bool, typer.Option("--once", help="Cluster: one pass of each policy, then exit.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port of /healthz and /metrics; 0: a free one.")]
Host = Annotated[str, typer.Option(help="Cluster: address of that port; the pod's own sets 0.0.0.0.")]
JsonLogs = Annotated[bool, typer.Option(JSON_LOGS, help="Each line on stderr is a JSON object.")]
PrometheusUrl = Annotated[
    str | None,
    typer.Option(
        envvar="PROMETHEUS_URL",
        help="The Prometheus that scrapes the trainers. With --local, where only the option counts and not the "
        "variable, else one is started.",
    ),
]
Again = Annotated[
    bool,
    typer.Option("--again", help="With --local: start every job, also one whose earlier process may still run."),
]
TargetsFile = Annotated[
    Path | None,
    typer.Option(
        help="With --local and --prometheus-url: the file from which that Prometheus reads its targets "
        "(file_sd_configs); else one in ~/.local/state/slopewise/targets."
    ),
]
LeaseSeconds = Annotated[
    float, typer.Option(min=1.5, max=300, help="Cluster: how long a replica that died holds up the others.")
]
GrafanaUrl = Annotated[
    str | None,
    typer.Option(
        envvar="SLOPEWISE_GRAFANA_URL",
        help="Annotate each decision in this Grafana, with the token in the variable GRAFANA_TOKEN. Its dashboards are "
        "put there by `slopewise dashboards push`.",
    ),
]
AlertTokenFile = Annotated[
    Path | None,
    typer.Option(
        help="Cluster: let Alertmanager call /alerts with the token in this file: its alerts freeze and unfreeze.",
    ),
]
ResultFormat = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="With --local: print the result as a table or one JSON object.")
]

NO_PROMETHEUS = (
    "no Prometheus is named; add --prometheus-url http://HOST:9090, or set PROMETHEUS_URL (in a pod, by "
    "the ConfigMap slopewise-settings); or manage this machine with --local --jobs FILE."
)
NO_JOBS = "run --local: there is nothing to run; add --jobs FILE (see the README)."


def run(
    call: typer.Context,
    local: Local = False,
    jobs: JobsFile = None,
    policy_file: PolicyFile = None,
    policy: LocalPolicy = None,
    policies_folders: PoliciesFolders = None,
    dry_run: DryRun = False,
    once: Once = False,
    actuator: Actuator = ActuatorOption.auto,
    port: Port = 8080,
    host: Host = "127.0.0.1",
    json_logs: JsonLogs = False,
    prometheus_url: PrometheusUrl = None,
    prometheus_config: PrometheusConfig = None,
    scrape_interval: ScrapeInterval = 15.0,
    again: Again = False,
    targets_file: TargetsFile = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    lease_namespace: LeaseNamespace = None,
    lease_seconds: LeaseSeconds = 15.0,
    record: RecordFolder = None,
    record_max_mib: RecordSize = 256,
    grafana_url: GrafanaUrl = None,
    alert_token_file: AlertTokenFile = None,
    output: ResultFormat = OutputFormat.table,
) -> None:
    """Run the controller of a cluster; with --local --jobs FILE it starts and manages commands on this machine.

    Examples: `slopewise run --prometheus-url http://prometheus:9090 --dry-run --once`;
    `slopewise run --local --jobs mine.yaml --policy-file policy.yaml`.
    """
    recording, annotated = _recording(call, record, record_max_mib), _annotated(grafana_url)
    if local:
        _refuse_with_local(call)
        from slopewise.local.run import LocalRunOptions

        plain = LocalRunOptions(
            _required(jobs, NO_JOBS), policy_file, dry_run, actuator.value, port, json_logs, policy=policy, again=again
        )
        plain = replace(plain, record=recording, annotated=annotated)
        options = _with_prometheus(call, plain, prometheus_url, prometheus_config, scrape_interval, targets_file)
        _run_here(options, output)
    _refuse_without_local(call, once=once, dry_run=dry_run)
    if alert_token_file is not None and (once or dry_run or namespace is not None):
        refuse(call, ("--alert-token-file",), "is for a controller of the cluster that keeps running and writes")
    url = _required(prometheus_url, NO_PROMETHEUS)
    with received_signals() as stop:
        from slopewise.manager.options import ClusterOptions, Connection  # takes seconds on a busy node

        cluster = ClusterOptions(
            Connection(kubeconfig, context, namespace),
            url,
            policy_file,
            scrape_interval,
            dry_run=dry_run,
            once=once,
            host=host,
            port=port,
            json_logs=json_logs,
            prometheus_config=prometheus_config,
            record=recording,
            annotated=annotated,
            alert_token_file=alert_token_file,
        )
        _run_in_cluster(cluster, lease_seconds, lease_namespace, stop)


def _recording(call: typer.Context, folder: Path | None, max_mebibytes: int) -> RecordOptions | None:
    if folder is None:
        refuse(call, ("--record-max-mib",), "is for a decision record; add --record FOLDER, or leave it out")
        return None
    from slopewise.decision_record.recorder import RecordOptions

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--record {folder}: cannot be written ({error.strerror}); name another folder.") from error
    return RecordOptions(folder, max_mebibytes)


def _annotated(url: str | None) -> GrafanaAccess | None:
    if not url:
        return None
    from slopewise.adapters.grafana.annotations import GrafanaAccess

    token = os.environ.get("GRAFANA_TOKEN", "")
    if not token:
        raise UsageError("--grafana-url needs a token; set GRAFANA_TOKEN to a service account's with the role Editor.")
    return GrafanaAccess(url, token)


def _required(value: _Value | None, message: str) -> _Value:
    if value is None:
        raise UsageError(message)
    return value


def _run_in_cluster(
    options: ClusterOptions, lease_seconds: float, lease_namespace: str | None, stop: StopSignal
) -> NoReturn:
    from slopewise.adapters.kube.leader_election import Terms
    from slopewise.manager.options import lease_namespace_of
    from slopewise.manager.replica import run_cluster

    named = lease_namespace_of(options.connection, lease_namespace)
    leased = replace(options, lease=Terms.within(lease_seconds), lease_namespace=named)
    raise typer.Exit(run_cluster(leased, stop, announce))


def _with_prometheus(
    call: typer.Context,
    options: LocalRunOptions,
    url: str | None,
    config: Path | None,
    scrape_interval: float,
    targets_file: Path | None,
) -> LocalRunOptions:
    """The options with the Prometheus that `--prometheus-url` names; the variable PROMETHEUS_URL does not count."""
    if url is None or "--prometheus-url" not in given(call):
        return options
    from slopewise.adapters.http.config import Endpoint
    from slopewise.local.session import PrometheusInUse

    in_use = PrometheusInUse(Endpoint(url, config), targets_file)
    return replace(options, prometheus=in_use, scrape_interval_seconds=scrape_interval)


def _run_here(options: LocalRunOptions, output: OutputFormat) -> NoReturn:
    """Run the commands of this machine, print the result, and exit."""
    from slopewise.local.result import report_of
    from slopewise.local.run import run_local
    from slopewise.reports.report import terminal

    with orderly_stop(announce):
        outcome = run_local(options, err, announce)
    if output is OutputFormat.json:
        print_json(outcome.result.as_json())
    elif options.json_logs:
        structlog.get_logger("slopewise").info("run ended", **outcome.result.as_json())
    else:
        out.print(terminal(report_of(outcome.result)))
    if outcome.stopped is not None:
        raise outcome.stopped
    raise typer.Exit(1 if outcome.result.failed else 0)


def _refuse_without_local(call: typer.Context, *, once: bool, dry_run: bool) -> None:
    of_machine = ("--jobs", "--actuator", "--again", "--targets-file", "--output", "-o")
    refuse(call, of_machine, "is for this machine; add --local, or leave it out")
    refuse(call, ("--policy",), "is for this machine, on a cluster a TrainingPolicy names it; add --local")
    if once:
        refuse(call, ("--port", "--host"), "is for a controller that keeps running; leave it or --once out")
    if dry_run:
        reason = "is for a controller that writes, which takes the lease; leave it or --dry-run out"
        refuse(call, ("--lease-namespace", "--lease-seconds"), reason)


_OF_CLUSTERS = (
    "--once", "--host", "--kubeconfig", "--context", "--namespace", "--lease-namespace", "--lease-seconds",
    "--alert-token-file",
)  # fmt: skip


def _refuse_with_local(call: typer.Context) -> None:
    refuse(call, _OF_CLUSTERS, "is for a cluster; leave it or --local out")
    if "--prometheus-url" not in given(call):
        reason = "is for a Prometheus of your own; add --prometheus-url, or leave it out"
        refuse(call, ("--prometheus-config", "--scrape-interval", "--targets-file"), reason)
