"""Validation: the demo's jobs really run, and the same jobs simulated, completion time by completion time.

`python -m replication.validation` (which is `make validate`, about eight minutes on a quiet machine) runs each of the
demo's trainings alone, then all of them under `fair`, `flowcon` and `marginal`, and writes down what it measured. The
page's section simulates the shared runs from what was measured of each job *alone*: its CPU-seconds, how many cores it
uses, and its loss curve, with the planned steps that it reports. Nothing is fitted to the runs that are predicted.
"""

from __future__ import annotations

import bisect
import json
import logging
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from slopewise.config.training_policy import Behaviour, CpuBounds
from slopewise.demo.command import BASELINE, DEMO_BEHAVIOUR, DEMO_CPU, DEMO_INTERVAL_SECONDS, DemoOptions, document
from slopewise.demo.report.results import RunResult
from slopewise.demo.runner import run_policy
from slopewise.demo.trainings.catalogue import TRAININGS, demo_jobs
from slopewise.local.workshop import Workshop
from slopewise.loop import calm_garbage_collector
from slopewise.simulator.engine import run
from slopewise.simulator.world.model import Instance, Physics, PolicyRun, RunOutcome, SimJob, SimNode
from slopewise.telemetry.metrics import configure_logging

MEASURED = Path(__file__).with_name("measured.json")
POLICIES = (BASELINE, "flowcon", "marginal")
SCRAPE_SECONDS = 1.0
TEXT = """\
The demo's eight trainings on {cores:g} cores, really run once under each policy (`make validate`), and simulated from
what each of them did alone (CPU-seconds, cores, loss curve) and its planned steps. Completion times in seconds.
"""
STREAM_RATIO = 0.8
"""A job that used less of one core than this while it ran alone was waiting for data, not for CPU."""


@dataclass(frozen=True)
class SoloRun:
    """What one job did with the machine to itself."""

    name: str
    arrive_seconds: float
    jct_seconds: float
    cpu_seconds: float
    loss: Sequence[tuple[float, float]]
    """(seconds since its arrival, loss)."""
    steps_planned: int | None = None
    """As it reports."""


class RecordedCurve:
    """A curve as it was recorded, over the fraction of the run's time; it may rise, as losses do."""

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        self._at = [at for at, _ in points]
        self._values = [value for _, value in points]

    def at(self, done_ratio: float) -> float:
        """Linear between two points, level outside of them."""
        place = bisect.bisect_right(self._at, done_ratio)
        if place == 0 or place == len(self._at):
            return self._values[max(0, place - 1)]
        x0, x1 = self._at[place - 1], self._at[place]
        y0, y1 = self._values[place - 1], self._values[place]
        return y0 + (y1 - y0) * (done_ratio - x0) / (x1 - x0)

    def reached(self, improvement_ratio: float) -> float | None:
        """The first recorded point with that part of the total improvement."""
        first, best = self._values[0], min(self._values)
        target = first - improvement_ratio * (first - best)
        return next((at for at, value in zip(self._at, self._values, strict=True) if value <= target), None)


# --- measuring -------------------------------------------------------------------------------------------------


def measure(console: Console) -> dict[str, Any]:
    """Run the trainings alone, then together under each policy; what was measured, ready for JSON."""
    jobs = demo_jobs()
    solo = []
    with Workshop(actuator="auto", announce=lambda line: console.print(line, markup=False)) as workshop:
        fair = _document(BASELINE)
        for job in jobs:
            console.print(f"{job.name} alone", markup=False)
            result = run_policy(workshop, fair, [replace(job, arrive_seconds=0.0)], ours=True, show=lambda *_: None)
            solo.append(_alone(job.arrive_seconds, result))
        shared = {}
        for name in POLICIES:
            console.print(f"all together under {name}", markup=False)
            result = run_policy(workshop, _document(name), jobs, ours=True, show=lambda *_: None)
            shared[name] = {each.name: each.jct_seconds for each in result.jobs}
            cores = result.node_cores
    return {"machine": f"{platform.system()} {platform.machine()}", "cores": cores, "alone": solo, "together": shared}


def _document(name: str) -> Any:
    options = DemoOptions([name], None, None, "requests", None, 1.0, "auto", None)
    return document(name, "requests", options, None)


def _alone(arrive_seconds: float, result: RunResult) -> dict[str, Any]:
    job = result.jobs[0]
    loss = [(at - job.arrived_seconds, value) for at, value in result.curves[job.name].loss]
    return {
        "name": job.name,
        "arrive_seconds": arrive_seconds,
        "jct_seconds": job.jct_seconds,
        "cpu_seconds": job.cpu_seconds,
        "loss": [(round(at, 2), value) for at, value in loss],
        "steps_planned": TRAININGS[job.name].steps,
    }


# --- simulating ------------------------------------------------------------------------------------------------


def predicted(measured: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Completion times in seconds by policy and job, simulated from what each job did alone."""
    solo = [SoloRun(**each) for each in measured["alone"]]
    # Neither waiting for the last scrape nor holding the first loss uses CPU, whoever else runs.
    idle = statistics.median(
        job.jct_seconds - job.cpu_seconds for job in solo if job.cpu_seconds > STREAM_RATIO * job.jct_seconds
    )
    jobs = tuple(_sim_job(job, idle) for job in sorted(solo, key=lambda each: each.arrive_seconds))
    node = SimNode("local", measured["cores"], 2**34)
    instance = Instance("demo", 1, (node,), jobs, Physics(scrape_seconds=SCRAPE_SECONDS))
    return {name: _completions(run(instance, _policy_run(name)), idle) for name in POLICIES}


def _sim_job(job: SoloRun, idle_seconds: float) -> SimJob:
    active = job.jct_seconds - idle_seconds
    waits_for_data = job.cpu_seconds <= STREAM_RATIO * job.jct_seconds
    first = job.loss[0][0]
    points = [(max(0.0, (at - first) / max(active, 1e-9)), value) for at, value in job.loss]
    return SimJob(
        name=job.name,
        model="recorded",
        arrive_seconds=job.arrive_seconds,
        work_cpu_seconds=job.cpu_seconds,
        curve=RecordedCurve(points),
        parallelism_cores=job.cpu_seconds / active if waits_for_data else 1.0,
        steps_planned=job.steps_planned,
    )


def _policy_run(name: str) -> PolicyRun:
    return PolicyRun(
        name,
        name,
        interval_seconds=DEMO_INTERVAL_SECONDS,
        behaviour=Behaviour.model_validate({"intervalSeconds": DEMO_INTERVAL_SECONDS, **DEMO_BEHAVIOUR}),
        cpu=CpuBounds.model_validate(DEMO_CPU),
    )


def _completions(outcome: RunOutcome, idle_seconds: float) -> dict[str, float]:
    return {job.name: job.jct_seconds + idle_seconds for job in outcome.jobs if job.jct_seconds is not None}


def section(file: Path = MEASURED) -> str:
    """The page's section from what was measured; says so when nothing was yet."""
    if not file.exists():
        return "\n## The simulator against real runs\n\nNothing was measured yet: run `make validate`.\n"
    measured = json.loads(file.read_text(encoding="utf-8"))
    simulated, together = predicted(measured), measured["together"]
    lines = [
        "\n## The simulator against real runs\n",
        TEXT.format(cores=measured["cores"]),
        "| job | " + " | ".join(f"{name}: real | simulated | error" for name in POLICIES) + " |",
        "|---|" + "---|" * (3 * len(POLICIES)),
    ]
    errors: dict[str, list[float]] = {name: [] for name in POLICIES}
    for job in together[BASELINE]:
        cells = []
        for name in POLICIES:
            real, ours = together[name][job], simulated[name][job]
            errors[name].append(abs(ours / real - 1))
            cells.append(f"{real:.1f} | {ours:.1f} | {ours / real - 1:+.1%}")
        lines.append(f"| {job} | {' | '.join(cells)} |")
    means_real = [statistics.fmean(together[name].values()) for name in POLICIES]
    means_ours = [statistics.fmean(simulated[name].values()) for name in POLICIES]
    ratios = [(real / means_real[0], ours / means_ours[0]) for real, ours in zip(means_real, means_ours, strict=True)]
    to_fair = " | ".join(f"{real:.3f} | {ours:.3f} | {ours / real - 1:+.1%}" for real, ours in ratios)
    lines.append(f"| mean over fair sharing's | {to_fair} |")
    means = " | ".join(f" | | {statistics.fmean(errors[name]):.1%}" for name in POLICIES)
    lines.append(f"| **mean error** | {means} |")
    everything = statistics.fmean(error for each in errors.values() for error in each)
    lines.append(f"\nMean error over all: {everything:.1%}; the aim is at most 10 %.\n")
    return "\n".join(lines)


def main() -> int:
    """Measure, write it down, print the section."""
    console = Console(stderr=True)
    calm_garbage_collector()
    configure_logging(level=logging.ERROR)
    MEASURED.write_text(json.dumps(measure(console), indent=1) + "\n", encoding="utf-8")
    print(section())
    return 0


if __name__ == "__main__":
    sys.exit(main())
