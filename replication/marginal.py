"""Writes `docs/marginal-figures.md`: what the policy `marginal` gives in the simulator, beside other policies.

`python -m replication.marginal` (ten minutes on one core) runs each setting over seeds that nothing was tuned on. The
page has the means with their 95 % intervals, and beside them what was aimed at, also where it is not reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from slopewise.reports.estimates import Estimate
from slopewise.simulator.results.sweep_result import SweepResult
from slopewise.simulator.scenario.scenario import load_scenario
from slopewise.simulator.sweep import simulate

PAGE = Path(__file__).resolve().parent.parent / "docs" / "marginal-figures.md"

TUNING_SEEDS = range(1000, 1024)
"""Seeds on which readings of the policy were compared; no figure of the page is from them."""

RATIOS = ("jct_mean_seconds", "makespan_seconds", "time_to_90_seconds", "time_to_99_seconds")
WORST = "worst_job_ratio"

MARGINAL = "marginal"


@dataclass(frozen=True, slots=True)
class Aim:
    """At most; None: none was stated."""

    jct: float | None = None
    makespan: float | None = None
    t90: float | None = None
    t99: float | None = None
    worst: float | None = None

    def shown(self) -> list[str]:
        """A cell for each figure."""
        figures = (self.jct, self.makespan, self.t90, self.t99, self.worst)
        return ["–" if each is None else f"{each:.2f}" for each in figures]


@dataclass(frozen=True, slots=True)
class Setting:
    """One scenario, with some of its keys replaced, and the policies that are compared on it."""

    title: str
    scenario: str
    aim: Aim
    overrides: Mapping[str, object] = field(default_factory=dict)
    policies: Sequence[str] = (MARGINAL, "flowcon", "srpt-oracle")


ONE_NODE = Aim(0.76, 0.98, 0.78, 0.93, 1.03)
SEVERAL = Aim(0.76, 0.88, 0.67, 0.95, 1.03)
NO_PLAN: Mapping[str, object] = {"stepsPerCpuSecond": None}
FAVOURS: Mapping[str, object] = {
    "policies": [
        {"name": MARGINAL, "label": f"favour {favour}", "parameters": {"favour": favour}}
        for favour in ("balanced", "quality", "full", "ends")
    ]
}

NO_ORACLE = (MARGINAL, "flowcon")

SETTINGS: tuple[Setting, ...] = (
    Setting("one node, 10 jobs, plan known", "flowcon-10", ONE_NODE),
    Setting("4 nodes, 20 mixed jobs, plan known", "specon-20-mixed", SEVERAL),
    Setting("drops of the learning rate, plan known", "learning-rate-drops", Aim(0.70, 0.98, 0.78, 0.78, 1.0)),
    Setting("one node, 10 jobs, no plan, no class", "flowcon-10", Aim(0.82, 1.0, 0.85, 1.0, 1.05), NO_PLAN, NO_ORACLE),
    Setting(
        "one node, 10 jobs, plan known, hard limits",
        "flowcon-10",
        Aim(0.80, 1.04, 0.90, None, 1.12),
        {"control": "limits"},
        NO_ORACLE,
    ),
    Setting("noisy losses, one node, plan known", "noisy", ONE_NODE, {}, NO_ORACLE),
    Setting(
        "one node, 10 jobs, plan known, each `favour`",
        "flowcon-10",
        Aim(),
        FAVOURS,
        ("favour balanced", "favour quality", "favour full", "favour ends"),
    ),
    Setting("heavy-tailed works, plan known", "heavy-tailed", Aim(0.78, 0.95, 0.78, 0.88, 1.05), {}, NO_ORACLE),
    Setting(
        "4 nodes, 20 mixed jobs, no plan, no class",
        "specon-20-mixed",
        Aim(0.82, 1.0, 0.85, 1.0, 1.05),
        NO_PLAN,
        NO_ORACLE,
    ),
    Setting("overfitting losses, one node, plan known", "overfitting", ONE_NODE, {}, NO_ORACLE),
)

HEAD = """\
# Figures of `marginal`

Written by `python -m replication.marginal`; do not edit. [policies.md](policies.md#marginal) says what the policy does.

Means over seeds {first} to {last} of each scenario with 95 % intervals, in the simulator with its real pass. The first
four figures are ratios to `fair`, seed by seed: below 1 is better, and an interval that holds 1 is no effect. *Worst
job* is the largest ratio of a job's time to its mean time over eight fair runs, with fair sharing's own in its row.
*Aim* is what was set out to reach; a figure above it is in *italics*. Readings of the policy were compared on seeds
{tuned} and above, which are none of these. `srpt-oracle` knows what work is left; `flowcon` has the parameters of the
scenario. Contention is what the scenario says (1 % of the work for each further job on a node, unless it says
otherwise), and the policy assumes none.

"""

COLUMNS = (
    "| policy | mean completion | makespan | time to 90 % | time to 99 % | worst job |\n|---|---|---|---|---|---|\n"
)


def run_setting(setting: Setting, seeds: Sequence[int], workers: int) -> SweepResult:
    """All seeds of one setting."""
    scenario = load_scenario(setting.scenario, setting.overrides)
    return simulate(scenario, seeds, workers, policies=setting.policies)


def page(results: Sequence[tuple[Setting, SweepResult]], seeds: Sequence[int]) -> str:
    """The whole page, in Markdown."""
    head = HEAD.format(first=seeds[0], last=seeds[-1], tuned=TUNING_SEEDS[0])
    return head + "\n".join(_section(setting, result) for setting, result in results)


def _section(setting: Setting, result: SweepResult) -> str:
    ratios, values = result.ratio_to_fair(), result.summary()
    lines = [f"## {setting.title[0].upper()}{setting.title[1:]}\n\n"]
    lines.append(f"Scenario `{setting.scenario}`{_replaced(setting)}.\n\n")
    lines.append(COLUMNS)
    if any(cell != "–" for cell in setting.aim.shown()):
        lines.append(f"| aim | {' | '.join(setting.aim.shown())} |\n")
    lines.append(f"| `fair` | 1 | 1 | 1 | 1 | {_number(values[result.baseline][WORST])} |\n")
    aims = (setting.aim.jct, setting.aim.makespan, setting.aim.t90, setting.aim.t99, setting.aim.worst)
    for policy in setting.policies:
        figures = [*(ratios[policy][name] for name in RATIOS), values[policy][WORST]]
        ours = policy not in ("flowcon", "srpt-oracle")
        cells = [_cell(figure, aim if ours else None) for figure, aim in zip(figures, aims, strict=True)]
        name = f"`{policy}`" if " " not in policy else f"`{MARGINAL}`, {policy}"
        lines.append(f"| {name} | {' | '.join(cells)} |\n")
    return "".join(lines)


def _replaced(setting: Setting) -> str:
    kept = {key: value for key, value in setting.overrides.items() if key != "policies"}
    named = ", ".join(f"`{key}: {'null' if value is None else value}`" for key, value in kept.items())
    return f" with {named}" if named else ""


def _cell(figure: Estimate, aim: float | None) -> str:
    text = _number(figure)
    if aim is not None and figure.mean is not None and round(figure.mean, 2) > aim:
        return f"*{text}*"
    return text


def _number(figure: Estimate) -> str:
    if figure.mean is None:
        return "–"
    interval = "" if figure.low is None or figure.high is None else f" [{figure.low:.2f}, {figure.high:.2f}]"
    return f"{figure.mean:.2f}{interval}"


def main(
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    seeds: Annotated[int, typer.Option(min=2, help="Seeds a setting.")] = 24,
) -> None:
    """Simulate the figures of the page, and write docs/marginal-figures.md."""
    err, asked = Console(stderr=True), range(1, seeds + 1)
    results = []
    for setting in SETTINGS:
        results.append((setting, run_setting(setting, asked, workers)))
        err.print(f"{setting.title}: done")
    PAGE.write_text(page(results, asked), encoding="utf-8")
    err.print(f"wrote {PAGE.name}")


if __name__ == "__main__":
    typer.run(main)
