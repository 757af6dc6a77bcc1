"""Simulates hyper-parameter sweeps that others have recorded: `python -m replication.sweeps --data FOLDER`.

It writes `replication/sweeps.md`, and leaves the table of real sweeps as it is. FOLDER has a file of trials for each
network (`slopewise/simulator/trials.py` has the format); TaskSet's, of which the page is, are no part of this project:
400 trials of six recurrent networks, from `releaunifreiburg/DPL`, commit de44b740 (Apache-2.0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer

from replication.real_runs import block
from replication.real_sweeps import BEGIN, END
from slopewise.errors import SlopewiseError, UsageError
from slopewise.reports.estimates import estimate
from slopewise.simulator.stopping import reached
from slopewise.simulator.trials import BEST, FAIR, Losses, StudyResult, compare, compare_costs, draw, read_trials
from slopewise.simulator.workers import worker_pool

PAGE = Path(__file__).with_name("sweeps.md")

TRIALS, RUNNING, DRAWS = 32, 8, 24
THREADS = (4, 1)

BAR_FOUND, BAR_ENDED = 0.70, 1.03
"""What was set out to reach: until the best is found, in the mean of each regime, and until all trials have ended."""

FLAT_RATIO, LATE_PART = 0.05, 0.9
"""A trial is flat that never falls by 5 % of its first loss; a network of which nine of ten are flat is late."""

STOPPING = ("ASHA", "median rule")

COST_TIMES = 3.0
"""How much more or less work a trial takes than the middle one, at most."""

Draws = Sequence[Mapping[str, StudyResult]]
"""The results of each draw by label."""


@dataclass(frozen=True, slots=True)
class Network:
    """One file under one number of threads."""

    name: str
    threads: int
    late: bool
    draws: Draws
    costs: Draws
    """The same draws with trials of different costs."""

    def ratios(self, label: str, figure: Callable[[StudyResult], float | None]) -> list[float]:
        """To fair sharing, of the draws that have the figure."""
        pairs = [(figure(each[label]), figure(each[FAIR])) for each in self.draws]
        return [own / fair for own, fair in pairs if own is not None and fair]


def found(result: StudyResult) -> float | None:
    """Seconds until the best trial is found."""
    return result.best_found_seconds


def ended(result: StudyResult) -> float:
    """Seconds until the last trial ends."""
    return result.ended_seconds


def together(networks: Sequence[Network], label: str) -> float:
    """All seconds until the best is found over those of fair sharing, of the draws in which it is."""
    both = [(found(each[label]), found(each[FAIR])) for network in networks for each in network.draws]
    known = [(own, fair) for own, fair in both if own is not None and fair is not None]
    whole = math.fsum(fair for _, fair in known)
    return math.fsum(own for own, _ in known) / whole if whole else math.nan


def is_late(trials: Sequence[Losses]) -> bool:
    """Whether nearly all trials are flat."""
    flat = [reached(each, (1 - FLAT_RATIO) * each[0]) is None for each in trials]
    return fmean(flat) >= LATE_PART


def run(file: Path, threads: int, draws: int, workers: int) -> Network:
    """All draws of one file."""
    trials = read_trials(file)
    drawn = [draw(trials, TRIALS, seed) for seed in range(1, draws + 1)]
    numbers = range(1, draws + 1)
    same = [[each] * draws for each in (RUNNING, threads)]
    with worker_pool(workers) as pool:
        made = (
            pool.map(compare, drawn, *same, numbers),
            pool.map(compare_costs, drawn, *same, numbers, [COST_TIMES] * draws),
        )
        equal, different = ([{each.label: each for each in of_draw} for of_draw in results] for results in made)
    return Network(file.name.partition(".")[0], threads, is_late(trials), equal, different)


HEAD = """\
# Sweeps: recorded trials under `spec.studies: Best`

<!-- Written by `python -m replication.sweeps --data FOLDER`. -->

{trials} of the trials of each network, drawn {draws} times (seeds 1 to {draws}), {running} at a time in the order of
the draw, on one node of 4 cores. A trial takes 1,200 core-seconds and 1,000 steps, all known to the policy. The
losses are recorded ones, of TaskSet's recurrent networks (`releaunifreiburg/DPL`, commit `de44b740`, Apache-2.0):
validation losses at 51 points of a run. **They have no time axis: that all steps cost the same is set here.**
All files try the same hyper-parameters, so networks are no independent samples. Its search space is wide, so that most
trials never learn.

- **Found**: seconds until the best trial of the draw is within 1 % of its final loss, over those under `fair`. First
  all seconds over all of `fair`'s, then the mean of the draws' ratios with its 95 % interval. A best trial that begins
  within 1 % of its end makes a draw's ratio large and says nothing.
- **Ended**: until the last trial ends, over `fair`'s: the mean, and the largest of the draws.
- *Italics* miss the bar: found in {found:.2f} of the time over each regime, in no more than all of it on each network,
  and ended in {ended:.2f} of it. *Late*: nine of ten trials are flat, and the others fall late.
- `best first` is `marginal` with `studies: Best`: real passes, one each 20 s. The oracle serves the best trial first,
  and else the most advanced, with the same floors. ASHA (a third goes on at 1/27, 1/9 and 1/3 of the plan) and the
  median rule stop trials; the figures are of the draws in which they found the best, and count those.
"""

WINS = """
## Where stopping wins

Stopping frees the places of trials that are stopped, and the best trial of the queue begins sooner: no order of
running trials can make up for that while losers are kept alive. *Sooner*: draws in which the rule found the best
before `best first` did. *Lost*: draws in which it stopped the best trial; *worse by* is how much higher the best loss
was that it kept, in the mean of those draws.

| network | threads | ASHA: sooner | lost | worse by | median rule: sooner | lost | worse by |
|---|---|---|---|---|---|---|---|
"""


def page(networks: Sequence[Network]) -> str:
    """The whole page."""
    draws = len(networks[0].draws)
    text = HEAD.format(trials=TRIALS, draws=draws, running=RUNNING, found=BAR_FOUND, ended=BAR_ENDED)
    for threads in sorted({each.threads for each in networks}, reverse=True):
        text += _table([each for each in networks if each.threads == threads], threads)
    text += _costs(networks)
    text += WINS + "".join(
        f"| {each.name} | {each.threads} | {' | '.join(_stops(each, label) for label in STOPPING)} |\n"
        for each in networks
    )
    return text


def _table(networks: Sequence[Network], threads: int) -> str:
    lines = [
        f"\n## A trial can use {_uses(threads)}\n",
        "| network | best first: found | mean of draws | ended | largest | oracle: found | ASHA | median rule |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for late in (True, False):
        regime = [each for each in networks if each.late is late]
        lines += [_row(each.name, [each], 1.0) for each in regime]
        if regime:
            lines.append(_row(f"**{'late' if late else 'early'}**", regime, BAR_FOUND))
    regimes = {"late": True, "early": False}
    missed = [
        name
        for name, late in regimes.items()
        if together([each for each in networks if each.late is late], "oracle") > BAR_FOUND
    ]
    if missed:
        lines += [
            "",
            f"On {' and '.join(missed)} networks the oracle, which stops none, misses the bar too.",
        ]
    return "\n".join(lines) + "\n"


def _costs(networks: Sequence[Network]) -> str:
    lines = [
        "\n## Trials that cost different work\n",
        f"The same draws, where a trial takes from 1/{COST_TIMES:g} to {COST_TIMES:g} times the work (log-uniform).\n",
        "| networks | a trial can use | best first: found | mean of draws | ended | largest |",
        "|---|---|---|---|---|---|",
    ]
    for threads in sorted({each.threads for each in networks}, reverse=True):
        for late in (True, False):
            regime = [
                replace(each, draws=each.costs) for each in networks if (each.threads, each.late) == (threads, late)
            ]
            if regime:
                cells = " | ".join(_cells(regime, BAR_FOUND))
                lines.append(f"| {'late' if late else 'early'} | {_uses(threads)} | {cells} |")
    return "\n".join(lines) + "\n"


def _uses(threads: int) -> str:
    return "one core" if threads == 1 else f"{threads} cores"


def _row(name: str, networks: Sequence[Network], bar: float) -> str:
    cells = [
        *_cells(networks, bar),
        f"{together(networks, 'oracle'):.2f}",
        *(f"{_of_those(together(networks, rule))} ({_count(networks, rule)})" for rule in STOPPING),
    ]
    return f"| {name} | {' | '.join(cells)} |"


def _cells(networks: Sequence[Network], bar: float) -> list[str]:
    """What became of the best and of the whole study where the best is favoured."""
    label = BEST.label
    ratios = [each for network in networks for each in network.ratios(label, found)]
    ends = [each for network in networks for each in network.ratios(label, ended)]
    mean = estimate(ratios)
    interval = "" if mean.low is None else f" [{mean.low:.2f}, {mean.high:.2f}]"
    return [
        _marked(together(networks, label), bar),
        f"{_marked(mean.mean or math.nan, bar)}{interval}",
        _marked(fmean(ends), BAR_ENDED, digits=3),
        _marked(max(ends), BAR_ENDED, digits=3),
    ]


def _of_those(ratio: float) -> str:
    return "none" if math.isnan(ratio) else f"{ratio:.2f}"


def _marked(value: float, bar: float, digits: int = 2) -> str:
    text = f"{value:.{digits}f}"
    return f"*{text}*" if value > bar else text


def _count(networks: Sequence[Network], label: str) -> str:
    """In how many of the draws the best trial was found."""
    seen = [found(each[label]) is not None for network in networks for each in network.draws]
    return f"{sum(seen)} of {len(seen)}"


def _stops(network: Network, label: str) -> str:
    sooner, lost = 0, []
    for each in network.draws:
        at, ours = found(each[label]), found(each[BEST.label])
        if at is None:
            lost.append(each[label].best_loss / each[FAIR].best_loss - 1)
        sooner += at is not None and (ours is None or at < ours)
    worse = f"{100 * fmean(lost):.1f} %" if lost else ""
    return f"{sooner} of {len(network.draws)} | {len(lost)} | {worse}"


def _real(page: Path) -> str:
    """The table of real sweeps that a page has; UsageError where it has no place, before hours of simulation."""
    try:
        return block(page.read_text(encoding="utf-8"), BEGIN, END) if page.exists() else ""
    except ValueError as error:
        raise UsageError(f"--out {page}: {error}; name a new file.") from error


app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def sweeps(
    *,
    data: Annotated[Path, typer.Option(help="The folder of the files.", exists=True, file_okay=False)],
    draws: Annotated[int, typer.Option(min=2, help="Draws of each network.")] = DRAWS,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    out: Annotated[Path, typer.Option(help="Where the page is written.")] = PAGE,
) -> None:
    """Simulate each network of a folder, with trials of four threads and of one."""
    try:
        if not (files := sorted(data.glob("*.csv*"))):
            raise typer.BadParameter(f"{data} has no CSV file of trials")
        real = _real(out)
        networks = [run(file, threads, draws, workers) for threads in THREADS for file in files]
    except SlopewiseError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    out.write_text(f"{page(networks)}\n{BEGIN}{real}{END}", encoding="utf-8")
    typer.echo(f"wrote {out}")


if __name__ == "__main__":
    app()
