"""The page's pictures, as SVG: parameter sweeps with the printed points, and the 30-job run as a Gantt chart.

The same figures give the same bytes: no date is written and identifiers are drawn from a fixed salt.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib import pyplot as plt

from controller.simulator.model import RunOutcome, Stay
from replication.claims import Claim, Setting
from replication.run import SETTINGS, Result, Runs

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


def draw_all(results: Sequence[Result], folder: Path) -> list[str]:
    """All pictures of these results into `folder`; their file names, each beginning with its setting's name."""
    folder.mkdir(parents=True, exist_ok=True)
    by_name = {result.setting.name: result for result in results}
    pictures = []
    if fixed := by_name.get("flowcon-fixed"):
        pictures.append(_sweep(fixed, "makespan, α = 5%", "itval", "s", folder / "flowcon-fixed-makespan.svg"))
        pictures.append(
            _sweep(fixed, "MNIST-TF's time falls, α = 10%", "itval", "%", folder / "flowcon-fixed-itval.svg")
        )
        pictures.append(_sweep(fixed, "MNIST-TF's time falls, α", "α", "%", folder / "flowcon-fixed-alpha.svg"))
    if vae := by_name.get("specon-20-vae-random"):
        pictures.append(
            _sweep(
                vae, "mean completion falls, α = 0.05", "interval", "%", folder / "specon-20-vae-random-interval.svg"
            )
        )
    if GANTT_SETTING in by_name:
        pictures += _gantts(SETTINGS[GANTT_SETTING], folder)
    return pictures


def _x(claim: Claim, along: str) -> float | None:
    """The swept parameter of a claim; None when it belongs to another sweep."""
    candidate = claim.candidate
    if candidate is None or "second time" in claim.what:
        return None
    if along == "α":
        alpha = candidate.parameters["alpha"]
        return 100 * alpha if candidate.interval_seconds == 20 and isinstance(alpha, float) else None
    return candidate.interval_seconds


def _sweep(result: Result, prefix: str, along: str, unit: str, path: Path) -> str:
    """One line a reading with its intervals, and the printed points."""
    places = [
        (x, place, claim)
        for place, claim in enumerate(result.setting.claims)
        if claim.what.startswith(prefix) and claim.unit == unit and (x := _x(claim, along)) is not None
    ]
    places.sort(key=lambda each: each[0])
    figure, axes = plt.subplots()
    xs = [x for x, _, _ in places]
    axes.plot(xs, [claim.printed_value or 0.0 for _, _, claim in places], "k^--", label="printed", zorder=5)
    for variant in result.setting.variants:
        ours = [result.estimates[place, variant.name] for _, place, _ in places]
        means = [float(each.mean or 0.0) for each in ours]
        errors = [[float((each.mean or 0.0) - (each.low or 0.0)) for each in ours],
                  [float((each.high or 0.0) - (each.mean or 0.0)) for each in ours]]  # fmt: skip
        axes.errorbar(xs, means, yerr=errors, marker="o", capsize=3, label=variant.name)
    axes.set_xlabel("α (%)" if along == "α" else f"{along} (s)")
    axes.set_ylabel(f"{prefix.split(',')[0]} ({unit})")
    axes.legend(frameon=False)
    return _save(figure, path)


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
    return _save(figure, path)


def _bar(axes: Any, row: int, stay: Stay, number: int) -> None:
    suffix = {"placed": "", "migrated": "-M", "rebalanced": "-R"}[stay.came]
    axes.barh(row, stay.to_seconds - stay.from_seconds, left=stay.from_seconds, height=0.8, color=_COLOURS[stay.came])
    axes.text(stay.to_seconds, row, f" {number}{suffix}", va="center", fontsize=5)


def _save(figure: Any, path: Path) -> str:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path.name
