"""How long after its arrival a training's plan, first loss and first CPU reach it, and what its work costs; real jobs.

The demo's eight trainings run under `fair` and then under `marginal`, a few minutes in all. The simulator knows a plan
and a first loss with the first pass and carries a change of CPU out at once; its work costs 1 % more for each further
job on a node. The first table has what these are on this machine, the second each job's CPU-seconds under `marginal`
over those under `fair`, and its completion time likewise: a job that waits is squeezed, one that goes first is not.
Gate: every training ended, and had a plan, a loss and a change. Times have no bound: on a busy machine they are larger.

    python benchmarks/bench_delays.py
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from math import nan
from statistics import median

from slopewise.demo.command import DemoOptions, document
from slopewise.demo.report.results import RunResult
from slopewise.demo.runner import run_policy
from slopewise.demo.trainings.catalogue import demo_jobs
from slopewise.local.session import Session
from slopewise.local.workshop import Workshop
from slopewise.model import PassReport, Resize
from slopewise.telemetry.metrics import configure_logging

EVENTS = ("plan", "first loss", "first order", "first change of CPU")


def first_times(reports: list[PassReport]) -> dict[str, dict[str, float]]:
    """By job, the Unix time of the first pass of each of `EVENTS`; of a change with the seconds that the pass took."""
    found: dict[str, dict[str, float]] = {}
    for report in reports:
        if report.snapshot is None or report.decisions is None:
            continue
        changed = {each.decision.job_uid for each in report.results.of(Resize) if each.result == "applied"}
        for job in report.snapshot.jobs:
            of_job = found.setdefault(job.uid, {})
            known = report.decisions.memory.jobs.get(job.uid)
            is_there = (
                job.steps_planned is not None,
                job.evaluation is not None,
                known is not None and bool(known.decided.job_class),
                job.uid in changed,
            )
            took = sum(report.seconds_by_verb.values())
            for event, there in zip(EVENTS, is_there, strict=True):
                if there:
                    of_job.setdefault(event, report.taken_at_seconds + (took if event == EVENTS[-1] else 0.0))
    return found


def run(workshop: Workshop, name: str) -> tuple[RunResult, Mapping[str, Mapping[str, float]], list[PassReport]]:
    """The run, seconds from each job's arrival to each event, and the passes."""
    sessions: list[Session] = []
    options = DemoOptions([name], None, None, "requests", None, 1.0, "auto", None)
    result = run_policy(
        workshop,
        document(name, "requests", options, None),
        demo_jobs(),
        ours=True,
        show=lambda it, _: sessions.append(it),
    )
    session = sessions[0]
    reports, start = list(session.all_reports()), session.supervisor.started_at_seconds
    arrived = {job.name: start + job.arrived_seconds for job in result.jobs}
    times = first_times(reports)
    delays = {job: {event: at - since for event, at in times.get(job, {}).items()} for job, since in arrived.items()}
    return result, delays, reports


def _ratio(before: float | None, after: float | None) -> float:
    """NaN where a training did not end, of which the gate says that it is missed."""
    return after / before if after is not None and before else nan


def _figures(before: float | None, after: float | None) -> str:
    """CPU-seconds under both, and their ratio."""
    left, right = (nan if each is None else each for each in (before, after))
    return f"{left:18.1f} {right:9.1f} {_ratio(before, after):6.2f}"


def main() -> int:
    """Print both tables; 1 when the gate is missed."""
    configure_logging(level=logging.ERROR)
    with Workshop(actuator="auto", announce=print) as workshop:
        fair, _, _ = run(workshop, "fair")
        ours, delays, reports = run(workshop, "marginal")
    print(f"\n{'seconds after a job arrived':<28}  median   least    most")
    for event in EVENTS:
        seconds = [of_job[event] for of_job in delays.values() if event in of_job]
        if seconds:
            print(f"{event:<28} {median(seconds):7.1f} {min(seconds):7.1f} {max(seconds):7.1f}")
    took = [sum(each.seconds_by_verb.values()) for each in reports]
    beside = f"the load is {os.getloadavg()[0]:.0f}"
    print(f"a pass took {median(took):.2f} s in the median, {max(took):.2f} s at most; {beside}\n")
    print(f"{'job':<22}  CPU-seconds: fair  marginal  ratio  completion time's ratio")
    for before, job in zip(fair.jobs, ours.jobs, strict=True):
        cpu, jct = (before.cpu_seconds, job.cpu_seconds), (before.jct_seconds, job.jct_seconds)
        print(f"{job.name:<22} {_figures(*cpu)} {_ratio(*jct):24.2f}")
    print(f"{'all':<22} {_figures(*(sum(job.cpu_seconds or 0.0 for job in each.jobs) for each in (fair, ours)))}")
    is_whole = all(job.jct_seconds is not None for each in (fair, ours) for job in each.jobs)
    held = is_whole and all(set(EVENTS) <= of_job.keys() for of_job in delays.values())
    print("held" if held else "MISSED")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
