"""α x interval of SpeCon and of FlowCon, which the papers vary little: gain and overhead of every combination.

A column is an interval, a row is an α and a figure. Overhead is what is done to jobs: moves, or changes of their CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from replication.claims import (
    NOT_PRINTED,
    Candidate,
    Claim,
    Setting,
    Variant,
    gain,
    jct_mean_seconds,
    makespan_seconds,
    of_ours,
    reduction,
)
from replication.figures import migrations, resizes
from replication.settings_clusters import MIXED_20
from replication.settings_flowcon import READINGS, TEN
from slopewise.simulator.world.model import RunOutcome

ALPHAS = (0.01, 0.03, 0.05, 0.1)
INTERVALS_SECONDS = (20.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Grid:
    """A setting whose rows are an α and a figure, and whose columns are intervals; `file` is its picture."""

    setting: Setting
    figures: tuple[str, ...]
    file: str


def _row(figure: str, alpha: float) -> str:
    return f"{figure}, α = {alpha:g}"


def places(grid: Grid, figure: str) -> list[tuple[float, int]]:
    """(α, place of its row among the claims) of one figure, in order."""
    rows = [claim.what for claim in grid.setting.claims]
    return [(alpha, rows.index(_row(figure, alpha))) for alpha in ALPHAS]


def _grid(
    name: str,
    title: str,
    over: Setting,
    policy: str,
    reading: Variant,
    overhead: tuple[str, Callable[[RunOutcome], float]],
) -> Grid:
    """The jobs and the baseline of a published setting, under the policy with every α and interval."""
    completion, makespan, (done, count) = "mean completion falls", "makespan falls", overhead
    candidates = {alpha: Candidate(policy, {"alpha": alpha}) for alpha in ALPHAS}
    claims: list[Claim] = [
        gain(_row(what, alpha), *NOT_PRINTED, "%", reduction(figure), who)
        for what, figure in ((completion, jct_mean_seconds), (makespan, makespan_seconds))
        for alpha, who in candidates.items()
    ]
    claims += [Claim(_row(done, alpha), *NOT_PRINTED, "", of_ours(count), who) for alpha, who in candidates.items()]
    columns = tuple(replace(reading, name=f"{seconds:g} s", interval_seconds=seconds) for seconds in INTERVALS_SECONDS)
    setting = replace(over, name=name, title=title, claims=tuple(claims), variants=columns)
    return Grid(setting, (completion, makespan, done), f"{name}.svg")


SPECON = _grid(
    "specon-grid", "SpeCon: α x interval, 20 mixed jobs", MIXED_20, "specon", MIXED_20.variants[0],
    ("moves a run", migrations),
)  # fmt: skip
FLOWCON = _grid(
    "flowcon-grid", "FlowCon: α x itval, ten jobs", TEN, "flowcon", READINGS[0], ("changes of CPU a run", resizes)
)

GRIDS = (SPECON, FLOWCON)
SETTINGS = tuple(grid.setting for grid in GRIDS)
