"""Runs of a demo in which something was done, on a machine with nothing else to do."""

from __future__ import annotations

from typing import Any

from slopewise.demo.report.results import DemoResult, JobResult, RunResult


def job(name: str, jct: float | None = 40.0, state: str = "finished", **more: Any) -> JobResult:
    """It arrived at once, and had 90 % of its improvement half way."""
    return JobResult(name, 0.0, jct, jct, None if jct is None else jct / 2, 10, 1.0, 0.1, 5.0, state, **more)


def run(policy: str, *jobs: JobResult, **more: Any) -> RunResult:
    reported: dict[str, Any] = {
        "curves": {}, "passes": 3, "passes_held": 0, "resizes_applied": 1, "withheld": 0,
        "controller_cpu_ratio": 0.004, "node_cores": 2.0, "other_cpu_cores": 0.0,
    }  # fmt: skip
    return RunResult(policy, list(jobs), **{**reported, **more})


def demo(*runs: RunResult) -> DemoResult:
    return DemoResult(list(runs), "3.5.0", "cgroup v1, weights (cpu.shares)", 2.0, 8.0)
