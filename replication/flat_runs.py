"""Checks when `advise` calls a loss flat, on recorded runs: `python -m replication.flat_runs --data FOLDER`.

FOLDER has runs of `mlcommons/submissions_algorithms` (Apache-2.0): a row each in `runs.csv`, a row an evaluation in
`curves.csv.gz`. They are not part of this project, and `replication/flat-runs.md` says how to make them. The command
prints that page and writes it. A run that reached its authors' target was still learning until then: a call
before is a false one. Nothing there runs on after its target, so flat losses are made here.

Half of the runs, by the last digit of SHA-256 of their id, were for choosing the rule's bounds; the others check it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

import numpy as np
import pandas as pd
import typer

from slopewise.adapters.prometheus.history import Points
from slopewise.advise.flatness import MIN_POINTS, flatness, trend

PAGE = Path(__file__).resolve().parent / "flat-runs.md"

MEASURES = {
    "training loss": ("train_loss", None),
    "validation loss": ("valid_loss", "train_loss"),
    "validation loss alone": ("valid_loss", None),
    "validation metric": ("value", None),
}
"""What is judged, and what is reported beside it: their columns."""

MOMENTS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Of the time to the target, at which somebody may ask for advice while the run goes on."""

FORMER_RATIO, FORMER_TAIL = 0.99, 0.1
"""The rule before: 99 % of all the improvement was behind it, for a tenth of its time or more."""

SEEDS = range(50)

FLAT: Mapping[str, Callable[[Points], Points]] = {
    "a line for a half, then flat": lambda x: 0.3 + 2 * np.maximum(1 - 2 * x, 0),
    "exponential, 99 % at 46 %": lambda x: 0.3 + 2 * np.exp(-10 * x),
    "exponential, 99 % at 23 %": lambda x: 0.3 + 2 * np.exp(-20 * x),
    "exponential, 99 % at 5 %": lambda x: 0.3 + 2 * np.exp(-100 * x),
}
LEARNING: Mapping[str, Callable[[Points], Points]] = {
    "power law, exponent 0.2": lambda x: (1 + 100 * x) ** -0.2,
    "power law, exponent 0.5": lambda x: (1 + 100 * x) ** -0.5,
    "power law above 1, exponent 1": lambda x: 1 + (1 + 100 * x) ** -1.0,
    "flat, then a drop at 90 %": lambda x: 0.3 + 2 * np.exp(-20 * x) - 0.1 * (x > 0.9),
    "flat, then a drop at 95 %": lambda x: 0.3 + 2 * np.exp(-20 * x) - 0.1 * (x > 0.95),
}
SAMPLES = ((30, 0.0), (30, 0.0025), (200, 0.0025), (500, 0.01))
"""How many points, and the standard deviation of their noise as a part of the first loss's fall."""

HEAD = """\
# When a loss is flat, on recorded runs

<!-- Written by `python -m replication.flat_runs --data FOLDER`. -->

`slopewise advise` says that a job was flat ([the rule](../docs/advise.md#what-it-finds)). A run of a training that was
stopped when it reached its authors' target was still learning until then: a call before that is a false one.

The runs are those of the AlgoPerf competition, `mlcommons/submissions_algorithms` at `12c8e4ea`, Apache-2.0:
`previous_leaderboards/algoperf_v0{5,6}/logs/**/measurements.csv`, with targets of `scoring/workload_targets*.json`.
They are not committed. FOLDER has two tables of them: `runs.csv` with the columns `run`, `better` (up, down),
`reached` (0, 1), `reached_seconds` and `step_hint` (the length that the competition gives for the workload), and
`curves.csv.gz` with `run`, `seconds` (of training), `step`, `train_loss`, `valid_loss` and `value` (the metric).
Half of the runs, by their id, were for choosing the bounds of the rule; the others check it. A run that is said
never to have improved counts as called flat. *Validation loss* is that of a job that reports its training loss too;
*alone*, of one that does not.
"""


WHY = """\
A validation loss may be flat while the metric that the target is about still rises. No bound on that loss separates
such a run from one that learns nothing more: while the training loss beside it falls, `advise` says that it is not
known. A job that only overfits is not counted as flat either; that is the price.
"""


def in_first_half(name: str) -> bool:
    """Whether the last digit of the SHA-256 of a name is even."""
    return int(hashlib.sha256(name.encode()).hexdigest()[-1], 16) % 2 == 0


class Series(NamedTuple):
    """Seconds and a falling loss, the part of the workload's own length at each, and the training loss beside it."""

    losses: Points
    done: Sequence[float]
    training: Points | None

    def until(self, part: float) -> Series:
        """The beginning, as far as this part of the time."""
        begin, end = self.losses[[0, -1], 0]
        at = begin + part * (end - begin)
        losses = self.losses[self.losses[:, 0] <= at]
        training = None if self.training is None else self.training[self.training[:, 0] <= at]
        return Series(losses, self.done[: len(losses)], training)


@dataclass(frozen=True)
class Run:
    """A recorded run up to its target, or to its end."""

    name: str
    reached: bool
    step_hint: float
    curve: pd.DataFrame
    better: str

    @property
    def is_for_bounds(self) -> bool:
        """Whether the bounds were chosen on it."""
        return in_first_half(self.name)

    def series(self, measure: str) -> Series:
        """What a job reports that is judged by this measure."""
        column, beside = MEASURES[measure]
        rows = self.curve[["seconds", column, "step"]].dropna()
        losses = rows[["seconds", column]].to_numpy(float)
        if column == "value" and self.better == "up":
            losses[:, 1] = (1.0 if losses[:, 1].max(initial=0.0) <= 1 else losses[:, 1].max()) - losses[:, 1]
        training = None if beside is None else self.curve[["seconds", beside]].dropna().to_numpy(float)
        return Series(losses, list(rows["step"] / self.step_hint), training)


def read_runs(folder: Path) -> list[Run]:
    """The runs of FOLDER; FileNotFoundError or KeyError for what is not there."""
    curves = dict(list(pd.read_csv(folder / "curves.csv.gz", dtype={"run": str}).groupby("run")))
    found = []
    for row in pd.read_csv(folder / "runs.csv", dtype={"run": str}).to_dict("records"):
        curve, reached = curves[row["run"]], bool(row["reached"])
        until = row["reached_seconds"] if reached else np.inf
        upto = curve[curve["seconds"] <= until]
        found.append(Run(row["run"], reached, float(row["step_hint"]), upto, str(row["better"])))
    return found


def flat_at(series: Series, plan_done: float | None) -> float | None:
    """From which part of its time on it is called flat, or never improving; None: it is not."""
    losses = series.losses
    found = flatness(losses, plan_done, series.training)
    if found is None or not (found.is_flat or found.state == "stalled"):
        return None
    return float((found.since - losses[0, 0]) / (losses[-1, 0] - losses[0, 0]))


def formerly(series: Series) -> float | None:
    """The same by the former rule."""
    losses = series.losses
    found = trend(losses)
    enough = found.best + (1 - FORMER_RATIO) * (found.first - found.best)
    at = next((level.begin for level in found.levels if level.mean <= enough), losses[-1, 0])
    part = float((at - losses[0, 0]) / (losses[-1, 0] - losses[0, 0]))
    return part if part <= 1 - FORMER_TAIL else None


@dataclass(frozen=True, slots=True)
class Calls:
    """How many of some runs were called flat, and from which part of their time on."""

    of: int
    at: tuple[float, ...]

    def __str__(self) -> str:
        if not self.of:
            return "no run"
        from scipy.stats import binomtest  # noqa: PLC0415 - half a second for every worker that collects tests

        low, high = binomtest(len(self.at), self.of).proportion_ci(method="exact")
        when = f", from {median(self.at):.0%} of its time on in the median" if self.at else ""
        return f"{len(self.at)} of {self.of} ({len(self.at) / self.of:.1%}, {low:.1%} to {high:.1%}){when}"


def calls(runs: Sequence[Run], measure: str, rule: Callable[[Series], float | None]) -> Calls:
    """Of the runs with enough points."""
    found = [rule(each) for each in (run.series(measure) for run in runs) if len(each.losses) >= MIN_POINTS]
    return Calls(len(found), tuple(at for at in found if at is not None))


def at_the_end(series: Series) -> float | None:
    """Without a plan."""
    return flat_at(series, None)


def within_the_plan(series: Series) -> float | None:
    """With the workload's own length as the plan."""
    return flat_at(series, series.done[-1])


def at_any_moment(series: Series) -> float | None:
    """As somebody who asks during the run sees it."""
    found = (flat_at(series.until(part), None) for part in (*MOMENTS, 1.0))
    return next((at for at in found if at is not None), None)


def found_ratio(curve: Callable[[Points], Points], points: int, noise: float) -> float:
    """How often a made-up curve with noise is called flat or never improving."""
    x = np.linspace(0.0, 1.0, points)
    clean = curve(x)
    spread = noise * (clean[0] - clean.min())
    hits = sum(
        at_the_end(Series(np.column_stack((x, clean + spread * noise_of.standard_normal(points))), [], None))
        is not None
        for noise_of in map(np.random.default_rng, SEEDS)
    )
    return hits / len(SEEDS)


def page(runs: Sequence[Run]) -> str:
    """The page, as Markdown."""
    return "\n".join([HEAD, *_of_runs(runs), *_of_curves()])


def _of_runs(runs: Sequence[Run]) -> Iterator[str]:
    reached = [each for each in runs if each.reached]
    yield "## Before the target\n"
    yield "Runs that reached their target, with 20 or more evaluations by then; 95 % intervals (Clopper, Pearson).\n"
    yield "| measure | runs | called flat | with a plan | asked at every tenth from 20 % on | by the former rule |"
    yield "|---|---|---|---|---|---|"
    for measure in MEASURES:
        for what, is_for_bounds in (("for the bounds", True), ("check", False)):
            some = [each for each in reached if each.is_for_bounds is is_for_bounds]
            cells = [calls(some, measure, rule) for rule in (at_the_end, within_the_plan, at_any_moment, formerly)]
            yield f"| {measure} | {what} | {' | '.join(map(str, cells))} |"
    yield f"\n{WHY}"
    yield "## Runs that did not reach it\n"
    yield "They ran to their budget or were stopped; whether they would have gone on learning is not known.\n"
    missed = [each for each in runs if not each.reached]
    for measure in MEASURES:
        yield f"- {measure}: {calls(missed, measure, at_the_end)} called flat or never improving."


def _of_curves() -> Iterator[str]:
    heads = " | ".join(f"{points} points, noise {noise:.2%}" for points, noise in SAMPLES)
    yield "\n## Made-up curves\n"
    yield f"How many of {len(SEEDS)} are called flat. Noise is of the whole fall; what is not found is `unclear`.\n"
    for title, curves in (("flat for their last half", FLAT), ("still learning", LEARNING)):
        yield f"| {title} | {heads} |\n|---|{'---|' * len(SAMPLES)}"
        for name, curve in curves.items():
            cells = (f"{found_ratio(curve, points, noise):.0%}" for points, noise in SAMPLES)
            yield f"| {name} | {' | '.join(cells)} |"
        yield ""


def main(
    data: Annotated[Path, typer.Option(help="Folder of runs.csv and curves.csv.gz.")],
    out: Annotated[Path, typer.Option(help="The page that is written.")] = PAGE,
) -> None:
    """Print how often learning runs are called flat, and how many flat ones are found; write the page."""
    try:
        runs = read_runs(data)
    except (OSError, KeyError, ValueError) as error:
        typer.echo(
            f"--data {data}: the tables of runs cannot be read ({error}); see the head of {PAGE.name}.", err=True
        )
        raise typer.Exit(2) from None
    text = page(runs)
    out.write_text(text, encoding="utf-8")
    typer.echo(text)


if __name__ == "__main__":
    typer.run(main)
