"""What growth is divided by, and the unit of alpha: FlowCon under each choice, on losses that end at 0 and above.

`python -m replication.normalisers` writes docs/normaliser.md (some minutes on two cores, the same every time). Every
choice runs over FlowCon's ten jobs (thesis 6.1.5) through the real pass, and is set against even sharing, seed by seed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

from replication.claims import Pair, jct_mean_seconds, jobs_faster, makespan_seconds, reduction, worst_increase
from replication.figures import time_to_90_seconds
from replication.page import shown
from slopewise.config.training_policy import EvaluationSettings
from slopewise.estimators.growth import MIN_RANGE_RATIO
from slopewise.estimators.level_range import FLOOR_RATIO
from slopewise.reports.estimates import estimate
from slopewise.simulator.engine import run
from slopewise.simulator.scenario.scenario import load_scenario, policy_runs
from slopewise.simulator.workload import draw
from slopewise.simulator.world.model import Instance, RunOutcome

PAGE = Path(__file__).resolve().parent.parent / "docs" / "normaliser.md"
SEEDS = 24
SCENARIO = "flowcon-10"

Ends = Literal["0", "0.5", "mixed", "recorded"]
ENDS: Mapping[Ends, Sequence[float]] = {"0": (0.0,), "0.5": (0.5,), "mixed": (0.0, 0.3, 0.6, 0.9), "recorded": ()}
"""The best loss as a fraction of the first value: of all jobs, or of one job after another. Recorded losses end where
they did."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A way to measure growth and to compare it with alpha."""

    name: str
    normaliser: Literal["range", "first"] = "range"
    min_range_ratio: float = MIN_RANGE_RATIO
    alpha: float = 0.05
    alpha_per: Literal["interval", "minute", "second"] = "minute"
    interval_seconds: float = 20.0


DIVISORS = (
    Choice("range, at least 1 % of the first value (as it was)", min_range_ratio=FLOOR_RATIO),
    Choice("range, at least a tenth of what it could be", min_range_ratio=0.1),
    Choice("range, at least a quarter", min_range_ratio=0.25),
    Choice("range, at least half (taken)"),
    Choice("range, at least three quarters", min_range_ratio=0.75),
    Choice("first value", "first"),
)

UNITS = (
    Choice("5 % an interval, 20 s (as it was)", alpha_per="interval"),
    Choice("5 % an interval, 60 s", alpha_per="interval", interval_seconds=60.0),
    Choice("5 % a minute, 20 s (taken)"),
    Choice("5 % a minute, 60 s", interval_seconds=60.0),
    Choice("5 % a second, 20 s", alpha_per="second"),
    Choice("5 % a second, 60 s", alpha_per="second", interval_seconds=60.0),
)

HEAD = ("mean completion falls", "time to 90 % falls", "makespan falls", "jobs faster of 10", "worst job's time grows")


def figures(pair: Pair) -> tuple[float | None, ...]:
    """The figures of `HEAD`."""
    falls = (jct_mean_seconds, time_to_90_seconds, makespan_seconds)
    return (*(reduction(figure)(pair) for figure in falls), jobs_faster(pair), worst_increase(pair))


def ending(instance: Instance, ends: Sequence[float]) -> Instance:
    """The same jobs with losses that end at these fractions of the first value, in turn; the seed says who begins."""
    jobs = (
        replace(job, loss_best=ends[(place + instance.seed) % len(ends)]) for place, job in enumerate(instance.jobs)
    )
    return replace(instance, jobs=tuple(jobs))


def chosen(instance: Instance, choice: Choice) -> RunOutcome:
    """FlowCon over the instance under a choice."""
    policy = replace(
        policy_runs(load_scenario(SCENARIO), ["fair"])[0],
        label=choice.name,
        name="flowcon",
        parameters={"alpha": choice.alpha, "alphaPer": choice.alpha_per},
        interval_seconds=choice.interval_seconds,
        evaluation=EvaluationSettings(normaliser=choice.normaliser),
    )
    return run(instance, policy, min_range_ratio=choice.min_range_ratio)


def of_seed(choices: Sequence[Choice], ends: Ends, seed: int) -> list[tuple[float | None, ...]]:
    """The figures of each choice for one seed."""
    document = load_scenario(SCENARIO, {"recordedLosses": "train_ema"} if ends == "recorded" else {})
    instance = draw(document, seed)
    instance = ending(instance, ENDS[ends]) if ENDS[ends] else instance
    fair = run(instance, policy_runs(document, ["fair"])[0])
    return [figures(Pair(instance, fair, chosen(instance, choice))) for choice in choices]


def rows(choices: Sequence[Choice], pool: ProcessPoolExecutor, seeds: int = SEEDS) -> Iterator[list[str]]:
    """For each ending and each choice: both, and the mean of every figure with its interval."""
    for ends in ENDS:
        tasks = [pool.submit(of_seed, choices, ends, seed) for seed in range(1, seeds + 1)]
        found = [task.result() for task in tasks]
        for place, choice in enumerate(choices):
            values = zip(*(each[place] for each in found), strict=True)
            means = [estimate([value for value in column if value is not None]) for column in values]
            units = ("%", "%", "%", "jobs", "%")
            yield [ends, choice.name, *(shown(mean, unit, seeds) for mean, unit in zip(means, units, strict=True))]  # type: ignore[arg-type]


def table(first: str, choices: Sequence[Choice], pool: ProcessPoolExecutor) -> str:
    """The rows in Markdown."""
    lines = [["losses end at", first, *HEAD], ["---"] * (len(HEAD) + 2), *rows(choices, pool)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


TEXT = """\
# What growth is divided by

Written by `python -m replication.normalisers`; do not edit. [Growth](glossary.md#growth) is a change of the loss over a
[range](glossary.md#range), so that jobs with losses of different size can be compared. At a job's first change nothing
is known of its range but that change. Divided by itself it is the whole range, whatever the loss does: 2.3 → 0.3 and
2.3 → 2.2 count the same.

Each row is FlowCon over its ten jobs ([`flowcon-10`](../controller/slopewise/simulator/scenarios/flowcon-10.yaml),
shares, scrapes of 5 s) against even sharing, seed by seed: means over {seeds} seeds with 95 % intervals in brackets.
*Falls* is better, a negative figure is a rise. Losses end at 0 or at half of their first value, or, *mixed*, at 0, 0.3,
0.6 and 0.9 of it in turn; *recorded* ones are the moving averages that the models' real trainings reported
([simulator.md](simulator.md#recorded-losses)).

## The divisor

α is 5 % a minute, the interval 20 s. What a loss could improve by is its first value; a metric that rises and begins
between 0 and 1 could rise to 1.

{divisors}

- Where losses end at half of their first value, completion times under the range with half of it as its least are
  better than under the range alone by more than their intervals, and no figure is worse by as much.
- The first value is better still in completion times where losses end at 0, as simulated ones do and eight of the
  thirteen recorded ones nearly do. Where they end at half, or are mixed, it does not differ from half.
- Where endings are mixed, no two rows differ by more than their intervals. On recorded losses all gain about a quarter
  of the time to 90 % at no cost of mean completion, and the first value gains some of that too.
- Half is taken and not the first value because of what the figures above do not hold: a loss that ends at 0.9 of its
  first value counts for a fifth of its range under half and for a tenth under the first value, and a metric that begins
  near 0 has no first value to be divided by (an accuracy of 0.1 → 0.99 would count 8.9).
- Spikes are kept out of the range as before ([spikes.md](spikes.md)): the least is a part of the settled first level.

## The unit of α

With the divisor that is taken:

{units}

- Per interval, α is three times as high a rate at 20 s as at 60 s. Per minute or per second it is the same rate.
- 5 % a second fits the thesis ([replication.md](replication.md)), and costs at most 1 % of completion time where losses
  end at 0, at half or mixed. It gains less than half as much time to 90 % there as 5 % a minute, and suits jobs of
  minutes: a loss that falls as e^(−8x) over an hour falls by 0.2 % a second at its fastest.
"""


def main() -> None:
    """Write the page."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        divisors, units = (table(*each, pool) for each in (("divisor", DIVISORS), ("α, interval", UNITS)))
    PAGE.write_text(TEXT.format(seeds=SEEDS, divisors=divisors, units=units), encoding="utf-8")


if __name__ == "__main__":
    main()
