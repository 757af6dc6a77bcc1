"""Replays groups of recorded jobs in the simulator: fair sharing, then each policy, over the same jobs.

Only groups in which CPU was short are replayed, because in the others no policy that shares CPU changes a job's end.
Of many groups some are drawn, with a fixed seed. A figure is the mean over groups with its 95 % interval; of a single
group it is the mean over its seeds.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from slopewise.advise.scenarios.groups import Group
from slopewise.advise.scenarios.recorded_jobs import RecordedJob, write_scenario
from slopewise.own_policies import catalogue
from slopewise.reports.estimates import SAME_RATIO, Estimate, Verdict, estimate, verdict
from slopewise.simulator.results.sweep_result import SweepResult
from slopewise.simulator.scenario.scenario import BASELINE, load_scenario
from slopewise.simulator.sweep import OnDone, runs_of, simulate, unseen
from slopewise.simulator.workers import worker_pool

BY_NEED = ("Raise", "Share")
"""What may be done with the CPU of jobs with GPUs: each is a run of `fair`, which goes by need alone."""

MEASURES: Mapping[str, str] = {
    "jct_mean_seconds": "mean completion time",
    "time_to_90_seconds": "mean time to 90 % of improvement",
    "makespan_seconds": "makespan",
}

WITHOUT_LOSS = ("jct_mean_seconds", "makespan_seconds")
"""A job with GPUs is replayed without its loss, which no decision by need reads."""

_PROMISES = frozenset({"deadline", "dqoes", "tradl"})
"""They keep deadlines, objectives and target losses, of which a history says nothing."""

_AS_ANOTHER = frozenset({"flowcon2"})
"""On one node it is FlowCon."""


@dataclass(frozen=True, slots=True)
class PolicyReplay:
    """One policy over the replayed groups, against fair sharing."""

    policy: str
    ratios: Mapping[str, Estimate]
    """By measure."""
    worst_job: Estimate
    """The largest ratio of a job's time to its mean time over several fair runs."""
    jobs: int
    jobs_sooner: int
    jobs_later: int
    """Jobs whose every replay ended at least 1 % sooner, or later, than under fair sharing."""
    job_ratios: Mapping[str, Estimate]
    """By the job's name in the scenario."""

    def verdict(self, measure: str) -> Verdict | None:
        """Of the ratio of a measure."""
        return verdict("less", self.ratios[measure])


@dataclass(frozen=True, slots=True)
class Replays:
    """The outcome of the groups."""

    groups: int
    contended: int
    replayed: int
    jobs: int
    """Of the replayed groups."""
    policies: tuple[PolicyReplay, ...] = ()
    fair_error_ratio: float | None = None
    """How far the replayed fair sharing is from what was recorded, of a job's duration: the median over jobs."""
    partial: bool = False
    """Stopped before all groups were replayed."""


NOTHING = Replays(0, 0, 0, 0)


def default_policies() -> list[str]:
    """The shipped policies that give CPU to running jobs by what a history has."""
    found = {name: catalogue.find(name) for name in catalogue.shipped()}
    return [
        name
        for name, policy in found.items()
        if "resize" in policy.actions and not policy.simulator_only and name not in _PROMISES | _AS_ANOTHER
    ]


def chosen(groups: Sequence[Group], at_most: int) -> list[Group]:
    """The groups that are replayed: these, or so many of them, drawn with a fixed seed."""
    if len(groups) <= at_most:
        return list(groups)
    places = sorted(random.Random(0).sample(range(len(groups)), at_most))  # noqa: S311 - a sample, no secret
    return [groups[place] for place in places]


class Replayer:
    """Runs groups one after the other; `replays` is what was found so far."""

    def __init__(
        self, groups: Sequence[Group], policies: Sequence[str], *, at_most: int, seeds: int, by_need: bool = False
    ) -> None:
        """The groups in which CPU was short. `by_need`: those in which GPUs waited for it, under `BY_NEED`."""
        self._all, self._by_need = groups, by_need
        self._concerned = [group for group in groups if (group.waits_for_cpu if by_need else group.contended)]
        self._chosen = chosen(self._concerned, at_most)
        self._policies: list[str | Mapping[str, str]] = list(policies)
        if by_need:
            self._policies = [{"name": BASELINE, "label": each, "accelerators": each} for each in BY_NEED]
        self._seeds = seeds
        self._done: list[tuple[Group, SweepResult]] = []

    @property
    def runs(self) -> int:
        """How many runs there are, for a progress bar."""
        return len(self._chosen) * runs_of(self._seeds, len(self._policies) + 1)

    def run(self, folder: Path, workers: int, on_done: OnDone = unseen) -> None:
        """Replay all groups; `Interrupted` when stopped, with the groups that are whole kept."""
        with worker_pool(workers) if workers > 1 else nullcontext() as pool:
            self._run(folder, pool, on_done)

    def _run(self, folder: Path, pool: Executor | None, on_done: OnDone) -> None:
        for number, group in enumerate(self._chosen, start=1):
            path = write_scenario(
                f"group-{number}",
                group.jobs,
                {group.node: group.cores},
                folder,
                policies=self._policies,
                seeds=self._seeds,
                with_devices=self._by_need,
            )
            seeds = range(1, self._seeds + 1)
            result = simulate(load_scenario(str(path)), seeds, 1, keep_runs_of=seeds, pool=pool, on_done=on_done)
            if result.stopped is not None:
                raise result.stopped
            self._done.append((group, result))

    @property
    def replays(self) -> Replays:
        """The figures of the groups that were replayed."""
        labels = self._done[0][1].policies[1:] if self._done else ()
        return Replays(
            groups=len(self._all),
            contended=len(self._concerned),
            replayed=len(self._done),
            jobs=sum(len(group.jobs) for group, _ in self._done),
            policies=tuple(_policy(label, self._done, WITHOUT_LOSS if self._by_need else MEASURES) for label in labels),
            fair_error_ratio=_fair_error(self._done),
            partial=len(self._done) < len(self._chosen),
        )


def _policy(label: str, done: Sequence[tuple[Group, SweepResult]], measures: Iterable[str]) -> PolicyReplay:
    jobs = {name: estimate(ratios) for _, result in done for name, ratios in _job_ratios(result, label).items()}
    every = [ratios for _, result in done for ratios in _job_ratios(result, label).values()]
    return PolicyReplay(
        policy=label,
        ratios={
            measure: _over_groups(
                [[figures.ratios_to_fair.get(measure) for figures in result.figures[label]] for _, result in done]
            )
            for measure in measures
        },
        worst_job=_over_groups(
            [[figures.value("worst_job_ratio") for figures in result.figures[label]] for _, result in done]
        ),
        jobs=len(jobs),
        jobs_sooner=sum(max(ratios) <= 1 - SAME_RATIO for ratios in every),
        jobs_later=sum(min(ratios) >= 1 + SAME_RATIO for ratios in every),
        job_ratios=jobs,
    )


def _over_groups(values: Sequence[Sequence[float | None]]) -> Estimate:
    """Seeds of one group are no independent evidence about other groups: the groups' means are what varies."""
    known = [[value for value in of_group if value is not None] for of_group in values]
    groups = [of_group for of_group in known if of_group]
    return estimate(groups[0]) if len(groups) == 1 else estimate([fmean(of_group) for of_group in groups])


def _job_ratios(result: SweepResult, label: str) -> dict[str, list[float]]:
    """By job, its time under the policy over that under fair sharing, of each seed in which it ended in both."""
    found: dict[str, list[float]] = {}
    for seed in result.seeds:
        fair = _times(result, BASELINE, seed)
        for name, seconds in _times(result, label, seed).items():
            if fair.get(name):
                found.setdefault(name, []).append(seconds / fair[name])
    return found


def _times(result: SweepResult, label: str, seed: int) -> dict[str, float]:
    return {job.name: job.jct_seconds for job in result.runs[label, seed].jobs if job.jct_seconds is not None}


def _fair_error(done: Sequence[tuple[Group, SweepResult]]) -> float | None:
    errors = []
    for group, result in done:
        recorded: dict[str, RecordedJob] = {job.name: job for job in group.jobs}
        times: dict[str, list[float]] = {}
        for seed in result.seeds:
            for name, seconds in _times(result, BASELINE, seed).items():
                times.setdefault(name, []).append(seconds)
        errors += [abs(fmean(each) / recorded[name].seconds - 1) for name, each in times.items()]
    return median(errors) if errors else None
