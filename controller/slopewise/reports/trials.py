"""A trial of a study, and ASHA's rule.

ASHA (asynchronous successive halving) compares trials at the rungs 1/27, 1/9 and 1/3 of the plan: one of three goes on.
`simulator/stopping.py` runs it; `ranking.py` only says whom it would have stopped. Answers of a session have trials, so
nothing slow to import belongs here: `slopewise submit` would wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from slopewise.model import Job, JobUid, Levels, Objective

K = TypeVar("K", int, str)

ETA = 3
"""Of ASHA: one trial of three goes on from a rung to the next, which is three times as far."""

NOT_FINITE = "its loss is not finite"
"""Why a trial that has diverged has none."""

RUNGS = (1 / 27, 1 / 9, 1 / 3)
"""Parts of the plan at which ASHA compares."""


def best_third(seen: Mapping[K, float]) -> list[K]:
    """The trials of a rung that go on, the lowest loss first."""
    return sorted(seen, key=lambda each: (seen[each], each))[: len(seen) // ETA]


def metric_of(series: str, objective: Objective) -> str:
    """A series and its direction: only losses of one metric can be compared."""
    return f"{series} ({objective})"


def training_of(job: Job) -> Hashable:
    """The same for the ranks of one training, which have one workload and one evaluation; another for each trial."""
    return job.uid if job.evaluation is None else (JobUid.of(job.uid).workload, job.evaluation)


def percent(chance: float) -> str:
    """`12 %`."""
    return f"{100 * chance:.2g} %" if chance >= 0.001 else "less than 0.1 %"


def direction(said: Collection[Objective], levels: Iterable[Levels]) -> Objective:
    """Of a study: as its trials say it now, or where none has a loss just now, as their levels have gone."""
    rose = not said and any((had.best or 0.0) > (had.first or 0.0) for had in levels)
    return "max" if rose or "max" in said else "min"


def differing(metrics: Iterable[tuple[str, str]]) -> str:
    """Of trials and the metric of each (empty: not known): two that differ, as half a sentence; empty: none do."""
    by_metric = {metric: trial for trial, metric in metrics if metric}
    if len(by_metric) < 2:
        return ""
    (first, trial), (second, other) = sorted(by_metric.items())[:2]
    return f"{trial} reports {first}, and {other} {second}"


Rungs = Mapping[int, float]
"""The loss of a trial at each rung, by its number, as far as it is known."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial of a study."""

    name: str
    state: str
    loss: float | None
    """The last one; None: none was reported."""
    cpu_seconds: float | None
    objective: Objective = "min"
    arguments: Mapping[str, str] = field(default_factory=dict)
    rungs: Rungs = field(default_factory=dict)
    reason: str = ""
    metric: str = ""
    """What its loss is a value of; empty: not known. Different ones are not ranked together."""
    chance: float | None = None
    """To be the best of those that run; None: it has ended, or the best is not favoured."""
