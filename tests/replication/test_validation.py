"""Simulated against real runs: what is predicted of runs whose outcome follows from how they were made up."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from replication.validation import POLICIES, predicted, section

FALLING = [[1.0 + second, math.exp(-second / 10)] for second in range(29)]


def measured(
    cores: float, *jobs: dict[str, Any], together: dict[str, dict[str, float]] | None = None
) -> dict[str, Any]:
    return {"machine": "none", "cores": cores, "alone": list(jobs), "together": together or {}}


def alone(name: str, jct: float, cpu: float, arrive: float = 0.0) -> dict[str, Any]:
    return {"name": name, "arrive_seconds": arrive, "jct_seconds": jct, "cpu_seconds": cpu, "loss": FALLING}


def test_jobs_take_as_long_as_alone_with_a_core_each_but_for_contention_and_twice_as_long_on_one_core() -> None:
    a, b = alone("a", 30.0, 29.0), alone("b", 30.0, 29.0)
    assert predicted(measured(2.0, a)) == {name: {"a": pytest.approx(30.0, abs=0.01)} for name in POLICIES}
    for cores, times in ((2.0, 1), (1.0, 2)):
        expected = times * 29.0 / 0.99 + 1.0  # its idle time is there once
        assert predicted(measured(cores, a, b))["fair"] == pytest.approx({"a": expected, "b": expected}, abs=0.01)


def test_a_job_that_waits_for_its_data_leaves_its_core_to_others() -> None:
    """It used half a core alone (14.5 core-seconds in 29 s), and goes on doing so beside another on one core."""
    reported = predicted(measured(1.0, alone("busy", 30.0, 29.0), alone("waits", 30.0, 14.5)))
    assert reported["fair"]["waits"] == pytest.approx(29.0 / 0.99 + 1.0, abs=0.01)
    assert reported["fair"]["busy"] < 2 * 29.0 / 0.99


def test_the_section_sets_each_simulated_time_beside_the_real_one(tmp_path: Path) -> None:
    together = {"fair": {"a": 30.0}, "flowcon": {"a": 24.0}, "marginal": {"a": 30.0}}
    file = tmp_path / "measured.json"
    file.write_text(json.dumps(measured(2.0, alone("a", 30.0, 29.0), together=together)))
    lines = section(file).splitlines()
    assert "| a | 30.0 | 30.0 | +0.0% | 24.0 | 30.0 | +25.0% | 30.0 | 30.0 | +0.0% |" in lines
    assert (
        "| mean over fair sharing's | 1.000 | 1.000 | +0.0% | 0.800 | 1.000 | +25.0% | 1.000 | 1.000 | +0.0% |" in lines
    )
    (means,) = [[cell.strip() for cell in line.split("|")] for line in lines if "mean error" in line]
    assert means == ["", "**mean error**", "", "", "0.0%", "", "", "25.0%", "", "", "0.0%", ""]
    assert "Mean error over all: 8.3%; the aim is at most 10 %." in lines
    assert "Nothing was measured yet" in section(tmp_path / "missing.json")
