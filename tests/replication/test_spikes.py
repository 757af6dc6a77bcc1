"""The study of spikes: what was taken misjudges least, and its page is written by it."""

from __future__ import annotations

import itertools
import re

import pytest

from replication.spike_candidates import RANGES, averages, never_forgets, taken
from replication.spikes import (
    AVERAGE_HEAD,
    LOOKS,
    PAGE,
    RANGE_HEAD,
    curves,
    level_rows,
    misjudged,
    range_rows,
    spiked,
)

TEXT = PAGE.read_text(encoding="utf-8")


def first_figures(cells: list[str] | tuple[str, ...]) -> list[float]:
    return [float(cell.split()[0]) for cell in cells]


def test_of_ranges_the_one_that_was_taken_misjudges_least_in_every_column() -> None:
    some = list(itertools.islice(curves(LOOKS, (0.003,)), 0, None, 3))
    rows = [list(row) for row in range_rows(some)]
    figures = {row[0]: first_figures(row[1:6]) for row in rows}
    ours = figures.pop("held back, confirmed, settled (taken)")
    assert ours[0] < 0.1, "without spikes it is the range as it was"
    before = figures["never forgets, as it was"]
    for others in figures.values():
        assert all(mine <= other for mine, other in zip(ours[1:], others[1:], strict=True))
    assert all(mine < 0.5 * was for mine, was in zip(ours[1:4], before[1:4], strict=True))


def test_a_spiked_curve_is_judged_against_its_calm_twin() -> None:
    curve = next(iter(curves(LOOKS, (0.0,))))
    right = never_forgets(curve.values)
    assert misjudged(taken(curve.values), right) == 0
    assert misjudged(never_forgets(spiked(curve, 0, 1, 1e12)), right) > 10


def test_of_levels_the_median_is_hardly_noisier_and_not_moved_by_a_spike() -> None:
    mean, median = (first_figures(list(row[1:])) for row in level_rows())
    assert median[0] < 1.15 * mean[0]
    assert (mean[2] > 1e11, median[2] < 0.05) == (True, True)


@pytest.mark.parametrize("name", [*averages(), *RANGES])
def test_the_page_has_a_row_for_everything_that_was_tried(name: str) -> None:
    (row,) = re.findall(rf"^\| {re.escape(name)} \|(.*)\|$", TEXT, re.MULTILINE)
    head = AVERAGE_HEAD if name in averages() else RANGE_HEAD
    assert len(row.split("|")) == len(head) - 1, "run `python -m replication.spikes`"


def test_the_scenario_is_named_where_the_study_is() -> None:
    assert "`slopewise simulate spikes`" in TEXT
