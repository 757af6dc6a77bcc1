"""Every table at several widths: no name is cut, and no figure is lost that is not a column too many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import RenderableType
from rich.text import Text
from support.demo_result import sample_result
from support.printing import printed, words

from slopewise.demo.report.sections import report_of
from slopewise.operate import restore, sweep
from slopewise.reports.cells import Cell, Row
from slopewise.reports.columns import fitting, named, remarks, sized, table_of
from slopewise.reports.live_table import LiveRow, LiveTable
from slopewise.reports.report import Comparison, terminal

WIDTHS = [60, 80, 140]
NAMES = ["digits-conv", "team-of-the-long-name/experiment-0042-resnet-152-imagenet-worker-7"]


def of_demo(policies: int, rounds: int = 1) -> RenderableType:
    fair, flowcon = sample_result().runs
    runs = [fair, *(replace(flowcon, policy=f"policy-of-mine-{number}") for number in range(policies - 1))]
    return terminal(report_of(replace(sample_result(), runs=runs, repeats=[runs] * (rounds - 1), rounds_asked=rounds)))


def of_measures(policies: int) -> RenderableType:
    better = Cell("65.2 s", "×0.94 better", verdict="better")
    names = ["fair", *(f"policy-{number}" for number in range(1, policies))]
    rows = [Row("Mean completion time", (Cell("69.3 s"), *[better] * (policies - 1))) for _ in range(2)]
    return Comparison("scenario", names, [("", rows)])


def of_jobs() -> RenderableType:
    return LiveTable([LiveRow(name, "training", "NL", 0.1, [1.0], 0.1, 1.0, 1000, 500, "") for name in NAMES])


def of_names(width: int) -> RenderableType:
    columns = [named("JOB", NAMES, str), sized("LENGTH", NAMES, lambda name: Text(str(len(name))), "right")]
    return table_of(fitting(columns, ["JOB", "LENGTH"], width), NAMES)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("policies", [1, 2, 9])
@pytest.mark.parametrize("rounds", [1, 2])
def test_the_end_of_a_demo_names_every_measure_job_and_policy(width: int, policies: int, rounds: int) -> None:
    text = printed(of_demo(policies, rounds), width=width)
    flat = words(text).lower()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for name in ("digits-logreg", "diabetes-slow-tail", "policy-of-mine-0" if policies > 1 else "fair"):
        assert name in flat
    if policies > 1:
        assert "completion" in flat
        assert "makespan" in flat


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("policies", [1, 2, 12])
def test_a_comparison_is_columns_or_lines_and_always_whole(width: int, policies: int) -> None:
    text = printed(of_measures(policies), width=width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert text.count("×0.94") == 2 * (policies - 1)
    assert all(f"policy-{number}" in text for number in range(1, policies))


def test_without_room_a_figure_is_a_line() -> None:
    lines = printed(of_measures(12), width=80).splitlines()
    assert lines[1] == "fair: mean completion time 69.3 s"
    assert "policy-3: mean completion time 65.2 s, ×0.94 of fair, better" in lines


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "table",
    [
        lambda _: of_jobs(),
        of_names,
        lambda _: sweep.listing(sweep.Swept(freed=dict.fromkeys(NAMES, "its gate is removed"))),
        lambda _: restore.listing(restore.Restoration(restored=dict.fromkeys(NAMES, "2000m"))),
        lambda _: remarks([("note", "yellow", f"of {name}") for name in NAMES]),
    ],
    ids=["jobs", "named", "sweep", "restore", "remarks"],
)
def test_a_name_is_never_cut(width: int, table: Callable[[int], RenderableType]) -> None:
    text = printed(table(width), width=width)
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    for name in NAMES:
        assert name in _column(text) or name in "".join(text.split()), text


def _column(text: str) -> str:
    """What stands in the first column, read downwards."""
    return "".join(line.split(" ")[0] for line in text.splitlines())
