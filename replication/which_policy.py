"""Writes `docs/which-policy.md`: purposes, the policy for each, and what to expect of it.

`python -m replication.which_policy` (which is `make which-policy`, two minutes, and part of `make replicate`) runs
each scenario as `slopewise simulate` does, keeps the figures in `which_policy.json`, and writes the page from them. The
page shows that command, and its figures. Figures of real runs are those of `real-runs.md`, each
beside the command that gives such figures.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from slopewise.reports.cells import SINGLE_RATIO
from slopewise.simulator.results.sweep_result import SweepResult
from slopewise.simulator.scenario.scenario import load_scenario
from slopewise.simulator.sweep import simulate

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "which-policy.md"
KEPT = Path(__file__).parent / "which_policy.json"
REAL_RUNS = Path(__file__).with_name("real-runs.md")

Kept = Mapping[str, Any]
"""By scenario: its seeds, the figures of each policy, and those of the first seed, by which one sees that it is old."""

HEAD = """\
# Which policy?

<!-- Written by `make which-policy`. -->

A policy for each purpose, with what to expect of it. [Policies](policies.md) has each in full.

- **Simulated** figures are those that the command prints: means over {seeds} seeds with 95 % intervals in brackets.
  ×0.86 is the ratio to fair sharing over the same jobs; an interval that holds 1 is no effect. Fair sharing's figure
  comes before an arrow.
- **Real** figures are those of [single runs on two cores](../replication/real-runs.md). The command prints yours.

| you want | use | first figure, simulated |
|---|---|---|
"""

RULES = """
Before you choose:

- **A policy has no effect where CPU is not short**: it moves CPU from one job to another, and adds none. Compare with
  `fair` first: `slopewise demo --jobs mine.yaml`, or a [scenario](simulator.md) like your jobs.
- **Some jobs end later.** *Worst job* is the largest ratio of a job's time to its time under fair sharing.
- **Jobs without a loss** have no growth: use a policy that decides by a deadline or an objective.
- **Other purposes** need [a policy of your own](own-policies.md#write-one-of-your-own).
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a sweep: a ratio to fair sharing, or both policies' own values."""

    measure: str
    label: str
    shown: Literal["ratio", "values"] = "ratio"


SOONER = Figure("time_to_90_seconds", "time to 90 % of a job's improvement")
DONE = Figure("jct_mean_seconds", "mean completion time")
ALL_DONE = Figure("makespan_seconds", "makespan")
WORST = Figure("worst_job_ratio", "worst job", "values")
TARGET = Figure("time_to_target_seconds", "time to the target loss")
DEADLINES = Figure("deadlines_met_ratio", "deadlines met", "values")
OBJECTIVES = Figure("qoe_satisfied_ratio", "response objectives met", "values")


@dataclass(frozen=True, slots=True)
class Real:
    """A command for one machine, and the row of a table of real-runs.md that has its figures, if it was recorded."""

    command: str
    under: str = ""
    """The heading of that page under which the row is; empty: none was recorded."""
    row: str = ""
    """How the row begins, as it is written: all cells before the figures."""
    label: str = ""
    """What the figures are."""
    runs: bool = False
    """The figures are those of several runs; otherwise fair sharing's and the policy's."""


@dataclass(frozen=True, slots=True)
class Want:
    """One thing that one may want. The first figure of the first scenario is the one of the table."""

    want: str
    policy: str
    needs: str
    scenarios: Mapping[str, Sequence[Figure]]
    """The figures shown, by the scenario's name."""
    real: Real
    beware: str


WANTS: tuple[Want, ...] = (
    Want(
        "trainings that become good and end sooner on average",
        "marginal",
        "a loss and planned steps; on several nodes the right to place and move jobs",
        {"flowcon-10": (DONE, SOONER, ALL_DONE, WORST), "specon-20-mixed": (DONE, SOONER, ALL_DONE, WORST)},
        Real(
            "make real-runs",
            "The demo",
            "| `marginal`: mean completion time (JCT) |",
            "the same round by round: ×",
            runs=True,
        ),
        "A guarantee beyond its estimates: a plan that is wrong by half can make a job end later.",
    ),
    Want(
        "trainings that become good sooner, and of which only a loss is known",
        "flowcon",
        "a loss",
        {"flowcon-10": (SOONER, DONE, WORST)},
        Real(
            "make demo",
            "The demo",
            "| `flowcon`: mean time to 90 % of a job's improvement |",
            "the same round by round: ×",
            runs=True,
        ),
        "That they end sooner: CPU is taken from jobs that have nearly converged, which then take longer.",
    ),
    Want(
        "the same on several nodes, also of different sizes",
        "flowcon2",
        "a loss, several nodes, the right to place arriving jobs",
        {"heterogeneous": (SOONER, DONE, ALL_DONE, WORST)},
        Real("slopewise demo --policy flowcon2 --nodes 2"),
        "That an idle node is filled again: running jobs stay where they are.",
    ),
    Want(
        "converged jobs that make room by moving to idle nodes",
        "specon",
        "a loss, several nodes, jobs that checkpoint and may be moved",
        {"heterogeneous": (DONE, ALL_DONE, SOONER, WORST)},
        Real(
            "slopewise demo --policy specon --nodes 2",
            "Moving jobs",
            "| mean completion time |",
            "mean completion time on a cluster",
        ),
        "Anything on one node, or where a move takes minutes. Jobs become good no sooner.",
    ),
    Want(
        "served models that answer in time, or steps that keep a pace",
        "dqoes",
        "`qoeSeconds` of each job",
        {"qoe-scarce": (OBJECTIVES,), "qoe-ample": (OBJECTIVES,)},
        Real("slopewise demo --policy dqoes", "Policies", "| `dqoes` | objectives met, of 4 |", "of 4 objectives, met"),
        "Every objective to be met where CPU is short: those out of reach are named, and get what is left.",
    ),
    Want(
        "trainings that are done by a deadline",
        "deadline",
        "`deadlineSeconds` and planned steps of each job",
        {"deadline-ample": (DEADLINES, DONE, SOONER, WORST), "deadline-scarce": (DEADLINES,)},
        Real(
            "slopewise demo --policy deadline",
            "Policies",
            "| `deadline` | deadlines met, of 8 |",
            "of 8 deadlines, met",
        ),
        "Jobs that are good sooner on average: jobs with time to spare wait.",
    ),
    Want(
        "trainings that only have to be good enough",
        "tradl",
        "`targetLoss` of each job, best with `deliverableLoss`",
        {"tradl": (TARGET, DONE, WORST)},
        Real(
            "slopewise demo --policy tradl",
            "Policies",
            "| `tradl` | mean time to the target loss |",
            "time to the target",
        ),
        "That a job ends at its target: it continues, with a floor of CPU.",
    ),
    Want(
        "arriving jobs placed where memory and CPU are, and crowded nodes relieved",
        "draps",
        "several nodes, the right to place and move jobs; no loss",
        {"heterogeneous": (DONE, ALL_DONE, SOONER, WORST)},
        Real("slopewise demo --policy draps --nodes 2"),
        "Much where nodes and jobs are alike: then the policy merely counts jobs.",
    ),
    Want(
        "arriving jobs placed where least is left to do",
        "procon",
        "several nodes, planned steps, the right to place jobs; no loss",
        {"heterogeneous": (DONE, ALL_DONE, SOONER, WORST)},
        Real("slopewise demo --policy procon --nodes 2"),
        "That a bad placement is corrected: no job is moved or resized.",
    ),
)


# --- running --------------------------------------------------------------------------------------------------


def scenarios_of(wants: Sequence[Want]) -> dict[str, list[str]]:
    """By scenario: the policies that it is run with."""
    found: dict[str, list[str]] = {}
    for want in wants:
        for scenario in want.scenarios:
            found.setdefault(scenario, []).append(want.policy)
    return found


def run_scenario(name: str, policies: Sequence[str], workers: int) -> SweepResult:
    """All of the scenario's seeds under these policies, as `slopewise simulate` runs them."""
    scenario = load_scenario(name)
    return simulate(scenario, range(1, scenario.spec.seeds + 1), workers, policies=policies)


def kept_figures(results: Mapping[str, SweepResult]) -> Kept:
    """What the page shows of each scenario."""
    return {name: kept_of(results[name], policies) for name, policies in scenarios_of(WANTS).items()}


def _figures_of(scenario: str, policy: str) -> Sequence[Figure]:
    return [
        each
        for want in WANTS
        if want.policy == policy
        for name, of in want.scenarios.items()
        if name == scenario
        for each in of
    ]


def kept_of(result: SweepResult, policies: Sequence[str]) -> dict[str, Any]:
    """What the page shows of one scenario: of the policies, and of the first seed."""
    summary, ratios = result.summary(), result.ratio_to_fair()
    found: dict[str, Any] = {"seeds": len(result.seeds), "policies": {}, "firstSeed": {}}
    for policy in policies:
        figures, (first, *_) = _figures_of(result.scenario, policy), result.figures[policy]
        found["firstSeed"][policy] = {each.measure: first.value(each.measure) for each in figures}
        found["policies"][policy] = {
            each.measure: {
                "fair": summary[result.baseline][each.measure].mean,
                "policy": summary[policy][each.measure].as_json(),
                "ratio": ratios[policy][each.measure].as_json(),
            }
            for each in figures
        }
    return found


# --- writing --------------------------------------------------------------------------------------------------


def page(kept: Kept, real: str) -> str:
    """The whole page, in Markdown. `kept`: the figures; `real`: the page that has the real figures."""
    seeds = ", ".join(str(each) for each in sorted({each["seeds"] for each in kept.values()}))
    parts = [HEAD.format(seeds=seeds), *(_row(want, kept) for want in WANTS), RULES]
    return "".join(parts + [_section(want, kept, real) for want in WANTS])


def _row(want: Want, kept: Kept) -> str:
    scenario, (first, *_) = next(iter(want.scenarios.items()))
    simulated = f"{first.label} {shown(first, kept[scenario], want.policy)}"
    return f"| {want.want} | [`{want.policy}`](#{want.policy}) | {simulated} |\n"


def _section(want: Want, kept: Kept, real: str) -> str:
    lines = [f"\n## {want.policy}\n", f"Needs {want.needs}.\n"]
    for scenario, figures in want.scenarios.items():
        found = "; ".join(f"{each.label} {shown(each, kept[scenario], want.policy)}" for each in figures)
        lines.append(f"- **Simulated**: `slopewise simulate {scenario} --policy {want.policy}`; {found}")
    lines.append(f"- **Real**: `{want.real.command}`; {real_figures(want.real, real)}")
    lines.append(f"- **Do not expect**: {want.beware[0].lower()}{want.beware[1:]}")
    return "\n".join(lines) + "\n"


def shown(figure: Figure, of_scenario: Mapping[str, Any], policy: str) -> str:
    """A ratio with its interval, `×0.86 [0.83, 0.88]`, or fair sharing's value and the policy's with its own."""
    found = of_scenario["policies"][policy][figure.measure]
    if figure.shown == "ratio":
        return f"×{_with_interval(found['ratio'])}"
    return f"{_number(found['fair'])} → {_with_interval(found['policy'])}"


def _with_interval(estimate: Mapping[str, Any]) -> str:
    low, high = estimate["low"], estimate["high"]
    return _number(estimate["mean"]) + ("" if low is None or high is None else f" [{_number(low)}, {_number(high)}]")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def real_figures(real: Real, page: str) -> str:
    """As they are on the page of real runs; ValueError where they no longer are."""
    if not real.under:
        return "not recorded"
    section = page.partition(f"\n## {real.under}\n")[2].partition("\n## ")[0]
    rows = [line.removeprefix(real.row) for line in section.splitlines() if line.startswith(real.row)]
    if len(rows) != 1:
        raise ValueError(
            f"real-runs.md has under {real.under!r} {len(rows)} rows {real.row!r}; change WANTS in which_policy.py"
        )
    cells = [cell.strip() for cell in rows[0].strip("|").split("|")]
    if not {*cells} - {"–"}:
        return "not recorded"
    if real.runs:
        least, most, mean, *_ = cells
        return f"{real.label}{least} to ×{most}, mean {mean}"
    return f"{real.label} {_of_one_run(*cells[:2])}"


def _of_one_run(fair: str, policy: str) -> str:
    """`146 s → 92 s`; seconds that differ by less than one run resolves are no gain, and the page says so."""
    figures = f"{fair} → {policy}"
    if not (fair.endswith(" s") and policy.endswith(" s")):
        return figures
    ratio = float(policy.removesuffix(" s")) / float(fair.removesuffix(" s"))
    return figures if abs(ratio - 1) > SINGLE_RATIO else f"{figures}, which one run does not resolve"


def write(workers: int) -> None:
    """Run all scenarios, keep their figures and write the page."""
    results = {name: run_scenario(name, policies, workers) for name, policies in scenarios_of(WANTS).items()}
    KEPT.write_text(json.dumps(kept_figures(results), indent=1) + "\n", encoding="utf-8")
    write_page()


def write_page() -> None:
    """Write the page from the figures that are kept."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    PAGE.write_text(page(kept, REAL_RUNS.read_text(encoding="utf-8")), encoding="utf-8")


def main(workers: Annotated[int, typer.Option(min=1, help="Processes.")] = os.cpu_count() or 1) -> None:
    """Simulate the figures of the page, and write docs/which-policy.md."""
    write(workers)
    Console(stderr=True).print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    typer.run(main)
