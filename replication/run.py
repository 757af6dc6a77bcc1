"""Runs every setting over its seeds, in processes: from `Setting`s to the mean of every claim with its interval.

Before it: `settings_*.py`. After it: `page.py` and `plots.py`. One task is one seed of one setting: the baseline and
all candidates over the same drawn instance, so that each figure is a comparison of like with like.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context

from controller.estimates import Estimate, estimate
from controller.simulator.engine import run
from controller.simulator.model import Instance, PolicyRun, RunOutcome
from controller.simulator.scenario import load_scenario, policy_runs
from controller.simulator.workload import draw
from replication import settings_clusters, settings_flowcon, settings_promises
from replication.claims import Candidate, Claim, Pair, Setting, Variant

SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (*settings_flowcon.SETTINGS, *settings_clusters.SETTINGS, *settings_promises.SETTINGS)
}

Values = dict[tuple[int, str], float | None]
"""What one seed gave: by the claim's place in its setting and the variant's name."""


@dataclass(frozen=True, slots=True)
class Result:
    """All seeds of one setting: the mean of each claim under each variant with its 95 % interval."""

    setting: Setting
    seeds: int
    estimates: Mapping[tuple[int, str], Estimate]


def run_settings(
    names: Sequence[str], seeds: Sequence[int], workers: int, on_done: Callable[[str], None]
) -> list[Result]:
    """Every setting over every seed; `on_done` is told each finished task."""
    found: dict[str, list[Values]] = {name: [] for name in names}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        tasks = {pool.submit(values_of_seed, name, seed): name for name in names for seed in seeds}
        for task in as_completed(tasks):
            found[tasks[task]].append(task.result())
            on_done(tasks[task])
    return [_result(SETTINGS[name], found[name]) for name in names]


def _result(setting: Setting, values: Sequence[Values]) -> Result:
    keys = values[0].keys()
    # Sorted, so that sums do not depend on which task ended first.
    estimates = {key: estimate(sorted(value for each in values if (value := each[key]) is not None)) for key in keys}
    return Result(setting, len(values), estimates)


def values_of_seed(name: str, seed: int) -> Values:
    """Every claim of one setting for one seed."""
    setting = SETTINGS[name]
    runs = Runs(setting.scenario, seed)
    base = runs.of(setting.baseline)
    values: Values = {}
    for place, claim in enumerate(setting.claims):
        for variant in _variants(claim, setting):
            ours = base if claim.candidate is None else runs.of(with_variant(claim.candidate, variant))
            values[place, variant.name] = claim.value(Pair(runs.instance, base, ours))
    return values


def _variants(claim: Claim, setting: Setting) -> Sequence[Variant]:
    """A claim on the baseline alone reads the same under every variant."""
    return setting.variants if claim.candidate is not None else setting.variants[:1]


def with_variant(candidate: Candidate, variant: Variant) -> Candidate:
    """The candidate under one reading of what the paper leaves open."""
    return replace(
        candidate,
        parameters={**candidate.parameters, **variant.parameters},
        control=variant.control or candidate.control,
    )


class Runs:
    """The runs of one seed of one scenario, each made once."""

    def __init__(self, scenario: str, seed: int, *, trace: bool = False) -> None:
        document = load_scenario(scenario)
        self.instance: Instance = draw(document, seed)
        self._template = policy_runs(document, ["fair"])[0]
        self._done: dict[str, RunOutcome] = {}
        self._trace = trace

    def of(self, candidate: Candidate) -> RunOutcome:
        """The candidate over this instance."""
        label = f"{candidate.policy} {sorted(candidate.parameters.items())} {candidate.interval_seconds} "
        label += candidate.control
        if label not in self._done:
            self._done[label] = run(self.instance, self._policy_run(candidate, label), trace=self._trace)
        return self._done[label]

    def _policy_run(self, candidate: Candidate, label: str) -> PolicyRun:
        return replace(
            self._template,
            label=label,
            name=candidate.policy,
            parameters=candidate.parameters,
            interval_seconds=candidate.interval_seconds,
            control=candidate.control,
        )
