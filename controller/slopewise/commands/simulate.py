"""`slopewise simulate`: runs policies over simulated jobs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slopewise.commands.console import announce, err, out, print_json
from slopewise.commands.options import PoliciesFolders, ReportFile, complete_placing_policy, complete_policy
from slopewise.commands.refusals import refuse, refuse_beside
from slopewise.errors import UsageError
from slopewise.signals import orderly_stop

if TYPE_CHECKING:
    from slopewise.simulator.results.sweep_result import SweepResult


class SweepFormat(StrEnum):
    """How the figures of a sweep are printed."""

    table = "table"
    json = "json"
    csv = "csv"


def complete_scenario(incomplete: str) -> list[str]:
    """Shipped scenarios whose names begin with `incomplete`; a shell adds files by itself where there is none."""
    from slopewise.simulator.scenario.scenario import shipped

    return [name for name in shipped() if name.startswith(incomplete)]


def simulate(
    call: typer.Context,
    scenario: Annotated[
        str | None,
        typer.Argument(help="A scenario file, or the name of a shipped one.", autocompletion=complete_scenario),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Instead of the scenario's: a policy or its file; one option each.", autocompletion=complete_policy
        ),
    ] = None,
    placement: Annotated[
        str | None,
        typer.Option(
            help="Each policy that decides CPU runs once more, beside this one, which chooses nodes.",
            autocompletion=complete_placing_policy,
        ),
    ] = None,
    policies_folders: PoliciesFolders = None,
    seeds: Annotated[int | None, typer.Option(help="Seeds 1 to N; the scenario says how many otherwise.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes at the same time; one a core otherwise.")] = None,
    output: Annotated[SweepFormat, typer.Option("--output", "-o", help="How to print the figures.")] = (
        SweepFormat.table
    ),
    report: ReportFile = None,
    trace: Annotated[Path | None, typer.Option(help="Write every event of every run as a line of JSON.")] = None,
    list_shipped: Annotated[bool, typer.Option("--list", help="List the shipped scenarios and exit.")] = False,
) -> None:
    """Run policies over simulated jobs, the same for each policy, and compare them with fair sharing.

    Examples: `slopewise simulate flowcon-10`; `slopewise simulate mine.yaml --policy flowcon --seeds 24 -o json`.
    """
    from slopewise.simulator.scenario.scenario import shipped  # heavy imports only where they are needed

    if list_shipped:
        if scenario is not None:
            refuse(call, (scenario,), "says what to simulate; leave it or --list out")
        refuse_beside(call, "--list", "says how to simulate; leave it or --list out")
        typer.echo("\n".join(shipped()))
        return
    if scenario is None:
        raise UsageError("slopewise simulate: name a scenario file or a shipped scenario (--list prints those).")
    from slopewise.simulator.command import SimulateOptions, run_simulate

    options = SimulateOptions(scenario, policy or [], seeds, workers, report, trace, placement)
    with orderly_stop(lambda _: announce("Already stopping.")):
        result = run_simulate(options, err)
    _print_result(result, output, report)
    if result.stopped is not None:
        announce(f"slopewise: {result.stopped}; {len(result.seeds)} of {len(result.seeds_asked)} seeds are complete.")
        raise typer.Exit(result.stopped.exit_code)


def _print_result(result: SweepResult, output: SweepFormat, report: Path | None) -> None:
    from slopewise.simulator.results.page import write_report
    from slopewise.simulator.results.table import comparison

    if output is SweepFormat.json:
        print_json(result.as_json())
    elif output is SweepFormat.csv:
        typer.echo(result.csv_text(), nl=False)
    else:
        out.print(comparison(result))
    if report is not None:  # after the figures: a disk that has filled up must not cost them
        write_report(result, report)
        announce(f"Report: {report}")
