"""Writes the table of real sweeps in `sweeps.md`, and runs them (`make real-sweeps`, 30 minutes on a quiet machine).

`examples/sweep/digits.yaml` runs under `fair` and with its best favoured, in turn (A B, B A). `N-fair.json` and
`N-best.json` are what `slopewise run --local` printed; `.before` and `.after` beside them have the line `cpu` of
/proc/stat and the Unix time. A round counts by the demo's own rule: what others left of the CPU to the trials differs
by 5 % at most. All that are no trials are others here, also the controller and Prometheus. Runs with the best favoured
also estimate what fair sharing would have taken of each trial, which stands beside what it took.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer

from replication.real_runs import estimate_errors, shown, with_block
from slopewise.demo.report.comparability import OTHER_CPU_RATIO, left_alike
from slopewise.errors import UsageError
from slopewise.reports.estimates import estimate

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("sweeps.md")
RUNS = Path("build/real-sweeps")
BEGIN, END = "<!-- real sweeps: written by `make real-sweeps` -->\n", "<!-- end of real sweeps -->\n"

ROUNDS = 3
SWEEP = ROOT / "examples/sweep"
CHOICES = {"fair": ("--policy", "fair"), "best": ("--policy-file", str(SWEEP / "policy.yaml"))}
ORDER = ("fair", "best", "best", "fair")
"""So that a machine that gets slower or faster favours neither."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """One run: seconds since its start at which each trial ended, its final loss, and the CPU."""

    finished_seconds: dict[str, float]
    losses: dict[str, float]
    cpu_seconds: float
    left_cores: float
    """What others left to the trials, on average."""
    took_seconds: dict[str, float]
    """From the start of each trial."""
    fair_seconds: dict[str, float]
    """What it would have taken under fair sharing, as this run estimates it; of trials of which that is known."""

    @property
    def ended_seconds(self) -> float:
        """When the last trial ended."""
        return max(self.finished_seconds.values())


def read_sweep(printed: Path) -> Sweep:
    """One run from its three files; UsageError where a trial did not finish."""
    jobs = json.loads(printed.read_text(encoding="utf-8"))["jobs"]
    if unfinished := [job["name"] for job in jobs if job["state"] != "finished" or job["loss_last"] is None]:
        raise UsageError(f"{printed}: {unfinished[0]} did not finish with a loss; remove the file, and run it again.")
    (before, began), (after, ended) = (_cpu_times(printed.with_suffix(when)) for when in (".before", ".after"))
    spent, seconds = [late - early for early, late in zip(before, after, strict=True)], ended - began
    idle, whole = (spent[3] + spent[4]) / seconds, math.fsum(spent) / seconds
    cpu_seconds = math.fsum(job["cpu_seconds"] for job in jobs)
    others = whole - idle - cpu_seconds / seconds
    return Sweep(
        {job["name"]: job["finished_seconds"] for job in jobs},
        {job["name"]: job["loss_last"] for job in jobs},
        cpu_seconds,
        whole - others,
        {job["name"]: job["jct_seconds"] for job in jobs},
        {job["name"]: job["fair_seconds"] for job in jobs if job["fair_seconds"] is not None},
    )


def _cpu_times(file: Path) -> tuple[list[float], float]:
    """CPU-seconds by kind, from user to stolen, and the Unix time."""
    cpu, at_seconds = file.read_text(encoding="utf-8").splitlines()
    return [int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in cpu.split()[1:9]], float(at_seconds)


def read_rounds(folder: Path) -> list[tuple[Sweep, Sweep]]:
    """Under fair sharing and with the best favoured, in the order of the runs; UsageError where there is no pair."""
    fair, best = ([read_sweep(file) for file in sorted(folder.glob(f"*-{name}.json"), key=_number)] for name in CHOICES)
    if not (rounds := list(zip(fair, best, strict=False))):
        raise UsageError(f"{folder} has no pair of N-fair.json and N-best.json; run `make real-sweeps`.")
    return rounds


def _number(file: Path) -> int:
    return int(file.name.partition("-")[0])


def table(rounds: Sequence[tuple[Sweep, Sweep]]) -> str:
    """The block of the page."""
    runs = [run for each in rounds for run in each]
    losses = {name: [run.losses[name] for run in runs] for name in runs[0].losses}
    best = min(losses, key=lambda name: fmean(losses[name]))
    spread = max((max(each) - min(each)) / fmean(each) for each in losses.values())
    counted = [pair for pair in rounds if left_alike(*(run.left_cores for run in pair))]
    said = (
        f"The {len(losses)} trials of scikit-learn in `examples/sweep/digits.yaml`, six at a time, {len(rounds)} times "
        f"each way.\n`{best}` is the best; the final losses of a trial differ by {100 * spread:.2g} % at most.\n"
        "*Left*: cores that others, with the controller and Prometheus, left to the trials. Rounds where that differs\n"
        f"by more than {100 * OTHER_CPU_RATIO:.0f} % do not count: {len(rounds) - len(counted)} here."
    )
    figures = "`fair` | best first | ratio"
    heading = f"| round | best done: {figures} | all ended: {figures} | CPU-seconds | left |"
    lines = ["", "## Real trials", "", said, "", heading, f"|{'--:|' * 9}"]
    for number, (fair, first) in enumerate(rounds, start=1):
        done, ended = [run.finished_seconds[best] for run in (fair, first)], [fair.ended_seconds, first.ended_seconds]
        lines.append(
            f"| {number}{'' if (fair, first) in counted else ' (does not count)'} | {_row(done)} | {_row(ended)} | "
            f"{fair.cpu_seconds:.0f}, {first.cpu_seconds:.0f} | {fair.left_cores:.2f}, {first.left_cores:.2f} |"
        )
    of_done = [first.finished_seconds[best] / fair.finished_seconds[best] for fair, first in counted]
    of_ended = [first.ended_seconds / fair.ended_seconds for fair, first in counted]
    done_in, ended_in = shown(estimate(of_done)), shown(estimate(of_ended))
    lines += [
        "",
        f"Means, with 95 % intervals: the best was done in {done_in} of the time of `fair`, all in {ended_in}.",
        *filter(None, [estimate_errors([(first.fair_seconds, fair.took_seconds) for fair, first in counted])]),
    ]
    return "\n".join(lines) + "\n"


def _row(seconds: Sequence[float]) -> str:
    fair, first = seconds
    return f"{fair:.0f} s | {first:.0f} s | {first / fair:.2f}"


def run_rounds(folder: Path, rounds: int) -> None:
    """Run what is missing of the rounds; what is printed stays in `folder`, and counts when it is run again."""
    folder.mkdir(parents=True, exist_ok=True)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # `python` is that of this environment
    for number in range(1, 2 * rounds + 1):
        name = ORDER[(number - 1) % len(ORDER)]
        printed = folder / f"{number}-{name}.json"
        if printed.exists():
            continue
        command = ("run", "--local", "--jobs", str(SWEEP / "digits.yaml"), *CHOICES[name], "--port", "0", "-o", "json")
        typer.echo(f"run {number} of {2 * rounds}, {name}: about five minutes", err=True)
        _note_cpu(printed.with_suffix(".before"))
        done = subprocess.run(
            [sys.executable, "-m", "slopewise", *command],
            stdout=subprocess.PIPE, check=True, text=True, env={**os.environ, "PATH": programs},
        )  # fmt: skip
        _note_cpu(printed.with_suffix(".after"))
        printed.write_text(done.stdout, encoding="utf-8")


def _note_cpu(file: Path) -> None:
    cpu = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0]
    file.write_text(f"{cpu}\n{time.time()}\n", encoding="utf-8")


def main(
    folder: Annotated[Path | None, typer.Argument(help="Of runs that are to count as they are; none is run.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="In all, with earlier ones; one takes ten minutes.")] = ROUNDS,
) -> None:
    """Run the rounds, or take those of a folder, and write the table of the page."""
    if folder is None:
        run_rounds(RUNS, rounds)
    try:
        text = table(read_rounds(folder or RUNS))
    except (OSError, ValueError, UsageError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    PAGE.write_text(with_block(PAGE.read_text(encoding="utf-8"), text, BEGIN, END), encoding="utf-8")
    typer.echo(f"wrote the table of {PAGE.name}", err=True)


if __name__ == "__main__":
    typer.run(main)
