"""Runs every published setting over its seeds in worker processes.

The result is the mean of every claim with its interval.
One task is one seed of one setting: the baseline and all candidates over the same drawn instance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context

from replication import (
    settings_causes,
    settings_clusters,
    settings_flowcon,
    settings_grids,
    settings_promises,
    settings_related,
)
from replication.claims import Candidate, Claim, Pair, Setting, Variant
from slopewise.reports.estimates import Estimate, estimate
from slopewise.simulator.engine import run
from slopewise.simulator.scenario.scenario import load_scenario, policy_runs
from slopewise.simulator.workload import draw
from slopewise.simulator.world.model import Instance, PolicyRun, RunOutcome

SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        *settings_flowcon.SETTINGS,
        *settings_clusters.SETTINGS,
        *settings_promises.SETTINGS,
        *settings_related.SETTINGS,
        *settings_grids.SETTINGS,
        *settings_causes.SETTINGS,
    )
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
    """Every setting over every seed; `on_done` is called after each task."""
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
    return values_of(SETTINGS[name], seed)


def values_of(setting: Setting, seed: int) -> Values:
    """Every claim of a setting that need not be among the published ones, for one seed."""
    values: Values = {}
    worlds: list[tuple[Mapping[str, object], Runs]] = []
    for variant in setting.variants:
        runs = next((runs for scenario, runs in worlds if scenario == variant.scenario), None)
        if runs is None:
            runs = Runs(setting.scenario, seed, variant.scenario, trace=setting.trace)
            worlds.append((variant.scenario, runs))
        base = runs.of(setting.baseline)
        for place, claim in enumerate(setting.claims):
            if variant in variants_of(claim, setting):
                ours = base if claim.candidate is None else runs.of(with_variant(claim.candidate, variant))
                values[place, variant.name] = claim.value(Pair(runs.instance, base, ours))
    return values


def variants_of(claim: Claim, setting: Setting) -> Sequence[Variant]:
    """The columns in which a claim has a figure: one on the baseline alone differs only where the world does."""
    first, *others = setting.variants
    if claim.candidate is not None:
        return setting.variants
    return [first, *(variant for variant in others if variant.scenario != first.scenario)]


def with_variant(candidate: Candidate, variant: Variant) -> Candidate:
    """The candidate under one reading of what the paper leaves open."""
    return replace(
        candidate,
        parameters={**candidate.parameters, **variant.parameters},
        interval_seconds=variant.interval_seconds or candidate.interval_seconds,
        control=variant.control or candidate.control,
    )


class Runs:
    """The runs of one seed of one scenario, each made once."""

    def __init__(
        self, scenario: str, seed: int, overrides: Mapping[str, object] | None = None, *, trace: bool = False
    ) -> None:
        document = load_scenario(scenario, overrides)
        self.instance: Instance = draw(document, seed)
        self._template = policy_runs(document, ["fair"])[0]
        self._trace = trace
        self._done: dict[str, RunOutcome] = {}

    def of(self, candidate: Candidate) -> RunOutcome:
        """The candidate over this instance."""
        label = f"{candidate.policy} {sorted(candidate.parameters.items())} {candidate.interval_seconds} "
        label += candidate.control
        if (placed := candidate.placement) is not None:
            label += f" + {placed.name} {sorted(placed.parameters.items())} {placed.interval_seconds}"
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
            placement=candidate.placement,
        )
