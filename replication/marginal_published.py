"""`marginal` beside each paper's policy on that paper's own measures, over the same drawn jobs, in the same simulator.

The settings are those of replication/papers.md, as each paper's policy runs there; only the policy is another one. It
runs with the plans of the scenarios (planned steps), and once more without. Of the papers' policies only `deadline` and
`procon` use plans.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from replication.claims import (
    Candidate,
    Pair,
    best_reduction,
    deadlines_met,
    jct_mean_seconds,
    jct_seconds,
    jobs_faster,
    losers_mean_increase_seconds,
    makespan_seconds,
    more,
    of_ours,
    overlap_seconds,
    qoe_satisfied,
    reduction,
    worst_increase,
)
from replication.figures import (
    best_target_reduction,
    cpu_jitter_percent,
    growth_efficiency_sum,
    time_to_deliverable_seconds,
    time_to_target_seconds,
)
from replication.marginal_runs import KEPT
from replication.marginal_settings import MARGINAL, NO_PLAN
from replication.run import Runs
from replication.settings_clusters import DS
from slopewise.reports.estimates import Estimate, estimate

NAME = "published"

_DIGITS = 3

SEEDS = 24


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a paper: in per cent, seconds or jobs, taken from the baseline's run and the policy's."""

    what: str
    value: Callable[[Pair], float | None]
    more_is_better: bool = True


COMPLETION = Measure("mean completion falls, %", reduction(jct_mean_seconds))
MAKESPAN = Measure("makespan falls, %", reduction(makespan_seconds))
FASTER = Measure("jobs faster", jobs_faster)
BEST = Measure("best job's time falls, %", best_reduction)
WORST = Measure("worst job's time grows, %", worst_increase, more_is_better=False)
LOSERS = Measure("losers end later by, s", losers_mean_increase_seconds, more_is_better=False)
JITTER = Measure("jitter of a job's CPU falls, %", reduction(cpu_jitter_percent))
EFFICIENCY = Measure("sum of growth efficiencies grows, %", more(growth_efficiency_sum))
OVERLAP_2 = Measure("two jobs or more overlap for less, %", reduction(lambda run: overlap_seconds(run, 2)))
OVERLAP_3 = Measure("three jobs overlap for less, %", reduction(lambda run: overlap_seconds(run, 3)))
MNIST_TF = Measure("MNIST-TF's time falls, %", reduction(lambda run: jct_seconds(run, "mnist-tf")))
IMBALANCE = Measure("load imbalance falls, %", reduction(lambda run: run.load_imbalance_ratio))
SATISFIED = Measure("objectives met", of_ours(qoe_satisfied))
MET = Measure("deadlines met", of_ours(deadlines_met))
TARGET = Measure("mean time to the target falls, %", reduction(time_to_target_seconds))
DELIVERABLE = Measure("mean time to the deliverable level falls, %", reduction(time_to_deliverable_seconds))
BEST_TARGET = Measure("best job's time to its target falls, %", best_target_reduction)


FAIR = Candidate("fair")


@dataclass(frozen=True, slots=True)
class Published:
    """One setting of a paper, its policy as it ran it, and what it measured."""

    title: str
    scenario: str
    theirs: Candidate
    measures: tuple[Measure, ...]
    baseline: Candidate = FAIR


def _flowcon(alpha: float, interval_seconds: float = 20.0) -> Candidate:
    return Candidate("flowcon", {"alpha": alpha}, interval_seconds)


_SPECON = Candidate("specon", {"alpha": 0.01}, 30.0)
_FLOWCON2 = Candidate("flowcon2", {"alpha": 0.05}, 20.0)
_OF_SPECON = (COMPLETION, MAKESPAN, FASTER, LOSERS)
_OF_FLOWCON2 = (MAKESPAN, FASTER, BEST)
_OF_PLACEMENT = (COMPLETION, MAKESPAN)

SETTINGS: tuple[Published, ...] = (
    Published("FlowCon, fixed run", "flowcon-fixed", _flowcon(0.05), (MAKESPAN, MNIST_TF, OVERLAP_2, OVERLAP_3)),
    Published("FlowCon, 5 jobs", "flowcon-5", _flowcon(0.03, 30.0), (MAKESPAN, FASTER, BEST, WORST)),
    Published("FlowCon, 10 jobs", "flowcon-10", _flowcon(0.1), (MAKESPAN, FASTER, BEST, WORST, JITTER, EFFICIENCY)),
    Published("FlowCon, 15 jobs", "flowcon-15", _flowcon(0.1), (MAKESPAN, FASTER, BEST, WORST)),
    Published("SpeCon, 20 VAE, one every 50 s", "specon-20-vae", _SPECON, _OF_SPECON),
    Published("SpeCon, 20 VAE at random times", "specon-20-vae-random", _SPECON, (COMPLETION,)),
    Published("SpeCon, 20 mixed jobs", "specon-20-mixed", _SPECON, _OF_SPECON),
    Published("SpeCon, 30 mixed jobs", "specon-30-mixed", _SPECON, (*_OF_SPECON, IMBALANCE)),
    Published("SpeCon, 50 mixed jobs", "specon-50-mixed", _SPECON, _OF_SPECON),
    Published("FlowCon 2.0, 20 jobs", "flowcon2-20", _FLOWCON2, _OF_FLOWCON2, DS),
    Published("FlowCon 2.0, 60 jobs, unlike workers", "flowcon2-60", _FLOWCON2, _OF_FLOWCON2, DS),
    Published("FlowCon 2.0, 60 jobs, equal workers", "flowcon2-60-homogeneous", _FLOWCON2, _OF_FLOWCON2, DS),
    Published("DQoES, CPU scarce", "qoe-scarce", Candidate("dqoes"), (SATISFIED,)),
    Published("DQoES, CPU ample", "qoe-ample", Candidate("dqoes"), (SATISFIED,)),
    Published("Deadlines, CPU scarce", "deadline-scarce", Candidate("deadline"), (MET,)),
    Published("Deadlines, CPU ample", "deadline-ample", Candidate("deadline"), (MET,)),
    Published("TRADL", "tradl", Candidate("tradl"), (TARGET, DELIVERABLE, BEST_TARGET)),
    Published("DRAPS", "draps", Candidate("draps"), _OF_PLACEMENT),
    Published("DRAPS, five unlike nodes", "heterogeneous", Candidate("draps"), _OF_PLACEMENT),
    Published("ProCon", "procon", Candidate("procon"), (*_OF_PLACEMENT, BEST)),
)

Values = list[tuple[float | None, float | None, float | None]]
"""Of each measure: the paper's policy, `marginal`, and `marginal` without plans."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measure over all seeds."""

    setting: str
    measure: str
    more_is_better: bool
    theirs: Sequence[float | None]
    ours: Sequence[float | None]
    ours_without_plan: Sequence[float | None]

    def verdict(self, ours: Sequence[float | None]) -> str:
        """`ahead` or `behind` where the interval of the difference, seed by seed, leaves out 0; else `even`."""
        sign = 1 if self.more_is_better else -1
        pairs = zip(ours, self.theirs, strict=True)
        differences = [sign * (a - b) for a, b in pairs if a is not None and b is not None]
        found = estimate(differences)
        if found.mean is None:
            return "–"
        low, high = (found.mean if bound is None else bound for bound in (found.low, found.high))
        if low > 0 or high < 0:
            return "ahead" if low > 0 else "**behind**"
        return "even"


def mean(values: Sequence[float | None]) -> Estimate:
    """Over the seeds that have the figure: a run without losers has no mean of them."""
    return estimate([each for each in values if each is not None])


def of_seed(number: int, seed: int) -> Values:
    """All measures of one setting for one seed."""
    setting = SETTINGS[number]
    ours = Candidate(MARGINAL, {}, setting.theirs.interval_seconds)
    runs, without = Runs(setting.scenario, seed), Runs(setting.scenario, seed, NO_PLAN)
    pairs = [
        Pair(each.instance, each.of(setting.baseline), each.of(policy))
        for each, policy in ((runs, setting.theirs), (runs, ours), (without, ours))
    ]
    found = ([_rounded(measure.value(pair)) for pair in pairs] for measure in setting.measures)
    return [(theirs, known, unknown) for theirs, known, unknown in found]


def run(seeds: Sequence[int], workers: int) -> list[Row]:
    """Every setting over every seed."""
    rows = []
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for number, setting in enumerate(SETTINGS):
            values = list(pool.map(of_seed, [number] * len(seeds), seeds))
            for place, measure in enumerate(setting.measures):
                theirs, ours, without = zip(*(each[place] for each in values), strict=True)
                rows.append(Row(setting.title, measure.what, measure.more_is_better, theirs, ours, without))
    return rows


def save(rows: Sequence[Row], seeds: Sequence[int], folder: Path = KEPT) -> Path:
    """Write the figures of every seed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{NAME}.json"
    lines = ",\n".join(
        f"    {json.dumps([row.setting, row.measure, row.more_is_better, row.theirs, row.ours, row.ours_without_plan])}"
        for row in rows
    )
    path.write_text(f'{{\n  "seeds": {json.dumps(list(seeds))},\n  "rows": [\n{lines}\n  ]\n}}\n', encoding="utf-8")
    return path


def load(folder: Path = KEPT) -> tuple[list[int], list[Row]] | None:
    """The seeds and the figures that were kept; None: nothing."""
    path = folder / f"{NAME}.json"
    if not path.exists():
        return None
    document = json.loads(path.read_text(encoding="utf-8"))
    return document["seeds"], [Row(*row) for row in document["rows"]]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
