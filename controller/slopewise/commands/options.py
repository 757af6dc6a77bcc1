"""Options that several commands share, and the refusal of options that do not apply.

A value from an environment variable is not refused: a shell may have it set for something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from slopewise.errors import UsageError

if TYPE_CHECKING:
    from slopewise.advise.scenarios.reading import HistoryOptions

MIN_SINCE_SECONDS, MAX_SINCE_SECONDS = 600.0, 366 * 86_400.0


OutputFormat = Literal["table", "json"]
"""How data is printed."""

RowsFormat = Literal["table", "json", "csv"]
"""How data is printed that is rows of figures."""


def _use_folders(folders: list[Path] | None) -> list[Path] | None:
    if folders:
        from slopewise.own_policies.catalogue import use_folders

        use_folders(folders)
    return folders


Here = Annotated[
    bool, typer.Option("--local", help="The session on this machine (`up`, `run --local`), not a cluster.")
]
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="Print a table or one JSON object.")]
Rows = Annotated[
    RowsFormat, typer.Option("--output", "-o", help="Print a table, one JSON object, or CSV for a notebook.")
]
JobsFile = Annotated[
    Path | None, typer.Option("--jobs", help="YAML list of {name, command, …} (docs/jobs-file.md); -: standard input.")
]
PolicyFile = Annotated[Path | None, typer.Option("--policy-file", help="A TrainingPolicy document.")]
Placement = Annotated[
    str | None,
    typer.Option(help="A second policy, or its file: it chooses nodes, and the other one decides CPU."),
]
PoliciesFolders = Annotated[
    list[Path] | None,
    typer.Option(
        "--policies-dir",
        callback=_use_folders,
        help="A folder with policies of your own, also SLOPEWISE_POLICIES; one option each.",
    ),
]
Actuator = Annotated[
    Literal["auto", "cgroup", "duty-cycle"], typer.Option(help="cgroup quotas and weights, or stop-and-continue.")
]
ReportFile = Annotated[Path | None, typer.Option("--report", help="Write one self-contained HTML file.")]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="How to reach the cluster; else as the pod's account, by KUBECONFIG, or by ~/.kube/config."),
]
KubeContext = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig; else its current one.")]
OneNamespace = Annotated[
    str | None, typer.Option("--namespace", help="Only this namespace of the cluster, with no right beyond it.")
]
LeaseNamespace = Annotated[
    str | None,
    typer.Option(envvar="POD_NAMESPACE", help="Where the controllers' Lease is; else --namespace or slopewise-system."),
]
RecordFolder = Annotated[
    Path | None,
    typer.Option("--record", help="Write a decision record of each policy into this folder (slopewise replay)."),
]
RecordSize = Annotated[
    int, typer.Option("--record-max-mib", min=1, max=1_048_576, help="What one record may take on disk, in MiB.")
]
PrometheusOfHistory = Annotated[
    str | None, typer.Option("--prometheus", envvar="PROMETHEUS_URL", help="The Prometheus that has the history.")
]
PrometheusConfig = Annotated[
    Path | None,
    typer.Option(help="Credentials, TLS, headers and proxy for it: a file with an http_config as Prometheus has it."),
]
ScrapeInterval = Annotated[
    float, typer.Option(min=1, max=300, help="Seconds between two scrapes of the trainers by that Prometheus.")
]
Since = Annotated[str, typer.Option(help="How far back, such as 7d, 36h or 90m.")]
LossObjective = Annotated[Literal["min", "max"], typer.Option("--objective", help="max for an accuracy.")]
LossMetric = Annotated[str, typer.Option("--metric", help="The metric that is a job's loss.")]
Namespaces = Annotated[
    list[str] | None, typer.Option("--namespace", help="Only jobs of this namespace; one option each.")
]
MaxJobs = Annotated[int, typer.Option(min=1, max=1_000_000, help="More jobs than this are refused.")]
QueryTimeout = Annotated[float, typer.Option("--timeout", min=1, max=3600, help="Seconds that one query may take.")]


def history_options(
    command: str,
    url: str | None,
    config: Path | None,
    since: str,
    metric: str,
    objective: Literal["min", "max"],
    namespaces: list[str] | None,
    max_jobs: int,
    timeout_seconds: float,
) -> HistoryOptions:
    """Which history is read; UsageError for what cannot be asked for."""
    from slopewise.adapters.http.config import Endpoint
    from slopewise.advise.scenarios.reading import HistoryOptions
    from slopewise.config.quantities import duration_seconds

    if url is None:
        raise UsageError(
            f"slopewise {command}: no Prometheus is named; add --prometheus http://HOST:9090, or set PROMETHEUS_URL."
        )
    seconds = duration_seconds(since)
    if seconds is None or not MIN_SINCE_SECONDS <= seconds <= MAX_SINCE_SECONDS:
        raise UsageError(f"--since {since!r} is not a time from 10m to 366d; write it like 7d, 36h or 90m.")
    return HistoryOptions(
        Endpoint(url, config), seconds, metric, objective, tuple(namespaces or ()), max_jobs, timeout_seconds
    )


def given(context: typer.Context) -> list[str]:
    """The names of the options on the command line and the values of its arguments, in the command's own order."""
    written = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            is_option = parameter.param_type_name == "option"
            written.append(parameter.opts[0] if is_option else str(context.params[parameter.name or ""]))
    return written


def refuse(context: typer.Context, options: Sequence[str], reason: str) -> None:
    """UsageError about the first of these options that was written; `reason` has no full stop."""
    for option in given(context):
        if option in options:
            raise UsageError(f"{option} {reason}.")


def refuse_clusters(context: typer.Context, other: str) -> None:
    """UsageError about the first option that says which cluster; `other`: the option that stands beside it."""
    options = ("--kubeconfig", "--context", "--namespace", "--lease-namespace")
    refuse(context, options, f"is for a cluster; leave it or {other} out")
