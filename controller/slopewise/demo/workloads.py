"""Chooses the built-in jobs and the number of nodes of a demo that fit its policies.

Every policy runs over the same list. Deadlines and targets follow from what each training needs on its own, by rules
and not job by job: none was chosen by how a policy fares.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from slopewise.composition import parts_of
from slopewise.config.jobs_file import JobSpec
from slopewise.demo.serving.catalogue import SERVING_SECONDS, serving_jobs
from slopewise.demo.trainings.catalogue import demo_jobs, require_scikit_learn
from slopewise.model import Objectives
from slopewise.own_policies.catalogue import find
from slopewise_exporter.threads.at_start import VARIABLE

WorkloadName = Literal["trainings", "served", "deadlines", "targets", "uneven", "threads"]

DESCRIPTIONS: Mapping[WorkloadName, str] = {
    "trainings": "the built-in trainings",
    "served": "served models with response-time objectives",
    "deadlines": "the built-in trainings, each with a deadline",
    "targets": "the built-in trainings, each with two target losses",
    "uneven": "the built-in trainings, long and short ones in turn",
    "threads": "unmodified scripts with default threads",
}

_FITTING: Mapping[str, WorkloadName] = {
    "dqoes": "served",
    "deadline": "deadlines",
    "tradl": "targets",
    "specon": "uneven",
}
"""By policy; all others are about losses alone."""

_ON_ONE_NODE = frozenset({"deadline", "marginal"})
"""They place jobs too. The built-in jobs of the former have deadlines for one node; the latter is compared on one, as
FlowCon is."""

PLACING_NODES = 2


@dataclass(frozen=True, slots=True)
class SoloRun:
    """A training without competitors, measured once on one core of a 2.6 GHz server at its usual length."""

    seconds: float
    """From its start to its end; all but `stdlib-stream`, which waits for its data, use the core throughout."""
    first_loss: float
    best_loss: float


SOLO_RUNS: Mapping[str, SoloRun] = {
    "cancer-boosting": SoloRun(17.3, 0.6931, 0.0897),
    "diabetes-overfit": SoloRun(13.3, 2.506, 0.5246),
    "digits-deep-sigmoid": SoloRun(14.3, 2.411, 0.3546),
    "digits-field": SoloRun(21.2, 1.102, 0.0196),
    "digits-lr-drop": SoloRun(13.8, 2.556, 0.0728),
    "digits-mlp": SoloRun(14.7, 2.303, 0.0885),
    "stdlib-chars": SoloRun(25.0, 5.056, 1.764),
    "stdlib-stream": SoloRun(41.6, 2.996, 0.824),
}

START_SECONDS = 1.5
"""Of `Alone.seconds`: Python, its libraries and the data, which a shorter training needs as well."""

DEADLINE_SEED = 0
DEADLINE_FACTORS = (1.5, 4.0)
"""Deadline = this many times what the training needs alone, drawn evenly, as in the simulator's generator."""

GRACE_SECONDS = 5.0
"""Added to every deadline, whatever its length: the start, the second and a half in which the first value is held, and
the one or two in which a job that has finished waits for its last scrape."""

DELIVERABLE_RATIO = 0.9
TARGET_RATIO = 0.98
"""Of a training's improvement from its first to its best loss at its usual length. A shorter one may not get there."""


UNEVEN_LENGTHS = (1.5, 0.4)
"""Of the trainings' usual lengths, in turn. A scheduler that counts jobs spreads such jobs evenly, and when the short
ones have ended one node idles beside another with four: a policy that never moves a running job cannot change that."""

THREADS_JOBS: Mapping[str, tuple[str, int]] = {
    "trees-long": ("histograms", 600),
    "products-longest": ("products", 1500),
    "products-short": ("products", 500),
    "trees-short": ("histograms", 300),
    "products-long": ("products", 1000),
    "products-shortest": ("products", 400),
}
"""By name: the script of `default_threads/`, and its steps of 4 and 5 CPU-ms with one thread on a 2.6 GHz server. By
default a tree has taken 40 to 100 times as much, so that these are short."""

THREADS_ARRIVAL_SECONDS = 1.0
THREADS_SECONDS = 20.0
"""How long the longest takes, its threads following two cores that all share."""

STEP_PATTERN = r"(?P<step>\d+)/(?P<steps_planned>\d+).*?loss[:=] ?(?P<loss>[^,\s]+)"
"""Of `[3/600] 1 tree, …, train loss: 0.41, val loss: 0.5, …` and `step 20/1500 loss=0.41`."""

RUN_SECONDS = 100.0
"""Three runs are then five minutes, and `make demo` with its installation six."""

LEAST_LEFT_RATIO = 0.25
"""Of the cores: busy programs give way to jobs, which get a part however many there are."""

IDLE_RATIO = 0.95
"""What a desktop or a few ticks of the clock take of an idle machine is no busy program."""

FEWEST_JOBS = 3

UNEVEN_ARRIVAL_SECONDS = 1.5
"""Between two of them: all are there within 11 s, before the first has ended."""


def fitting_workload(policies: Sequence[str]) -> WorkloadName:
    """The list that the first policy named is about."""
    parts = parts_of(policies[0])[::-1] if policies else ()
    return next((_FITTING[part] for part in parts if part in _FITTING), "trainings")


def reason_for(policies: Sequence[str], workload: WorkloadName) -> str:
    """Why these jobs, in one sentence; empty where there was nothing to choose."""
    fitting = {fitting_workload([name]) for name in policies}
    if fitting <= {workload} and workload == "trainings":
        return ""
    return (
        f"The jobs are {DESCRIPTIONS[workload]}, which fit {policies[0]}, the first policy named; "
        "--workload chooses others."
    )


def fitting_nodes(policies: Sequence[str], cores: int) -> int:
    """Two nodes for policies that choose among nodes, where the machine has two cores; else one."""
    parts = {part for name in policies for part in parts_of(name)}
    places = any(find(part).chooses_nodes for part in parts - _ON_ONE_NODE)
    return PLACING_NODES if cores >= PLACING_NODES and places else 1


def build_workload(workload: WorkloadName, scale: float, cores: float) -> list[JobSpec]:
    """The jobs of that list; `scale` shrinks or stretches their length, `cores` are those that they share.

    UsageError without scikit-learn.
    """
    if workload == "served":
        require_scikit_learn("the served models")
        return serving_jobs(cores, scale=scale)
    require_scikit_learn()
    if workload == "threads":
        return _with_default_threads(scale)
    if workload == "uneven":
        return demo_jobs(scale, UNEVEN_LENGTHS, UNEVEN_ARRIVAL_SECONDS)
    jobs = demo_jobs(scale)
    if workload == "deadlines":
        return _with_deadlines(jobs, scale)
    return _with_targets(jobs) if workload == "targets" else jobs


def longest_seconds(workload: WorkloadName, scale: float, jobs: Sequence[JobSpec], cores: float) -> float:
    """About how long the longest of these built-in jobs takes: alone, or until all are done on the cores; seconds."""
    if workload == "served":
        return SERVING_SECONDS * scale
    if workload == "threads":
        return THREADS_SECONDS * scale
    lengths = UNEVEN_LENGTHS if workload == "uneven" else (1.0,)
    works = [
        START_SECONDS + scale * lengths[place % len(lengths)] * (SOLO_RUNS[job.name].seconds - START_SECONDS)
        for place, job in enumerate(jobs)
    ]
    return max(*works, math.fsum(works) / cores)


def fewer_jobs(
    workload: WorkloadName, scale: float, jobs: Sequence[JobSpec], cores: float, left_cores: float
) -> list[JobSpec]:
    """The first of these built-in jobs, as many as are done on the cores that others leave within `RUN_SECONDS`.

    Three at least, whose order can matter; all where they take as long on an idle machine, which is what was asked for.
    Worked example: eight trainings of 161 core-seconds take 81 s on two idle cores. Where others leave one of them, the
    first three run, of 88 core-seconds.
    """
    most = max(RUN_SECONDS, longest_seconds(workload, scale, jobs, cores))
    left = cores if left_cores >= IDLE_RATIO * cores else max(LEAST_LEFT_RATIO * cores, left_cores)
    counts = range(len(jobs), FEWEST_JOBS, -1)
    fitting = (count for count in counts if longest_seconds(workload, scale, jobs[:count], left) <= most)
    return list(jobs[: next(fitting, FEWEST_JOBS)])


def with_threads(jobs: Sequence[JobSpec], setting: str) -> list[JobSpec]:
    """The jobs under this value of `SLOPEWISE_THREADS`."""
    return [replace(job, environment={**job.environment, VARIABLE: setting}) for job in jobs]


def _with_default_threads(scale: float) -> list[JobSpec]:
    """Scripts without a line of ours, each started by `slopewise-exporter run`."""
    folder = Path(__file__).with_name("default_threads")
    start = [sys.executable, "-P", "-m", "slopewise_exporter", "run", f"--pattern={STEP_PATTERN}", "--"]
    return [
        JobSpec(
            name=name,
            command=[*start, sys.executable, "-P", str(folder / f"{script}.py"), str(max(1, round(steps * scale)))],
            arrive_seconds=place * THREADS_ARRIVAL_SECONDS * scale,
        )
        for place, (name, (script, steps)) in enumerate(THREADS_JOBS.items())
    ]


def _with_deadlines(jobs: Sequence[JobSpec], scale: float) -> list[JobSpec]:
    """Worked example: 14.7 s alone and a factor of 2.5 are 5 + 2.5 · 13.2 = 38 s from the arrival."""
    draw = random.Random(DEADLINE_SEED)  # noqa: S311 - not a secret
    factors = [draw.uniform(*DEADLINE_FACTORS) for _ in jobs]
    work_seconds = [scale * (SOLO_RUNS[job.name].seconds - START_SECONDS) for job in jobs]
    return [
        replace(job, deadline_seconds=round(GRACE_SECONDS + factor * seconds, 1))
        for job, factor, seconds in zip(jobs, factors, work_seconds, strict=True)
    ]


def _with_targets(jobs: Sequence[JobSpec]) -> list[JobSpec]:
    """Worked example: 90 % of the way from 2.303 to 0.0885 is 0.31."""
    found = []
    for job in jobs:
        solo = SOLO_RUNS[job.name]
        deliverable, target = (
            round(solo.first_loss - ratio * (solo.first_loss - solo.best_loss), 4)
            for ratio in (DELIVERABLE_RATIO, TARGET_RATIO)
        )
        found.append(replace(job, objectives=Objectives(deliverable_level=deliverable, target_level=target)))
    return found
