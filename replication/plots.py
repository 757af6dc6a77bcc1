"""The page's pictures, as SVG: parameter sweeps with the printed points, and the 30-job run as a Gantt chart.

The same figures give the same bytes: no date is written and identifiers are drawn from a fixed salt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from cycler import cycler
from matplotlib import pyplot as plt

from replication.claims import AGAIN, Claim, Setting
from replication.heat_maps import draw_grid
from replication.marginal_runs import Kept
from replication.run import SETTINGS, Result, Runs
from replication.settings_grids import GRIDS
from slopewise.reports.estimates import Estimate
from slopewise.simulator.world.model import RunOutcome, Stay

mpl.use("svg")
mpl.rcParams.update(
    {
        "svg.hashsalt": "slopewise",
        "svg.fonttype": "path",
        "figure.figsize": (8, 4),
        "figure.facecolor": "white",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": cycler(color=["#0072b2", "#e69f00", "#009e73", "#cc79a7"]),
        "font.size": 9,
    }
)

GANTT_SETTING = "specon-30-mixed"
GANTT_SEED = 1


@dataclass(frozen=True, slots=True)
class Sweep:
    """A picture of one setting: the claims whose names begin with `prefix`, along one parameter."""

    setting: str
    prefix: str
    along: Literal["α", "itval", "interval"]
    fixed: str
    """What does not vary, for the title."""
    file: str


SWEEPS = (
    Sweep("flowcon-fixed", "makespan falls, α = 5%", "itval", "α = 5%", "flowcon-fixed-makespan.svg"),
    Sweep("flowcon-fixed", "MNIST-TF's time falls, α = 10%", "itval", "α = 10%", "flowcon-fixed-itval.svg"),
    Sweep("flowcon-fixed", "MNIST-TF's time falls, α", "α", "itval = 20 s", "flowcon-fixed-alpha.svg"),
    Sweep(
        "specon-20-vae-random", "mean completion falls, α = 0.05", "interval", "α = 0.05",
        "specon-20-vae-random-interval.svg",
    ),
)  # fmt: skip


def draw_all(results: Sequence[Result], folder: Path) -> dict[str, list[str]]:
    """All pictures of these results into `folder`; their file names by setting."""
    folder.mkdir(parents=True, exist_ok=True)
    by_name = {result.setting.name: result for result in results}
    pictures: dict[str, list[str]] = {name: [] for name in by_name}
    for sweep in SWEEPS:
        if result := by_name.get(sweep.setting):
            pictures[sweep.setting].append(draw_sweep(result, sweep, folder / sweep.file))
    for grid in GRIDS:
        if result := by_name.get(grid.setting.name):
            pictures[grid.setting.name].append(save(draw_grid(result, grid), folder / grid.file))
    if GANTT_SETTING in by_name:
        pictures[GANTT_SETTING] += _gantts(SETTINGS[GANTT_SETTING], folder)
    return pictures


def points_of(setting: Setting, sweep: Sweep) -> list[tuple[float, int, float]]:
    """(swept parameter, the claim's place in its setting, printed figure) of a sweep's claims, in order."""
    points = []
    for place, claim in enumerate(setting.claims):
        x = _x(claim, sweep.along) if claim.what.startswith(sweep.prefix) else None
        if x is not None and isinstance(claim.printed_value, float):
            points.append((x, place, claim.printed_value))
    return sorted(points)


def _x(claim: Claim, along: Literal["α", "itval", "interval"]) -> float | None:
    """The swept parameter of a claim; None when it belongs to another sweep."""
    candidate = claim.candidate
    if candidate is None or claim.what.endswith(AGAIN):
        return None
    if along == "α":
        alpha = candidate.parameters["alpha"]
        return 100 * alpha if candidate.interval_seconds == 20 and isinstance(alpha, float) else None
    return candidate.interval_seconds


def draw_sweep(result: Result, sweep: Sweep, path: Path) -> str:
    """One line a reading with its intervals, and the printed points; the name of the file."""
    points = points_of(result.setting, sweep)
    xs = [x for x, _, _ in points]
    figure, axes = plt.subplots()
    axes.plot(xs, [printed for _, _, printed in points], "k^--", label="printed", zorder=5)
    for variant in result.setting.variants:
        means, below, above = _with_errors([result.estimates[place, variant.name] for _, place, _ in points])
        axes.errorbar(xs, means, yerr=[below, above], marker="o", capsize=3, label=variant.name)
    axes.axhline(0, color="#bbbbbb", linewidth=0.6)
    axes.set_xlabel("α (%)" if sweep.along == "α" else f"{sweep.along} (s)")
    axes.set_ylabel(f"{sweep.prefix.split(',')[0]} (%)")
    axes.set_title(f"{sweep.setting}, {sweep.fixed}")
    axes.legend(frameon=False)
    return save(figure, path)


def draw_trade(panels: Mapping[str, Kept], completion: str, worst: str, path: Path) -> str:
    """What each policy gains on average (to the left) and what the worst job pays (upwards); a panel a setting."""
    figure, every = plt.subplots(1, len(panels), figsize=(9, 3.6), squeeze=False, sharey=True, layout="constrained")
    policies = list(dict.fromkeys(policy for kept in panels.values() for policy in kept.policies))
    for axes, (title, kept) in zip(every[0], panels.items(), strict=True):
        axes.axvline(1, color="#bbbbbb", linewidth=0.6)
        for policy in kept.policies:
            x, y = (kept.of(policy, measure).mean for measure in (completion, worst))
            place = policies.index(policy)
            axes.plot(x, y, "os^Dv<>p*X"[place % 10], color=f"C{place % 4}", label=policy)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("mean completion, ratio to fair sharing")
        axes.set_ylabel("worst job, ratio to fair sharing")
        axes.set_title(title)
    handles, labels = max((axes.get_legend_handles_labels() for axes in every[0]), key=lambda it: len(it[1]))
    figure.legend(handles, labels, frameon=False, loc="outside right center")
    return save(figure, path)


def _with_errors(estimates: Sequence[Estimate]) -> tuple[list[float], list[float], list[float]]:
    """Means, and how far their intervals reach below and above; NaN, which is not drawn, where there is no figure."""
    means = [math.nan if each.mean is None else each.mean for each in estimates]
    below = [0.0 if each.low is None else mean - each.low for mean, each in zip(means, estimates, strict=True)]
    above = [0.0 if each.high is None else each.high - mean for mean, each in zip(means, estimates, strict=True)]
    return means, below, above


def _gantts(setting: Setting, folder: Path) -> list[str]:
    """The same drawn jobs under the default scheduler and under SpeCon, on one time axis."""
    runs = Runs(setting.scenario, GANTT_SEED)
    candidate = next(claim.candidate for claim in setting.claims if claim.candidate is not None)
    outcomes = {"default scheduler": runs.of(setting.baseline), "SpeCon": runs.of(candidate)}
    end = max(outcome.ended_seconds for outcome in outcomes.values())
    return [
        _gantt(outcome, title, end, folder / f"{setting.name}-gantt-{number}.svg")
        for number, (title, outcome) in enumerate(outcomes.items(), start=1)
    ]


_COLOURS = {"placed": "#0072b2", "migrated": "#e69f00", "rebalanced": "#cc79a7"}


def _gantt(outcome: RunOutcome, title: str, end_seconds: float, path: Path) -> str:
    """A row for each job on each node it was on; -M after a slow move, -R after a rebalancing one."""
    stays = [(stay, number) for number, job in enumerate(outcome.jobs, start=1) for stay in job.stays]
    stays.sort(key=lambda each: (each[0].node, each[0].from_seconds))
    figure, axes = plt.subplots(figsize=(9, 0.13 * len(stays) + 1))
    for row, (stay, number) in enumerate(stays):
        _bar(axes, row, stay, number)
    nodes = [stay.node for stay, _ in stays]
    for node in sorted(set(nodes)):
        rows = [row for row, name in enumerate(nodes) if name == node]
        axes.axhline(rows[0] - 0.5, color="#bbbbbb", linewidth=0.6)
        axes.text(-0.01 * end_seconds, sum(rows) / len(rows), node, ha="right", va="center")
    axes.set_xlim(0, end_seconds)
    axes.set_ylim(len(stays) - 0.5, -0.5)
    axes.set_yticks([])
    axes.set_xlabel("s")
    axes.set_title(f"{title}, seed {GANTT_SEED}")
    axes.legend(
        handles=[mpl.patches.Patch(color=colour, label=kind) for kind, colour in _COLOURS.items()],
        frameon=False, loc="lower right",
    )  # fmt: skip
    return save(figure, path)


def _bar(axes: Any, row: int, stay: Stay, number: int) -> None:
    suffix = {"placed": "", "migrated": "-M", "rebalanced": "-R"}[stay.came]
    axes.barh(row, stay.to_seconds - stay.from_seconds, left=stay.from_seconds, height=0.8, color=_COLOURS[stay.came])
    axes.text(stay.to_seconds, row, f" {number}{suffix}", va="center", fontsize=5)


def save(figure: Any, path: Path) -> str:
    """Write a picture without a date; the name of its file."""
    if figure.get_layout_engine() is None:
        figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path.name
