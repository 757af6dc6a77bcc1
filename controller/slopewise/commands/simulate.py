"""`slopewise simulate`: runs policies over simulated jobs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slopewise.commands.console import announce, err, out, print_json, print_unpadded
from slopewise.commands.options import (
    LossMetric,
    LossObjective,
    MaxJobs,
    Namespaces,
    PoliciesFolders,
    PrometheusConfig,
    QueryTimeout,
    ReportFile,
    RowsFormat,
    Since,
    given,
    history_options,
    refuse,
)
from slopewise.errors import UsageError
from slopewise.reports.wording import UNKNOWN
from slopewise.signals import orderly_stop

if TYPE_CHECKING:
    from slopewise.simulator.command import SimulateOptions
    from slopewise.simulator.results.sweep_result import SweepResult


def simulate(
    call: typer.Context,
    scenario: Annotated[str | None, typer.Argument(help="A scenario file, or the name of a shipped one.")] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="Instead of the scenario's: a policy or its file; one option each.")
    ] = None,
    placement: Annotated[
        str | None,
        typer.Option(help="Each policy that decides CPU runs once more, beside this one, which chooses nodes."),
    ] = None,
    policies_folders: PoliciesFolders = None,
    seeds: Annotated[int | None, typer.Option(help="Seeds 1 to N; the scenario says how many otherwise.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes at the same time; one a core otherwise.")] = None,
    output: Annotated[RowsFormat, typer.Option("--output", "-o", help="How to print the figures.")] = "table",
    report: ReportFile = None,
    trace: Annotated[Path | None, typer.Option(help="Write every event of every run as a line of JSON.")] = None,
    from_prometheus: Annotated[
        str | None, typer.Option(help="Instead of a scenario: the jobs that this Prometheus has recorded.")
    ] = None,
    since: Since = "7d",
    prometheus_config: PrometheusConfig = None,
    metric: LossMetric = "training_loss",
    objective: LossObjective = "min",
    namespace: Namespaces = None,
    max_jobs: MaxJobs = 20_000,
    timeout: QueryTimeout = 60.0,
    keep: Annotated[Path | None, typer.Option(help="With --from-prometheus: keep the scenario in this folder.")] = None,
    sweep: Annotated[
        Path | None, typer.Option(help="Instead of a scenario: a CSV file (.gz) of recorded trials of a study.")
    ] = None,
    trials: Annotated[int, typer.Option(min=2, help="With --sweep: trials that are drawn.")] = 32,
    running: Annotated[int, typer.Option(min=1, help="With --sweep: trials at once, on a node of 4 cores.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="With --sweep: of the draw.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="With --sweep: cores that a trial can use.")] = 4,
    everything: Annotated[bool, typer.Option("--all", help="Print every figure, and not only six.")] = False,
    list_shipped: Annotated[bool, typer.Option("--list", help="List the shipped scenarios and exit.")] = False,
) -> None:
    """Run policies over simulated jobs, the same for each policy, and compare them with fair sharing.

    Examples: `slopewise simulate flowcon-10`; `slopewise simulate mine.yaml --policy flowcon --seeds 24 -o json`;
    `slopewise simulate --from-prometheus http://prometheus:9090 --since 7d --keep history`;
    `slopewise simulate --sweep trials.csv.gz --trials 32 --running 8 --seed 3`.
    """
    from slopewise.simulator.scenario.scenario import shipped  # heavy imports only where they are needed

    if list_shipped:
        typer.echo("\n".join(shipped()))
        return
    if sweep is not None:
        others = [each for each in given(call) if each not in OF_SWEEP]
        refuse(call, others, "is not about a sweep; leave it or --sweep out")
        with orderly_stop(lambda _: announce("Already stopping.")):
            _print_study(sweep, trials, running, seed, threads, output)
        return
    refuse(call, OF_SWEEP[:5], "is about a sweep; add --sweep FILE, or leave it out")
    from slopewise.simulator.command import SimulateOptions

    options = SimulateOptions(scenario or "", policy or [], seeds, workers, report, trace, placement)
    if from_prometheus is None:
        refuse(call, OF_HISTORY, "is about a history; add --from-prometheus URL, or leave it out")
        if scenario is None:
            raise UsageError("slopewise simulate: name a scenario file or a shipped scenario (--list prints those).")
        with orderly_stop(lambda _: announce("Already stopping.")):
            _run(options, output, everything=everything)
        return
    if scenario is not None:
        refuse(call, (scenario,), "says what to simulate; leave it or --from-prometheus out")
    history = history_options(
        "simulate", from_prometheus, prometheus_config, since, metric, objective, namespace, max_jobs, timeout
    )
    with orderly_stop(lambda _: announce("Already stopping.")), _folder(keep) as folder:
        from slopewise.advise.replay import default_policies
        from slopewise.advise.scenarios.reading import scenario_of_history

        path = scenario_of_history(history, folder, options.policies or default_policies(), err)
        if keep is not None:
            announce(f"Scenario: {path}")
        _run(replace(options, scenario=str(path)), output, everything=everything)


OF_HISTORY = (
    "--since", "--prometheus-config", "--metric", "--objective", "--namespace", "--max-jobs", "--timeout", "--keep",
)  # fmt: skip


OF_SWEEP = ("--sweep", "--trials", "--running", "--seed", "--threads", "--output", "-o")


def _print_study(file: Path, trials: int, running: int, seed: int, threads: int, output: RowsFormat) -> None:
    """The study under fair sharing, with the best favoured, and under rules that stop trials."""
    from slopewise.reports.columns import csv_text, listing_of
    from slopewise.simulator.trials import compare, draw, read_trials

    results = compare(draw(read_trials(file), trials, seed), running, threads, seed)
    rows = [each.compared(results[0]) for each in results]
    if output == "json":
        print_json({"file": str(file), "trials": trials, "running": running, "seed": seed, "policies": rows})
    elif output == "csv":
        typer.echo(csv_text(rows, list(rows[0])), nl=False)
    else:
        cells = ([_cell(value) for value in row.values()] for row in rows)
        print_unpadded(listing_of([name.replace("_", " ").upper() for name in rows[0]], cells))


def _cell(value: str | float | None) -> str:
    if value is None:
        return UNKNOWN
    return value if isinstance(value, str) else f"{value:.4g}"


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """The folder of a scenario that is made: the user's, or one that is removed afterwards."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="slopewise-history-") as folder:
            yield Path(folder)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--keep {keep} cannot be made ({error.strerror}); name another folder.") from error
    if any(keep.iterdir()):
        raise UsageError(f"--keep {keep} is not empty; name a new folder.")
    yield keep


def _run(options: SimulateOptions, output: RowsFormat, *, everything: bool) -> None:
    from slopewise.simulator.command import run_simulate

    result = run_simulate(options, err)
    _print_result(result, output, options.report, everything=everything)
    if result.stopped is not None:
        announce(f"slopewise: {result.stopped}; {len(result.seeds)} of {len(result.seeds_asked)} seeds are complete.")
        raise typer.Exit(result.stopped.exit_code)


def _print_result(result: SweepResult, output: RowsFormat, report: Path | None, *, everything: bool) -> None:
    from slopewise.reports.page import write_report
    from slopewise.reports.report import terminal
    from slopewise.simulator.results.sections import report_of

    if output == "json":
        print_json(result.as_json())
    elif output == "csv":
        typer.echo(result.csv_text(), nl=False)
    else:
        out.print(terminal(report_of(result, everything=everything)))
    if report is not None:  # after the figures: a disk that has filled up must not cost them
        write_report(report_of(result), report)
        announce(f"Report: {report}")
