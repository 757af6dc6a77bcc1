"""What Prometheus itself makes of the query for levels: `promtool test rules` over windows with spikes, NaN and Inf."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path
from typing import Any

import yaml

from slopewise.adapters.prometheus import queries

SCRAPE_SECONDS = 5.0
WINDOW_SECONDS = 20.0
BEFORE = "9 9 9 9 9 9 9 9 "
"""Scrapes from 0 to 35 s; the window that ends at 55 s has the four after them."""


ONE_SPIKE = (
    ("4 3 2 1", {"level": 2.5}),
    ("1e12 3 2 1", {"level": 2.5}),
    ("4 3 -1e12 1", {"level": 2.0}),
    ("4 3 2 1e12", {"level": 3.5}),
    ("4 3 2 -1e12", {"level": 2.5}),
    ("4 _ _ 1", {"level": 2.5, "samples": 2}),
)
NOT_FINITE = (
    ("4 3 NaN 1", {"last": 1.0, "lowest": 1.0, "level": 2.0}),
    ("4 3 Inf 1", {"last": 1.0, "lowest": 1.0, "level": 3.5}),
    ("4 -Inf 2 1", {"last": 1.0, "lowest": -math.inf, "level": 1.5}),
)


def asked_for(samples: str, expected: dict[str, float]) -> dict[str, Any]:
    """The level of one series at 55 s; what comes back has these values, by kind, and no others."""
    query = queries.levels("loss", (("namespace", "n"),), WINDOW_SECONDS - 0.001, SCRAPE_SECONDS)
    labels = {"namespace": "n", "pod": "p", "instance": "i"}
    inner = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    rows = [
        {"labels": f'{"loss" if kind == "last" else ""}{{{inner}, slopewise_value="{kind}"}}', "value": value}
        for kind, value in (*expected.items(), ("sampled_at", 55.0))
    ]
    return {
        "name": samples,
        "interval": "5s",
        "input_series": [{"series": f"loss{{{inner}}}", "values": BEFORE + samples}],
        "promql_expr_test": [{"expr": query, "eval_time": "55s", "exp_samples": rows}],
    }


def test_a_spike_shifts_the_level_by_half_a_step_and_no_finite_value_is_hidden(promtool: Path, tmp_path: Path) -> None:
    """A median passes over a NaN as over any spike, and a divergence must show: by the last and the lowest value."""
    tests = [asked_for(samples, expected) for samples, expected in (*ONE_SPIKE, *NOT_FINITE)]
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"evaluation_interval": "5s", "tests": tests}), encoding="utf-8")
    result = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
