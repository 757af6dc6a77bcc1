"""`slopewise advise`: what a team's own history in Prometheus says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slopewise.commands.console import announce, err, out, print_json
from slopewise.commands.options import (
    LossMetric,
    LossObjective,
    MaxJobs,
    Namespaces,
    PoliciesFolders,
    PrometheusConfig,
    PrometheusOfHistory,
    QueryTimeout,
    ReportFile,
    RowsFormat,
    Since,
    history_options,
)
from slopewise.signals import orderly_stop

if TYPE_CHECKING:
    from slopewise.advise.advice import Advice


def advise(
    prometheus: PrometheusOfHistory = None,
    since: Since = "7d",
    prometheus_config: PrometheusConfig = None,
    metric: LossMetric = "training_loss",
    objective: LossObjective = "min",
    namespace: Namespaces = None,
    policy: Annotated[list[str] | None, typer.Option(help="A policy to replay, or its file; one option each.")] = None,
    policies_folders: PoliciesFolders = None,
    groups: Annotated[
        int, typer.Option(min=0, max=10_000, help="How many groups of jobs are replayed at most; 0: none.")
    ] = 16,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Replays of each group.")] = 2,
    workers: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Processes at the same time; one a core otherwise.")
    ] = None,
    max_jobs: MaxJobs = 20_000,
    timeout: QueryTimeout = 60.0,
    price_gpu_hour: Annotated[float | None, typer.Option(min=0, help="What a GPU-hour costs, in any currency.")] = None,
    output: Annotated[RowsFormat, typer.Option("--output", "-o", help="How to print it.")] = "table",
    report: ReportFile = None,
    policy_out: Annotated[Path | None, typer.Option(help="Write the proposed TrainingPolicy.")] = None,
) -> None:
    """Report what jobs held without need, and what policies would bring, from the history in Prometheus.

    It changes nothing, and needs read access to Prometheus only.
    Examples: `slopewise advise --prometheus http://prometheus:9090 --since 7d`;
    `slopewise advise --prometheus http://prometheus:9090 --report advice.html -o json`.
    """
    from slopewise.extras import require
    from slopewise.reports.page import check_writable

    require("pandas", "advise", "slopewise advise needs pandas")
    if report is not None:
        require("jinja2", "advise", "--report needs jinja2")
    for option, path in (("--report", report), ("--policy-out", policy_out)):
        if path is not None:
            check_writable(path, option)
    history = history_options(
        "advise", prometheus, prometheus_config, since, metric, objective, namespace, max_jobs, timeout
    )
    from slopewise.advise.command import AdviseOptions, run_advise

    options = AdviseOptions(history, policy or [], groups, seeds, workers, price_gpu_hour)
    with orderly_stop(lambda _: announce("Already stopping.")):
        advice = run_advise(options, err)
    _print_advice(advice, output, report, policy_out)
    if advice.stopped is not None:
        announce(f"slopewise: {advice.stopped}; {len(advice.findings)} of {advice.jobs_known} jobs were read.")
        raise typer.Exit(advice.stopped.exit_code)


def _print_advice(advice: Advice, output: RowsFormat, report: Path | None, policy_out: Path | None) -> None:
    from slopewise.advise.sections import report_of
    from slopewise.reports.page import write_page, write_report
    from slopewise.reports.report import terminal

    if output == "json":
        print_json(advice.as_json())
    elif output == "csv":
        typer.echo(advice.csv_text(), nl=False)
    else:
        out.print(terminal(report_of(advice)))
    if report is not None:
        write_report(report_of(advice), report)
        announce(f"Report: {report}")
    if policy_out is not None:
        write_page(advice.policy_text, policy_out)
        announce(f"TrainingPolicy: {policy_out}")
