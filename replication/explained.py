"""Draws the pictures of `docs/marginal.md`: value and index, turns on one core, a curve fitted early, and ends.

`python -m replication.explained` (half a minute) writes them into `docs/images/marginal`. All but the first are of real
passes in the simulator, over the jobs of seed `SEED` of one scenario; the same figures give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from replication.claims import Candidate
from replication.plots import save
from replication.run import Runs
from slopewise.model import CpuAllocation, Job, JobState
from slopewise.policies.marginal import FAVOURS, curve
from slopewise.policies.marginal.forecast import Forecast, index_of
from slopewise.simulator.world.model import JobOutcome, RunOutcome

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images" / "marginal"

SCENARIO, SEED = "flowcon-10", 3
FEW: Mapping[str, object] = {
    "generate": {
        "count": 5,
        "arriveSeconds": {"uniform": [0, 100]},
        "models": dict.fromkeys(("vae-pytorch", "vae-tensorflow", "mnist-pytorch", "mnist-tensorflow", "birnn"), 1),
    }
}
"""So many jobs that their turns can be told apart."""
INTERVAL_SECONDS = 10.0

WORK, KAPPA = 100.0, 10.0
A_JOB = Job("job", "job", "team", "node", JobState.TRAINING, 0.0, CpuAllocation(None, 1000))
"""The job whose value is drawn."""

POINTS, NOISE = 24, 0.02
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#f0e442", "#882255", "#44aa99")
GREY = "#888888"


def outcomes(overrides: Mapping[str, object]) -> tuple[RunOutcome, RunOutcome]:
    """The same jobs under `fair` and under `marginal`, with their events; `overrides`: keys of the scenario."""
    runs = Runs(SCENARIO, SEED, overrides, trace=True)
    return runs.of(Candidate("fair", interval_seconds=INTERVAL_SECONDS)), runs.of(
        Candidate("marginal", interval_seconds=INTERVAL_SECONDS)
    )


def draw_value(folder: Path) -> str:
    """Improvement over work, and under it what the next core-second is worth at each point of the job's life."""
    work = [WORK * at / 400 for at in range(400)]
    lives = [Forecast(A_JOB, done, planned=True, total=WORK, sure=WORK, kappa=KAPPA) for done in work]
    whole = 1 - math.exp(-KAPPA)
    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5), sharex=True)
    above.plot(work, [100 * (1 - math.exp(-KAPPA * done / WORK)) / whole for done in work], color=COLOURS[0])
    for percent in (90, 99):
        at = lives[0].work_to(percent / 100)
        above.plot([at, at], [0, percent], color=GREY, linewidth=0.8, linestyle=":")
        above.annotate(f"{percent} % after {at:.0f}", (at, percent), (at + 2, percent - 14), color=GREY)
    above.set_ylabel("% of the improvement")
    above.set_title("a job of 100 core-seconds: most of its improvement comes early, its end comes late")
    for colour, (favour, weights) in zip(COLOURS, FAVOURS.items(), strict=False):
        index = [index_of(each, weights, WORK) for each in lives]
        below.plot(work, [min(each, 0.1) for each in index], color=colour, label=f"favour: {favour}")
    below.set_ylabel("value per core-second")
    below.set_xlabel("core-seconds done")
    below.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.68, 1.0))
    return save(figure, folder / "value.svg")


def draw_turns(fair: RunOutcome, marginal: RunOutcome, folder: Path) -> str:
    """Who uses the core when: fair sharing above, `marginal` below; the dots are 90 % of each job's improvement."""
    end = max(fair.ended_seconds, marginal.ended_seconds)
    figure, panels = plt.subplots(2, 1, figsize=(8, 5), sharex=True)
    for axes, outcome, title in zip(panels, (fair, marginal), ("fair sharing", "marginal"), strict=True):
        times, shares = _shares(outcome)
        axes.stackplot(times, shares, colors=COLOURS, labels=[job.name for job in outcome.jobs], step="post")
        for number, job in enumerate(outcome.jobs):
            _marks(axes, job, COLOURS[number])
        mean = np.mean([job.jct_seconds for job in outcome.jobs])
        axes.set_title(f"{title}: jobs end after {mean:.0f} s on average")
        axes.set_xlim(0, 1.02 * end)
        axes.set_ylim(0, 1.2)
        axes.set_yticks([0, 0.5, 1])
        axes.set_ylabel("share of the core")
    panels[-1].set_xlabel("s      (● 90 % of the improvement, ▼ end)")
    return save(figure, folder / "turns.svg")


def _marks(axes: Any, job: JobOutcome, colour: str) -> None:
    if job.at_90_seconds is not None:
        axes.plot([job.at_90_seconds], [1.07], "o", color=colour, markersize=6)
    if job.finished_seconds is not None:
        axes.plot([job.finished_seconds], [1.15], "v", color=colour, markersize=6)


def _shares(outcome: RunOutcome) -> tuple[list[float], list[list[float]]]:
    """The share of the core of each job from each moment on, by the weights in effect."""
    arrived = {job.name: job.arrived_seconds for job in outcome.jobs}
    ended = {job.name: job.finished_seconds or outcome.ended_seconds for job in outcome.jobs}
    changes = sorted(
        (event.at_seconds, event.job, float(str(event.detail["request_millicores"])))
        for event in outcome.events
        if event.kind == "resized"
    )
    times = sorted({0.0, *arrived.values(), *ended.values(), *(at for at, _, _ in changes)})
    weights, place, rows = dict.fromkeys(arrived, 1000.0), 0, []
    for time in times:
        while place < len(changes) and changes[place][0] <= time:
            weights[changes[place][1]] = changes[place][2]
            place += 1
        running = [name for name in arrived if arrived[name] <= time < ended[name]]
        total = sum(weights[name] for name in running) or 1.0
        rows.append([weights[name] / total if name in running else 0.0 for name in arrived])
    return times, [list(each) for each in zip(*rows, strict=True)]


def draw_fits(folder: Path) -> str:
    """One noisy curve, and the curve that is fitted after few points and after more."""
    random = np.random.default_rng(SEED)
    figure, panels = plt.subplots(1, 3, figsize=(8, 2.8), sharey=True)
    done = np.linspace(0.5, WORK / 3, POINTS)
    levels = 0.2 + 2.0 * np.exp(-KAPPA / WORK * done) + NOISE * 2 * random.normal(size=POINTS)
    work = np.linspace(1.0, WORK, 200)
    for axes, seen in zip(panels, (5, 10, POINTS), strict=True):
        points = np.stack([done[:seen], levels[:seen]], axis=1).astype(np.float32)
        (kappa,) = curve.fit([points], [1.0], [WORK])
        falling = np.exp(-kappa / WORK * points[:, 0])
        slope = np.cov(falling, points[:, 1])[0, 1] / falling.var(ddof=1)
        offset = points[:, 1].mean() - slope * falling.mean()
        axes.plot(work, offset + slope * np.exp(-kappa / WORK * work), color=COLOURS[0], linewidth=1.5)
        axes.plot(points[:, 0], points[:, 1], ".", color="black", markersize=4)
        axes.set_title(f"{seen} points: κ = {kappa:.0f}")
        axes.set_xlabel("core-seconds")
        axes.set_ylim(0, 2.3)
    panels[0].set_ylabel("loss")
    return save(figure, folder / "fits.svg")


def draw_ends(fair: RunOutcome, marginal: RunOutcome, folder: Path) -> str:
    """Each job's end under fair sharing and under `marginal`, and when each was good."""
    order = sorted(range(len(fair.jobs)), key=lambda place: _after(fair.jobs[place], "finished_seconds"))
    figure, panels = plt.subplots(1, 2, figsize=(8, 3.6))
    for axes, name, title in zip(
        panels, ("at_90_seconds", "finished_seconds"), ("90 % of the improvement", "end"), strict=True
    ):
        for row, place in enumerate(order):
            before, after = (_after(outcome.jobs[place], name) for outcome in (fair, marginal))
            axes.plot([before, after], [row, row], color=COLOURS[2] if after <= before else COLOURS[5], linewidth=2)
            axes.plot([before], [row], "o", color=GREY, markersize=5)
            axes.plot([after], [row], "o", color=COLOURS[0], markersize=5)
        axes.set_title(title)
        axes.set_xlabel("s after its arrival")
        axes.set_yticks([])
    handles: Sequence[Any] = [
        mpl.lines.Line2D([], [], marker="o", linestyle="", color=GREY, label="fair sharing"),
        mpl.lines.Line2D([], [], marker="o", linestyle="", color=COLOURS[0], label="marginal"),
    ]
    panels[1].legend(handles=handles, frameon=False, loc="lower right")
    return save(figure, folder / "ends.svg")


def _after(job: JobOutcome, name: str) -> float:
    at: float | None = getattr(job, name)
    return math.nan if at is None else at - job.arrived_seconds


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    draw_value(FOLDER)
    draw_fits(FOLDER)
    draw_turns(*outcomes(FEW), FOLDER)
    draw_ends(*outcomes({}), FOLDER)


if __name__ == "__main__":
    main()
