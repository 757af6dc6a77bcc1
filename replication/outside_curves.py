"""Scenarios of trainings whose losses others have recorded: AlgoPerf's runs, and TaskSet's trials of a sweep.

A job reports the recorded training loss over its first value, straight between two evaluations and with the noise that
it had; from one that is not finite on it is NaN. Half of the trainings are held back: those whose name has a SHA-256
with an odd last digit. A seed draws from the others, with replacement, and when each arrives.

Worked example: a run of 7,200 s that reached its target after 3,600 s has 7,200 core-seconds of work, and is at its
target when half of them are done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from replication.flat_runs import in_first_half
from replication.marginal_settings import FIFO, OURS
from slopewise.simulator import engine, workload
from slopewise.simulator.curves import Points
from slopewise.simulator.scenario.scenario import Scenario
from slopewise.simulator.trials import read_trials
from slopewise.simulator.world.model import Instance, PolicyRun, RunOutcome, SimJob

OWN_STEPS, NO_PLAN = "marginal, steps known", "marginal, no plan"
MARGINAL = "marginal"

MOST_PLANNED = 10
"""Times the steps taken: LAWA's runs plan 53 times as many and more, because they count steps in another unit."""

TRIAL_SECONDS = 600.0
"""Of one core, chosen: TaskSet has no times. All trials of a sweep have one network and as many steps."""


@dataclass(frozen=True, slots=True)
class Training:
    """A recorded training."""

    seconds: float
    loss: Points
    """Over its first value; NaN where it is not finite."""
    reached: float | None
    """After which part of its time it was at its target; None: never."""
    lowest: float = 0.0
    """Among the drawn jobs only those with the least of it have a target."""
    plan_ratio: float = 1.0
    """Steps that it plans, over those that it takes."""


Trainings = Mapping[str, Training]
"""By name."""


def _loss(at: Sequence[float], losses: Sequence[float]) -> Points:
    """A curve over the whole time: level before the first evaluation and after the last one."""
    xs, ys = np.asarray(at, float), np.asarray(losses, float) / losses[0]
    if xs[0] > 0:
        xs, ys = np.append(0.0, xs), np.append(ys[0], ys)
    if xs[-1] < 1:
        xs, ys = np.append(xs, 1.0), np.append(ys, ys[-1])
    return Points(tuple(xs.tolist()), tuple(ys.tolist()))


def read_algoperf(folder: Path) -> dict[str, Trainings]:
    """The runs of FOLDER that are not held back; OSError, KeyError or ValueError for what is not there."""
    curves = dict(list(pd.read_csv(folder / "curves.csv.gz", dtype={"run": str}).groupby("run")))
    found = {}
    for row in pd.read_csv(folder / "runs.csv", dtype={"run": str}).to_dict("records"):
        name, seconds, plan_ratio = row["run"], float(row["end_seconds"]), row["step_hint"] / row["end_step"]
        if not in_first_half(name) or plan_ratio > MOST_PLANNED:
            continue
        curve = curves[name].drop_duplicates("seconds")
        curve = curve[curve["seconds"] <= seconds]
        reached = row["reached_seconds"] / seconds if row["reached"] else None
        loss = _loss((curve["seconds"] / seconds).tolist(), curve["train_loss"].tolist())
        found[name] = Training(seconds, loss, reached, plan_ratio=plan_ratio)
    return {"algoperf": found}


def read_taskset(folder: Path) -> dict[str, Trainings]:
    """The trials of each sweep in FOLDER that are not held back; the errors are those of `read_algoperf`."""
    sweeps: dict[str, Trainings] = {}
    for file in sorted(folder.glob("*.csv.gz")):
        sweep = file.name.removesuffix(".csv.gz")
        pairs = zip(read_trials(file, ["train"]), read_trials(file, ["valid"]), strict=True)
        named = {f"{sweep}-{place}": pair for place, pair in enumerate(pairs)}
        sweeps[sweep] = {name: _trial(*pair) for name, pair in named.items() if in_first_half(name)}
    if not sweeps:
        raise ValueError("no file is named *.csv.gz")
    return sweeps


def _trial(train: Sequence[float], valid: Sequence[float]) -> Training:
    """It has a target where it is the best of those drawn: its own lowest validation loss."""
    best = int(np.nanargmin(valid))
    at = np.linspace(0.0, 1.0, len(train)).tolist()
    return Training(TRIAL_SECONDS, _loss(at, train), max(at[best], at[1]), float(valid[best]))


@dataclass(frozen=True, slots=True)
class Cluster:
    """How many jobs are on how many nodes of one core, and within which time they arrive."""

    nodes: int
    jobs: int
    arrive_seconds: float


def document(name: str, trainings: Trainings, cluster: Cluster, interval_seconds: float) -> dict[str, object]:
    """The scenario, as in its file."""
    several = ["specon"] if cluster.nodes > 1 else []
    marginal = [{"name": MARGINAL, "label": label} for label in (MARGINAL, OWN_STEPS, NO_PLAN)]
    shown = marginal if any(each.plan_ratio != 1 for each in trainings.values()) else marginal[::2]
    models = {
        key: {
            "workCpuSeconds": each.seconds,
            "planRatio": each.plan_ratio,
            "noise": 0,
            "curve": {"exponential": {"k": 1}},  # replaced by the recorded one in `draw`
        }
        for key, each in trainings.items()
    }
    return {
        "apiVersion": "slopewise.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": name},
        "spec": {
            "nodes": [{"name": "n", "count": cluster.nodes, "cpu": 1}],
            "generate": {
                "count": cluster.jobs,
                "arriveSeconds": {"uniform": [0, cluster.arrive_seconds]},
                "models": dict.fromkeys(trainings, 1),
            },
            "models": models,
            "workloadClasses": False,
            "scrapeSeconds": interval_seconds / 5,
            "intervalSeconds": interval_seconds,
            "policies": [*shown, "flowcon", *several, "las", OURS[FIFO], "srpt-oracle"],
        },
    }


def draw(trainings: Trainings, scenario: Scenario, seed: int) -> Instance:
    """The jobs of a seed, with the recorded losses and targets of their trainings."""
    instance = workload.draw(scenario, seed)
    lowest = min(trainings[job.model].lowest for job in instance.jobs)
    return replace(instance, jobs=tuple(_recorded(job, trainings[job.model], lowest) for job in instance.jobs))


def _recorded(job: SimJob, training: Training, lowest: float) -> SimJob:
    """What it reports is the loss, and its own curve is what is done until its target, which no policy here reads."""
    reached = training.reached if training.lowest == lowest else None
    to_target = Points((0.0, 1.0 if reached is None else reached, 1.0), (1.0, 0.0, 0.0))
    target = None if reached is None else 0.0
    return replace(
        job, curve=to_target, reported_curve=training.loss, losses=(1.0, 0.0), noise=0.0, target_level=target
    )


def run(instance: Instance, policy: PolicyRun, *, trace: bool = False) -> RunOutcome:
    """A run in which the policy's label says what jobs plan: their own steps, nothing, or what was planned."""
    if policy.label in {OWN_STEPS, NO_PLAN}:
        instance = replace(instance, jobs=tuple(planned(job, policy.label) for job in instance.jobs))
    return engine.run(instance, policy, trace=trace)


def planned(job: SimJob, label: str) -> SimJob:
    """The job with a plan of the steps that it takes, or with none."""
    if label == NO_PLAN or job.steps_planned is None:
        return replace(job, steps_planned=None, plan_ratio=1.0)
    return replace(job, steps_planned=max(1, round(job.steps_planned / job.plan_ratio)), plan_ratio=1.0)
