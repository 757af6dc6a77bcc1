"""Draws the α x interval grids: one panel a figure, one cell a combination, its mean written in it."""

from __future__ import annotations

import math
from typing import Any

from matplotlib import pyplot as plt

from replication.run import Result
from replication.settings_grids import Grid, places

LEAST_PERCENT = 5.0
"""The full colour stands for at least so much, so that noise is pale."""


def draw_grid(result: Result, grid: Grid) -> Any:
    """The figure, ready to be saved."""
    figure, panels = plt.subplots(1, len(grid.figures), figsize=(9, 3))
    for axes, what in zip(panels, grid.figures, strict=True):
        _panel(axes, result, what, grid)
    figure.suptitle(grid.setting.title)
    return figure


def _panel(axes: Any, result: Result, what: str, grid: Grid) -> None:
    columns = [variant.name for variant in grid.setting.variants]
    rows = places(grid, what)
    means = [[_mean(result, place, column) for column in columns] for _, place in rows]
    unit = grid.setting.claims[rows[0][1]].unit
    if unit == "%":
        most = max([LEAST_PERCENT, *(abs(mean) for row in means for mean in row if not math.isnan(mean))])
        axes.pcolormesh(means, cmap="RdBu", vmin=-most, vmax=most, alpha=0.6)
    else:
        axes.pcolormesh(means, cmap="Greys", vmin=0, alpha=0.5)
    for y, row in enumerate(means):
        for x, mean in enumerate(row):
            axes.text(
                x + 0.5, y + 0.5, "–" if math.isnan(mean) else f"{mean:.1f}", ha="center", va="center", fontsize=8
            )
    axes.invert_yaxis()
    axes.set_xticks([x + 0.5 for x in range(len(columns))], columns)
    axes.set_yticks([y + 0.5 for y in range(len(rows))], [f"{alpha:g}" for alpha, _ in rows])
    axes.set_xlabel("interval")
    axes.set_ylabel("α")
    axes.set_title(f"{what} (%)" if unit == "%" else what, fontsize=9)


def _mean(result: Result, place: int, column: str) -> float:
    mean = result.estimates[place, column].mean
    return math.nan if mean is None else mean
