"""Runs the settings of replication/marginal-figures.md, and keeps the figures of every seed as JSON.

A setting is run alone, or some of its policies are: what is kept of the others stays, if the seeds are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from replication.marginal_settings import OURS, Setting
from slopewise.reports.estimates import Estimate, estimate
from slopewise.simulator.results.sweep_result import SweepResult
from slopewise.simulator.scenario.parts import PolicyEntry
from slopewise.simulator.scenario.scenario import Scenario, load_scenario
from slopewise.simulator.sweep import simulate
from slopewise.simulator.world.model import RunOutcome

KEPT = Path(__file__).resolve().parent / "marginal_figures"

FAIR = "fair"
RATIOS = ("jct_mean_seconds", "makespan_seconds", "time_to_90_seconds", "time_to_99_seconds")
WORST, RESIZES, MOVES, LOST = "worst_job_ratio", "resizes_a_job", "moves_a_job", "cpu_lost_ratio"
LIARS_WORST, LIARS_MEAN = "liars_worst_ratio", "liars_mean_ratio"
_DIGITS = 4

Figures = Mapping[str, Sequence[float | None]]
"""By measure, a figure for each run: the four of `RATIOS` are ratios to fair sharing over the same jobs."""


@dataclass(frozen=True)
class Kept:
    """What the runs of one setting gave."""

    scenarios: Sequence[str]
    seeds: Sequence[int]
    """Of each scenario."""
    policies: Mapping[str, Figures] = field(default_factory=dict)
    """Scenario by scenario, in the order of the seeds."""

    def of(self, policy: str, measure: str) -> Estimate:
        """The mean over the runs, with its interval."""
        return estimate([each for each in self.policies[policy].get(measure, ()) if each is not None])

    def gap(self, policy: str, other: str, measure: str) -> Estimate:
        """By how much a policy's figure is above another's, run by run."""
        pairs = zip(self.policies[policy][measure], self.policies[other][measure], strict=True)
        return estimate([ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None])

    def merged(self, newer: Kept) -> Kept:
        """With policies that were run again; ValueError when their runs are not the same."""
        if (list(self.scenarios), list(self.seeds)) != (list(newer.scenarios), list(newer.seeds)):
            raise ValueError(f"is of {self.described}, and the new figures are of {newer.described}; run all policies")
        return Kept(self.scenarios, self.seeds, {**self.policies, **newer.policies})

    def joined(self, newer: Kept) -> Kept:
        """With the runs of more seeds, of each scenario after its own; ValueError where not all is of both."""
        if (list(self.scenarios), self.measured) != (list(newer.scenarios), newer.measured):
            raise ValueError(f"what is kept ({self.described}) is of other scenarios, policies or measures; run all")

        def of_both(ours: Sequence[float | None], theirs: Sequence[float | None]) -> list[float | None]:
            pieces = ((ours, len(self.seeds)), (theirs, len(newer.seeds)))
            return [
                each
                for place in range(len(self.scenarios))
                for values, count in pieces
                for each in values[place * count : (place + 1) * count]
            ]

        policies = {
            policy: {measure: of_both(values, newer.policies[policy][measure]) for measure, values in figures.items()}
            for policy, figures in self.policies.items()
        }
        return Kept(self.scenarios, [*self.seeds, *newer.seeds], policies)

    @property
    def measured(self) -> dict[str, set[str]]:
        """The measures of each policy."""
        return {policy: set(figures) for policy, figures in self.policies.items()}

    @property
    def described(self) -> str:
        """Which runs it is of."""
        return f"{', '.join(self.scenarios)}, seeds {self.seeds[0]} to {self.seeds[-1]}"


def run_missing(
    kept: Kept | None, seeds: Sequence[int], at_once: int, run: Callable[[Sequence[int]], Kept]
) -> Iterator[Kept]:
    """What is kept, each time that it has further seeds, so that a run may be stopped and go on."""
    missing = [seed for seed in seeds if kept is None or seed not in kept.seeds]
    for start in range(0, len(missing), at_once):
        found = run(missing[start : start + at_once])
        kept = found if kept is None else kept.joined(found)
        yield kept


def load(name: str, folder: Path = KEPT) -> Kept | None:
    """What is kept of a setting; None: nothing."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    document = json.loads(path.read_text(encoding="utf-8"))
    return Kept(document["scenarios"], document["seeds"], document["policies"])


def save(name: str, kept: Kept, folder: Path = KEPT) -> Path:
    """Write what is kept of a setting, a line for each measure."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    lines = [
        f"    {json.dumps(policy)}: {{\n"
        + ",\n".join(f"      {json.dumps(measure)}: {json.dumps(values)}" for measure, values in figures.items())
        + "\n    }"
        for policy, figures in kept.policies.items()
    ]
    path.write_text(
        f'{{\n  "scenarios": {json.dumps(list(kept.scenarios))},\n  "seeds": {json.dumps(list(kept.seeds))},\n'
        '  "policies": {\n' + ",\n".join(lines) + "\n  }\n}\n",
        encoding="utf-8",
    )
    return path


def run(
    setting: Setting, seeds: Sequence[int], workers: int, external: Path | None = None, policies: Sequence[str] = ()
) -> Kept:
    """All seeds of one setting, under all of its policies or these alone, and fair sharing."""
    asked = policies or setting.policies
    scenarios = [_with_ours(scenario) for scenario in load_scenarios(setting, external)]
    results = [simulate(each, seeds, workers, policies=asked, keep_runs_of=seeds) for each in scenarios]
    found: dict[str, dict[str, list[float | None]]] = {}
    for scenario, result in zip(scenarios, results, strict=True):
        for policy in result.policies:
            of_policy = found.setdefault(policy, {})
            for measure, values in _figures(scenario, result, policy).items():
                of_policy.setdefault(measure, []).extend(values)
    return Kept([each.metadata.name for each in scenarios], list(seeds), found)


def load_scenarios(setting: Setting, external: Path | None = None) -> list[Scenario]:
    """The setting's scenario, or all of those that are no part of the project, from their folder."""
    if not setting.external:
        return [load_scenario(setting.scenario, setting.overrides)]
    files = sorted(external.glob("pollux-*.yaml")) if external is not None else []
    if not files:
        raise ValueError("needs --external, the folder that `python -m replication.pollux` has written")
    return [load_scenario(str(each), setting.overrides) for each in files]


def _with_ours(scenario: Scenario) -> Scenario:
    """With the entries of `OURS` beside its own policies."""
    entries = {entry.shown: entry for entry in scenario.spec.policies}
    entries |= {label: PolicyEntry.model_validate(entry) for label, entry in OURS.items()}
    return scenario.model_copy(update={"spec": scenario.spec.model_copy(update={"policies": list(entries.values())})})


def _figures(scenario: Scenario, result: SweepResult, policy: str) -> dict[str, list[float | None]]:
    runs = [(result.runs[policy, seed], result.runs[FAIR, seed]) for seed in result.seeds]
    of_sweep = result.figures[policy]
    found: dict[str, list[float | None]] = {
        measure: [_rounded(each.ratios_to_fair.get(measure)) for each in of_sweep] for measure in RATIOS
    }
    speeds = {node.speed for node in scenario.spec.nodes}
    found[WORST] = [_rounded(each.values[WORST]) for each in of_sweep]
    if any(_lies(job.model) for job in runs[0][0].jobs):
        found[WORST] = [_rounded(max(_to_fair(ours, fair, lying=False))) for ours, fair in runs]
        found[LIARS_WORST] = [_rounded(max(_to_fair(ours, fair, lying=True), default=None)) for ours, fair in runs]
        found[LIARS_MEAN] = [_rounded(_mean(_to_fair(ours, fair, lying=True))) for ours, fair in runs]
    found[RESIZES] = [_rounded(ours.resizes_total / len(ours.jobs)) for ours, _ in runs]
    found[MOVES] = [_rounded(ours.migrations_total / len(ours.jobs)) for ours, _ in runs]
    found[LOST] = [_rounded(_lost_ratio(ours, speeds)) for ours, _ in runs]
    return found


def _lies(model: str) -> bool:
    return model.startswith("liar-")


def _to_fair(ours: RunOutcome, fair: RunOutcome, *, lying: bool) -> list[float]:
    """Each job's completion time over that of the fair run, of those that lie or of the others."""
    times = {job.name: job.jct_seconds for job in fair.jobs}
    return [
        job.jct_seconds / base
        for job in ours.jobs
        if _lies(job.model) == lying and job.jct_seconds is not None and (base := times[job.name])
    ]


def _lost_ratio(run: RunOutcome, speeds: set[float]) -> float | None:
    """The part of the CPU used that did no work: contention, and quotas below a core. None where speeds differ."""
    used = sum(job.served_cpu_seconds for job in run.jobs)
    work = sum(job.work_cpu_seconds for job in run.jobs)
    return None if len(speeds) > 1 or not used else 1 - work / used / min(speeds)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
