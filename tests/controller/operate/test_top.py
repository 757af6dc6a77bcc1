"""What `slopewise top` shows: order, the room of a terminal, foreign names, curves of losses."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from support.printing import printed, words

from slopewise.crds.conditions import Condition
from slopewise.crds.job_growth import JobGrowthStatus
from slopewise.operate.top import View, as_json, ordered, row_of, screen
from slopewise.reports.live_table import LiveRow


def a_row(name: str, growth: float | None = 0.1, cpu: int | None = 500, state: str = "Training") -> LiveRow:
    status = JobGrowthStatus(
        state=state,
        growth=growth,
        cpu_millicores=cpu,
        cpu_wanted_millicores=cpu,
        loss=0.5,
        job_class="NL",
        reason="why",
    )
    return row_of(name, status)


def shown(*rows: LiveRow, width: int = 120, height: int | None = None, trouble: str = "") -> list[str]:
    return printed(
        screen(View(rows, ("12:00:00Z  2 workloads", "leader: x"), trouble), "growth", height), width
    ).splitlines()


def test_a_workload_is_one_line_with_state_loss_growth_cpu_and_reason() -> None:
    status = JobGrowthStatus(
        state="NoLoss", growth=0.0123, cpu_millicores=500, cpu_wanted_millicores=1000, loss=0.25, job_class="CL",
        reason="cooldown",
    )  # fmt: skip
    lines = shown(row_of("team/train", status))
    assert lines[:2] == ["12:00:00Z  2 workloads".ljust(120), "leader: x".ljust(120)] or lines[0].startswith(
        "12:00:00Z"
    )
    assert words(lines[2]) == "JOB STATE CLASS LOSS GROWTH NOW → WANTED REASON"
    assert words(lines[3]) == "team/train no loss CL 0.25 0.0123 0.50 → 1.00 cooldown"
    assert "CL hardly growing" in lines[4]


@pytest.mark.parametrize(
    ("kind", "message"),
    [("Oversubscribes", "8 threads on 1.00 cores"), ("GpuWaits", "its GPU waits 56% of the time for CPU")],
)
def test_a_workload_that_oversubscribes_its_cpu_or_whose_gpu_waits_says_so_before_the_reason(
    kind: str, message: str
) -> None:
    told = Condition(
        type=kind, status="True", reason="Told", message=message, last_transition_time=datetime(2026, 1, 1, tzinfo=UTC)
    )
    row = row_of("team/train", JobGrowthStatus(state="Training", reason="cooldown", conditions=(told,)))
    assert f"{message}; cooldown" in words("\n".join(shown(row, width=160)))
    assert as_json(View([row], ()), "name")["jobs"][0]["note"] == message


@pytest.mark.parametrize(
    ("sort", "order"), [("growth", ["b", "a", "c", "d"]), ("cpu", ["c", "a", "b", "d"]), ("name", ["a", "b", "c", "d"])]
)
def test_the_largest_come_first_and_what_has_ended_last(sort: str, order: list[str]) -> None:
    rows = [
        a_row("d", 9.0, 9000, "Finished"), a_row("c", None, 900), a_row("a", 0.1, 500), a_row("b", 0.2, None),
    ]  # fmt: skip
    assert [row.name for row in ordered(rows, sort)] == order  # type: ignore[arg-type]


@pytest.mark.parametrize("state", ["finished", "stopped at target", "failed", "cancelled", "ended", "stopped"])
def test_a_job_of_this_machine_that_has_ended_comes_last_however_it_ended(state: str) -> None:
    rows = [a_row("a", 9.0, 9000, state), a_row("b", 0.1, 500)]
    assert [row.name for row in ordered(rows, "growth")] == ["b", "a"]


def test_growth_that_is_no_number_spoils_no_order() -> None:
    rows = [a_row("a", math.nan), a_row("b", math.inf), a_row("c", 0.5)]
    assert [row.name for row in ordered(rows, "growth")] == ["c", "a", "b"]


def test_a_terminal_shows_as_many_as_it_has_lines_and_says_how_many_more() -> None:
    lines = shown(*(a_row(f"job-{number:04d}") for number in range(5000)), height=20)
    assert len(lines) <= 20
    assert "4985 more" in lines[-1]
    assert len(shown(*(a_row(f"job-{number}") for number in range(40)))) == 40 + 4, "a pipe gets all"


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    rows = [replace(a_row("a-namespace-of-a-team/a-training-with-a-long-name"), objective_seconds=0.2)]
    assert max(map(len, shown(*rows, width=width, trouble="x" * 300))) <= width


def test_json_has_all_workloads_and_no_number_that_json_lacks() -> None:
    found = as_json(View([a_row("a", math.nan), a_row("b", 1.0)], ("x",)), "growth")
    assert [(each["name"], each["growth"]) for each in found["jobs"]] == [("b", 1.0), ("a", None)]
