"""`slopewise run`: the controller of a cluster, and with `--local` that of commands on this machine.

These are two commands under one name: `run` hands each of them its own options, and refuses those of the other.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_type_hints

import structlog
import typer

from slopewise.commands.console import JSON_LOGS, announce, err, out, print_json
from slopewise.commands.options import (
    Actuator,
    JobsFile,
    Kubeconfig,
    KubeContext,
    LeaseNamespace,
    OneNamespace,
    PoliciesFolders,
    PolicyFile,
    PrometheusConfig,
    RecordFolder,
    RecordSize,
    RowsFormat,
    ScrapeInterval,
    given,
    refuse,
)
from slopewise.errors import UsageError
from slopewise.signals import orderly_stop, received_signals

if TYPE_CHECKING:
    from slopewise.adapters.grafana.annotations import GrafanaAccess
    from slopewise.decision_record.recorder import RecordOptions

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
ResultFormat = Annotated[RowsFormat, typer.Option("--output", "-o", help="With --local: how to print the result.")]

NO_PROMETHEUS = (
    "no Prometheus is named; add --prometheus-url http://HOST:9090, or set PROMETHEUS_URL (in a pod, by "
    "the ConfigMap slopewise-settings); or manage this machine with --local --jobs FILE."
)
NO_JOBS = "run --local: there is nothing to run; add --jobs FILE (see the README)."


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The options of both commands."""

    policy_file: PolicyFile = None
    policies_folders: PoliciesFolders = None
    dry_run: DryRun = False
    port: Port = 8080
    json_logs: JsonLogs = False
    prometheus_url: PrometheusUrl = None
    prometheus_config: PrometheusConfig = None
    scrape_interval: ScrapeInterval = 15.0
    record: RecordFolder = None
    record_max_mib: RecordSize = 256
    grafana_url: GrafanaUrl = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRun(RunSettings):
    """The options of `run --local`."""

    jobs: JobsFile = None
    policy: LocalPolicy = None
    actuator: Actuator = "auto"
    again: Again = False
    targets_file: TargetsFile = None
    output: ResultFormat = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRun(RunSettings):
    """The options of `run` in a cluster."""

    once: Once = False
    host: Host = "127.0.0.1"
    kubeconfig: Kubeconfig = None
    context: KubeContext = None
    namespace: OneNamespace = None
    lease_namespace: LeaseNamespace = None
    lease_seconds: LeaseSeconds = 15.0
    alert_token_file: AlertTokenFile = None


def run(call: typer.Context, *, local: bool, **written: Any) -> None:
    """Run the controller of a cluster; with --local --jobs FILE it starts and manages commands on this machine.

    Examples: `slopewise run --prometheus-url http://prometheus:9090 --dry-run --once`;
    `slopewise run --local --jobs mine.yaml --policy-file policy.yaml`.
    """
    of_machine, of_cluster = _names(LocalRun), _names(ClusterRun)
    if local:
        refuse(call, _options(call, of_cluster - of_machine), "is for a cluster; leave it or --local out")
        run_here(call, LocalRun(**{name: written[name] for name in of_machine}))
    alone = of_machine - of_cluster - {"policy"}
    refuse(call, _options(call, alone), "is for this machine; add --local, or leave it out")
    refuse(call, ("--policy",), "is for this machine, on a cluster a TrainingPolicy names it; add --local")
    run_in_cluster(call, ClusterRun(**{name: written[name] for name in of_cluster}))


def _names(settings: type[RunSettings]) -> set[str]:
    return {each.name for each in fields(settings)}


def _options(call: typer.Context, names: set[str]) -> list[str]:
    return [each.opts[0] for each in call.command.params if each.name in names]


def _signature() -> inspect.Signature:
    """Of `run`: typer makes its options of it."""
    parameter = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
    made = [parameter("call", annotation=typer.Context), parameter("local", annotation=Local, default=False)]
    hints = get_type_hints(LocalRun, include_extras=True) | get_type_hints(ClusterRun, include_extras=True)
    options = {each.name: each for each in (*fields(LocalRun), *fields(ClusterRun))}
    made += [parameter(name, annotation=hints[name], default=each.default) for name, each in options.items()]
    return inspect.Signature(made)


setattr(run, "__signature__", _signature())  # noqa: B010 - a function's type has no such attribute


def run_in_cluster(call: typer.Context, asked: ClusterRun) -> NoReturn:
    """Run the controller of a cluster until a signal comes or its lease is lost; with `--once` one pass a policy."""
    if asked.alert_token_file is not None and (asked.once or asked.dry_run or asked.namespace is not None):
        refuse(call, ("--alert-token-file",), "is for a controller of the cluster that keeps running and writes")
    recording, annotated = _recording(call, asked), _annotated(asked.grafana_url)
    if asked.prometheus_url is None:
        raise UsageError(NO_PROMETHEUS)
    with received_signals() as stop:
        # These take seconds on a busy node.
        from slopewise.adapters.kube.connection import Connection, lease_namespace_of
        from slopewise.adapters.kube.leader_election import Terms
        from slopewise.manager.replica import run_cluster
        from slopewise.manager.shared import ClusterOptions

        connection = Connection(asked.kubeconfig, asked.context, asked.namespace)
        options = ClusterOptions(
            connection, asked.prometheus_url, asked.policy_file, asked.scrape_interval, asked.dry_run, asked.once,
            asked.host, asked.port, asked.json_logs, lease_namespace_of(connection, asked.lease_namespace),
            lease=Terms.within(asked.lease_seconds), prometheus_config=asked.prometheus_config, record=recording,
            annotated=annotated, alert_token_file=asked.alert_token_file,
        )  # fmt: skip
        raise typer.Exit(run_cluster(options, stop, announce))


def run_here(call: typer.Context, asked: LocalRun) -> NoReturn:
    """Run the commands of a jobs file on this machine to their ends, print the result, and exit."""
    named = "--prometheus-url" in given(call)  # the variable PROMETHEUS_URL does not count
    if not named:
        reason = "is for a Prometheus of your own; add --prometheus-url, or leave it out"
        refuse(call, ("--prometheus-config", "--scrape-interval", "--targets-file"), reason)
    if asked.jobs is None:
        raise UsageError(NO_JOBS)
    recording, annotated = _recording(call, asked), _annotated(asked.grafana_url)
    from slopewise.adapters.http.config import Endpoint
    from slopewise.local.plan import PrometheusInUse
    from slopewise.local.result import report_of
    from slopewise.local.run import LocalRunOptions, run_local
    from slopewise.reports.report import terminal

    options = LocalRunOptions(
        asked.jobs, asked.policy_file, asked.actuator, asked.port, asked.json_logs, asked.dry_run,
        again=asked.again, record=recording, annotated=annotated, policy=asked.policy,
    )  # fmt: skip
    if named and asked.prometheus_url is not None:
        in_use = PrometheusInUse(Endpoint(asked.prometheus_url, asked.prometheus_config), asked.targets_file)
        options = replace(options, prometheus=in_use, scrape_interval_seconds=asked.scrape_interval)
    with orderly_stop(announce):
        result, stopped = run_local(options, err, announce)
    if asked.output == "json":
        print_json(result.as_json())
    elif asked.output == "csv":
        typer.echo(result.csv_text(), nl=False)
    elif asked.json_logs:
        structlog.get_logger("slopewise").info("run ended", **result.as_json())
    else:
        out.print(terminal(report_of(result)))
    if stopped is not None:
        raise stopped
    raise typer.Exit(1 if result.failed else 0)


def _recording(call: typer.Context, asked: RunSettings) -> RecordOptions | None:
    folder = asked.record
    if folder is None:
        refuse(call, ("--record-max-mib",), "is for a decision record; add --record FOLDER, or leave it out")
        return None
    from slopewise.decision_record.recorder import RecordOptions

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--record {folder}: cannot be written ({error.strerror}); name another folder.") from error
    return RecordOptions(folder, asked.record_max_mib)


def _annotated(url: str | None) -> GrafanaAccess | None:
    if not url:
        return None
    from slopewise.adapters.grafana.annotations import GrafanaAccess

    token = os.environ.get("GRAFANA_TOKEN", "")
    if not token:
        raise UsageError("--grafana-url needs a token; set GRAFANA_TOKEN to a service account's with the role Editor.")
    return GrafanaAccess(url, token)
