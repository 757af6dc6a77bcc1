"""`slopewise demo`: runs real trainings or served models on this machine under several policies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from slopewise.commands.console import announce, err, out, print_json
from slopewise.commands.options import (
    Actuator,
    JobsFile,
    Output,
    OutputFormat,
    Placement,
    PoliciesFolders,
    PolicyFile,
    ReportFile,
    refuse,
)
from slopewise.signals import orderly_stop

if TYPE_CHECKING:
    from slopewise.demo.report.results import DemoResult


Policy = Annotated[
    str | None,
    typer.Option(
        help="The policy to compare with fair sharing: `slopewise policies`, or ./mine.py; else flowcon and marginal."
    ),
]
Compare = Annotated[list[str] | None, typer.Option(help="Further policies, one option each.")]
Workload = Annotated[
    Literal["trainings", "served", "deadlines", "targets", "uneven", "threads"] | None,
    typer.Option(help="Which built-in jobs; else those that fit the first policy."),
]
Nodes = Annotated[
    int | None, typer.Option(min=1, help="Split this machine's cores into so many nodes; policies that place: 2.")
]
Control = Annotated[Literal["limits", "requests"] | None, typer.Option(help="limits are hard, requests are shares.")]
Interval = Annotated[float | None, typer.Option(min=4, max=3600, help="Seconds between two passes.")]
Scale = Annotated[float, typer.Option(min=0.01, max=10, help="Length of the built-in jobs.")]
Repeat = Annotated[int, typer.Option(min=1, max=100, help="Rounds, in alternating order; figures then have intervals.")]


def demo(
    call: typer.Context,
    policy: Policy = None,
    placement: Placement = None,
    compare: Compare = None,
    jobs: JobsFile = None,
    workload: Workload = None,
    nodes: Nodes = None,
    policy_file: PolicyFile = None,
    policies_folders: PoliciesFolders = None,
    control: Control = None,
    interval: Interval = None,
    scale: Scale = 1.0,
    repeat: Repeat = 1,
    actuator: Actuator = "auto",
    report: ReportFile = None,
    output: Output = "table",
) -> None:
    """Run real trainings or served models on this machine, first unmanaged, then under a policy, and compare.

    Examples: `slopewise demo --report demo.html`; `slopewise demo --policy dqoes`; `slopewise demo --jobs mine.yaml`.
    """
    if jobs is not None:
        refuse(call, ("--scale",), "is for the built-in jobs; leave it or --jobs out")
    if policy_file is not None:
        refuse(call, ("--compare",), f"and --policy-file contradict each other; write it into {policy_file}")
    from slopewise.demo.command import DemoOptions, run_demo  # heavy imports only where they are needed

    options = DemoOptions(
        policies=[*([] if policy is None else [policy]), *(compare or [])],
        jobs_file=jobs,
        policy_file=policy_file,
        control=control,
        interval_seconds=interval,
        scale=scale,
        actuator=actuator,
        report=report,
        nodes=nodes,
        workload=workload,
        repeat=repeat,
        placement=placement,
    )
    with orderly_stop(announce):
        result = run_demo(options, err, announce)
    _print_result(result, output, report)
    if result.stopped is not None:
        announce(f"slopewise: {result.stopped}; {len(result.rounds)} of {repeat} rounds are complete.")
        raise typer.Exit(result.stopped.exit_code)
    if any(job.state == "failed" for of_round in result.rounds for run in of_round for job in run.jobs):
        raise typer.Exit(1)


def _print_result(result: DemoResult, output: OutputFormat, report: Path | None) -> None:
    from slopewise.demo.report.comparison import as_json
    from slopewise.demo.report.sections import report_of
    from slopewise.reports.page import write_report
    from slopewise.reports.report import terminal

    if output == "json":
        print_json(as_json(result))
    else:
        out.print(terminal(report_of(result)))
    if report is not None:  # after the figures: a disk that has filled up must not cost them
        write_report(report_of(result), report)
        announce(f"Report: {report}")
