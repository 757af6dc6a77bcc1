"""`slopewise simulate`: checks the options, runs the sweep, and streams its trace.

Everything that can be wrong is looked at before the first run starts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from slopewise.errors import SlopewiseError, UsageError
from slopewise.extras import require
from slopewise.reports.page import check_writable
from slopewise.reports.wording import plain
from slopewise.simulator.results.sweep_result import SweepResult
from slopewise.simulator.scenario.scenario import load_scenario, policy_runs
from slopewise.simulator.sweep import runs_of, simulate
from slopewise.simulator.world.model import RunOutcome


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """What the command line was given. None: not given."""

    scenario: str
    policies: Sequence[str] = ()
    seeds: int | None = None
    workers: int | None = None
    report: Path | None = None
    trace: Path | None = None
    placement: str | None = None


def run_simulate(options: SimulateOptions, console: Console) -> SweepResult:
    """Check everything, then run every policy over every seed; SlopewiseError in one sentence for what is wrong.

    Cut short by a signal, it returns what is whole, with `stopped` set.
    """
    for option, value in (("--seeds", options.seeds), ("--workers", options.workers)):
        if value is not None and value < 1:
            raise UsageError(f"{option} {value} is too few; give 1 or more.")
    scenario = load_scenario(options.scenario)
    asked = policy_runs(scenario, list(options.policies), options.placement)
    _check_places(options)
    seeds = range(1, (options.seeds or scenario.spec.seeds) + 1)
    runs = runs_of(len(seeds), len(asked))
    with ProgressBar(console, scenario.metadata.name, runs) as bar, _trace_writer(options.trace) as on_run:
        return simulate(
            scenario,
            seeds,
            options.workers or len(os.sched_getaffinity(0)),
            policies=options.policies,
            placement=options.placement,
            keep_runs_of=() if options.report is None else seeds[:1],
            on_run=on_run,
            on_done=bar.done,
        )


def _check_places(options: SimulateOptions) -> None:
    """UsageError for a file that cannot be written, or that would overwrite the scenario or the other file."""
    if options.report is not None:
        require("jinja2", "report", "--report needs jinja2")
    taken = {Path(options.scenario).resolve(): "the scenario"} if Path(options.scenario).is_file() else {}
    for option, path in (("--report", options.report), ("--trace", options.trace)):
        if path is None:
            continue
        check_writable(path, option)
        if path.resolve() in taken:
            raise UsageError(f"{option} {path} is {taken[path.resolve()]} as well; name another file.")
        taken[path.resolve()] = f"the file of {option}"


class ProgressBar:
    """A bar on the terminal, with the time that is left; nothing where no terminal listens."""

    def __init__(self, console: Console, name: str, total: int) -> None:
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
        self._bars = Bars(
            *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
        )
        self._task = self._bars.add_task(plain(name), total=total)

    def done(self) -> None:
        """One more of all."""
        self._bars.advance(self._task)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


@contextmanager
def _trace_writer(path: Path | None) -> Iterator[Callable[[RunOutcome], None] | None]:
    """Writes each run's events as JSON lines when the run is there, so that a sweep's trace is never held whole."""
    if path is None:
        yield None
        return
    try:
        with path.open("w", encoding="utf-8", errors="replace") as file:
            yield lambda run: _write_events(run, file.write)
    except OSError as error:
        raise SlopewiseError(
            f"The trace could not be written to {path} ({error.strerror}); make room or name another place."
        ) from error


def _write_events(run: RunOutcome, write: Callable[[str], object]) -> None:
    """One call, so that Ctrl-C leaves whole lines."""
    which = {"policy": run.policy, "seed": run.seed}
    lines = (json.dumps(which | asdict(event), allow_nan=False, ensure_ascii=False) for event in run.events)
    write("".join(f"{line}\n" for line in lines))
