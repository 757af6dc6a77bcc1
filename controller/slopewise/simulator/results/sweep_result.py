"""The result of a sweep: the figures of every seed under every policy, and their means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from slopewise.reports.columns import csv_text
from slopewise.reports.estimates import Estimate, estimate
from slopewise.signals import Interrupted
from slopewise.simulator.results.measures import Figures, in_order
from slopewise.simulator.world.model import RunOutcome

_NOTHING = Estimate(None, None, None)
_CSV_COLUMNS = (
    "scenario", "policy", "measure", "seeds",
    "mean", "low", "high", "ratio_to_fair_mean", "ratio_to_fair_low", "ratio_to_fair_high",
)  # fmt: skip


@dataclass(frozen=True)
class SweepResult:
    """Every figure of every whole seed: one that was cut short under any policy is in none of them."""

    scenario: str
    policies: tuple[str, ...]
    """The labels, the baseline (`fair`) first."""
    seeds_asked: tuple[int, ...]
    seeds: tuple[int, ...]
    """The complete seeds: all that were requested, unless `stopped`."""
    figures: Mapping[str, Sequence[Figures]]
    """By policy, in the order of `seeds`."""
    runs: Mapping[tuple[str, int], RunOutcome] = field(default_factory=dict)
    """By policy and seed, of the seeds that were to be kept."""
    stopped: Interrupted | None = None
    """The signal that cut the sweep short; the command ends with its exit code."""
    tuned_on: bool = False
    """The scenario was looked at while a policy was tuned: it proves nothing about that policy."""

    @property
    def baseline(self) -> str:
        """The policy that all others are set against."""
        return self.policies[0]

    @cached_property
    def measures(self) -> list[str]:
        """The names of all measures that any policy has in any seed, in the order in which they are shown."""
        every = (each for figures in self.figures.values() for each in figures)
        return in_order({name for each in every for name, value in each.values.items() if value is not None})

    @property
    def values(self) -> dict[str, dict[str, list[float | None]]]:
        """By policy and measure, the figure of each of `seeds`; None where a seed has none."""
        return {
            policy: {name: [each.value(name) for each in self.figures[policy]] for name in self.measures}
            for policy in self.policies
        }

    def summary(self) -> dict[str, dict[str, Estimate]]:
        """By policy and measure: mean and 95 % interval over the seeds that have the figure."""
        return {
            policy: {name: _estimate(values) for name, values in of_policy.items()}
            for policy, of_policy in self.values.items()
        }

    def ratio_to_fair(self) -> dict[str, dict[str, Estimate]]:
        """By policy but the baseline, and measure: the mean of the seeds' ratios to the baseline."""
        return {
            policy: {
                name: _estimate([each.ratios_to_fair.get(name) for each in self.figures[policy]])
                for name in self.measures
            }
            for policy in self.policies[1:]
        }

    @property
    def partial(self) -> bool:
        """True when some of the requested seeds are missing."""
        return self.seeds != self.seeds_asked

    def as_json(self) -> dict[str, Any]:
        """As `-o json` prints it; what is unknown is null. Without `partial` all seeds were run."""
        document: dict[str, Any] = {"scenario": self.scenario, "seeds": len(self.seeds)}
        if self.partial:
            document["partial"] = {"seeds_asked": len(self.seeds_asked), "seeds_done": list(self.seeds)}
        for key, estimates in (("policies", self.summary()), ("ratio_to_fair", self.ratio_to_fair())):
            document[key] = {
                policy: {name: each.as_json() for name, each in of_policy.items()}
                for policy, of_policy in estimates.items()
            }
        return document

    def csv_text(self) -> str:
        """A row for each policy and measure; what is unknown is empty. `seeds`: how many had the figure."""
        ratios = self.ratio_to_fair()
        rows = []
        for policy, of_policy in self.summary().items():
            for name, ours in of_policy.items():
                ratio = ratios.get(policy, {}).get(name, _NOTHING)
                figures = (ours.mean, ours.low, ours.high, ratio.mean, ratio.low, ratio.high)
                cells = (self.scenario, policy, name, ours.count, *figures)
                rows.append(dict(zip(_CSV_COLUMNS, cells, strict=True)))
        return csv_text(rows, _CSV_COLUMNS)


def _estimate(values: Sequence[float | None]) -> Estimate:
    return estimate([value for value in values if value is not None])
