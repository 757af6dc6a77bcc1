"""Studies from files of recorded trials, such as TaskSet's: drawn, run on one node under policies, and compared.

A file is CSV, also compressed (`.gz`): a row a trial, and columns `valid_0`, `valid_1` and so on with its losses, from
its start to its end, the same number of steps apart; an empty field is a loss that was not finite. Where there is no
`valid_0`, `train_0` and so on are read. All trials take the same work where no `costs` are given.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count as numbers
from itertools import takewhile
from pathlib import Path

import numpy as np

from slopewise.errors import UsageError
from slopewise.simulator import engine, stopping
from slopewise.simulator.world.model import Instance, Physics, PolicyRun, SimJob, SimNode

WITHIN_RATIO = 0.01
"""The best trial is found once its loss is within 1 % of its final one."""

NODE_CORES = 4.0
WORK_CPU_SECONDS = 1200.0
"""Of a trial: five minutes with the node for itself, 15 intervals of the policy."""

STEPS = 1000
TRIAL_MEMORY_BYTES = 1_000_000_000
"""The node's memory lets as many trials run as shall run at once; the others wait, in the order of the draw."""

STUDY = "sweep"

Losses = Sequence[float]
"""Of one trial, from its start to its end; NaN: not finite."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The loss of a trial as it was recorded: what was reported last. It is not scaled, and may rise, or be NaN."""

    losses: Losses

    def at(self, done_ratio: float) -> float:
        """The loss after this part of the work."""
        return self.losses[math.floor(done_ratio * (len(self.losses) - 1) + 1e-9)]

    def reached(self, improvement_ratio: float) -> float | None:
        """Where the loss is within 1 % of its last one, whatever part is asked for: it has no scale from 1 to 0."""
        return stopping.reached(self.losses, stopping.near(self.losses[-1], WITHIN_RATIO))


def read_trials(path: Path, stages: Sequence[str] = ("valid", "train")) -> list[Losses]:
    """All trials of a file, by the first of these stages that it has; UsageError in one sentence for what is wrong."""
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
        rows = list(csv.DictReader(text.splitlines()))
    except (OSError, EOFError, UnicodeDecodeError, zlib.error, csv.Error) as error:
        why = error.strerror or error if isinstance(error, OSError) else error
        raise UsageError(f"{path} cannot be read ({why}); name a CSV file of trials.") from error
    columns = next((names for stage in stages if (names := _columns(rows, stage))), [])
    if len(columns) < 2:
        raise UsageError(
            f"{path}: there are no columns {stages[0]}_0 and {stages[0]}_1; write a row of losses a trial."
        )
    try:
        return [tuple(math.nan if row[name] == "" else float(row[name]) for name in columns) for row in rows]
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path}: a loss is no number ({error}); leave it empty where it is not.") from error


def _columns(rows: Sequence[dict[str, str]], stage: str) -> list[str]:
    there = frozenset(rows[0] if rows else ())
    return list(takewhile(there.__contains__, (f"{stage}_{number}" for number in numbers())))


def draw(trials: Sequence[Losses], count: int, seed: int) -> list[Losses]:
    """So many of the trials, in a random order; UsageError where none of them ends with a finite loss."""
    if count > len(trials):
        raise UsageError(f"--trials {count} is more than the {len(trials)} of the file; give fewer.")
    drawn = np.random.default_rng(seed).permutation(len(trials))[:count].tolist()
    if not any(math.isfinite(trials[number][-1]) for number in drawn):
        raise UsageError(f"--seed {seed}: no trial that was drawn ends with a finite loss; try another seed.")
    return [trials[number] for number in drawn]


@dataclass(frozen=True, slots=True)
class StudyResult:
    """A study under one policy or rule. Times are seconds."""

    label: str
    best_found_seconds: float | None
    """Until the best trial of the draw is within 1 % of its final loss; None: it was stopped before."""
    ended_seconds: float
    best_loss: float
    """Of the trials that ran to their end."""
    stopped: int = 0

    def compared(self, fair: StudyResult) -> dict[str, str | float | None]:
        """A row, with ratios to fair sharing."""
        found, base = self.best_found_seconds, fair.best_found_seconds
        return {
            "policy": self.label,
            "best_found_seconds": found,
            "of_fair": found / base if found is not None and base else None,
            "ended_seconds": self.ended_seconds,
            "ended_of_fair": self.ended_seconds / fair.ended_seconds,
            "best_loss": self.best_loss if math.isfinite(self.best_loss) else None,
            "stopped": self.stopped,
        }


def instance(
    losses: Sequence[Losses], running: int, threads: int, seed: int, costs: Sequence[float] | None = None
) -> Instance:
    """One node on which so many trials run at once; `costs`: of each trial's work, of what a trial takes else."""
    best = stopping.best_of(losses)
    jobs = tuple(
        SimJob(
            name=f"trial-{number:03}",
            model="recorded",
            arrive_seconds=0.0,
            work_cpu_seconds=WORK_CPU_SECONDS * cost,
            curve=Recorded(each),
            parallelism_cores=float(threads),
            memory_bytes=TRIAL_MEMORY_BYTES,
            steps_planned=STEPS,
            workload_class="",
            study=STUDY,
            target_level=0.0 if number == best else None,
        )
        for number, (each, cost) in enumerate(zip(losses, costs or [1.0] * len(losses), strict=True))
    )
    node = SimNode("node", NODE_CORES, running * TRIAL_MEMORY_BYTES)
    return Instance(STUDY, seed, (node,), jobs, Physics(contention_ratio=0.0))


FAIR = "fair"
BEST = PolicyRun("best first", "marginal", studies="Best")


def run_policy(losses: Sequence[Losses], policy: PolicyRun, study: Instance) -> StudyResult:
    """The study under a policy: real passes over a simulated node."""
    made = engine.run(study, policy)
    best = stopping.best_of(losses)
    found = next(job.target_seconds for job in made.jobs if job.name == f"trial-{best:03}")
    return StudyResult(policy.label, found, made.ended_seconds, losses[best][-1])


def compare_costs(
    losses: Sequence[Losses], running: int, threads: int, seed: int, times: float
) -> tuple[StudyResult, StudyResult]:
    """Fair sharing, and the best favoured, where a trial costs `1 / times` to `times` the work (log-uniform)."""
    exponents = np.random.default_rng([seed, 1]).uniform(-1.0, 1.0, len(losses)).tolist()
    study = instance(losses, running, threads, seed, [math.pow(times, each) for each in exponents])
    return run_policy(losses, PolicyRun(FAIR, "fair"), study), run_policy(losses, BEST, study)


def compare(losses: Sequence[Losses], running: int, threads: int, seed: int) -> list[StudyResult]:
    """Fair sharing, the policy with the best favoured, the rules that stop trials, and an oracle."""
    setting = stopping.Setting(NODE_CORES, WORK_CPU_SECONDS, running, threads, WITHIN_RATIO)
    rules = {"ASHA": stopping.asha, "median rule": stopping.median_rule, "oracle": stopping.oracle}
    return [
        StudyResult(FAIR, *stopping.fair(losses, setting)),
        run_policy(losses, BEST, instance(losses, running, threads, seed)),
        *(StudyResult(label, *rule(losses, setting)) for label, rule in rules.items()),
    ]
