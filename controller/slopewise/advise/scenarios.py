"""Turns recorded jobs into scenarios of the simulator: works and curves from the history, a CSV file for each curve.

The work of a job is the CPU that it used, and its loss is placed by the CPU that it had used by then: a job that gets
less CPU in a replay is at the same loss later. The most CPU that it can use is what it used at its peak, so a job that
its limit held back gains nothing from more: that is on the safe side. Works are drawn within 10 % of what was recorded,
since a scrape a minute and the load of other pods blur them; that is a replay's uncertainty.

Jobs that ran on the same node at the same time form a group, which is a scenario of one node. A job that ran alone
shares no CPU, and is in none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from slopewise.adapters.prometheus.history import JobHistory, Points
from slopewise.advise.findings import falling_loss, recorded_curve
from slopewise.simulator.scenario.recorded_losses import DONE

WORK_RATIO = 0.1
"""How far a replayed work is from the recorded one, at most."""

CURVE_POINTS = 200
PEAK_QUANTILE = 0.95
"""Of its use over time: a highest sample of all is often one of start-up."""

LEAST_WORK_CPU_SECONDS = 1.0
LEAST_CORES = 0.05
MAX_GROUP_JOBS = 30
"""A chain of jobs that overlap never ends on a busy node: it is cut after so many."""

STAGE = "loss"
_AS_ON_A_CLUSTER = {
    "scrapeSeconds": 15,
    "scrapeDelaySeconds": 5,
    "stepsPerCpuSecond": None,
    "intervalSeconds": 60,
    "behaviour": {"cooldownSeconds": 120, "maxStepRatio": 2, "minChangeRatio": 0.1},
}
"""The defaults of a scenario are those of the papers' small jobs, which act at once."""


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """What a replay needs of a job: some kilobytes."""

    name: str
    """As a scenario takes it."""
    namespace: str
    pod: str
    node: str
    from_seconds: float
    until_seconds: float
    work_cpu_seconds: float
    cores: float
    """The most that it can use."""
    request_cores: float | None
    curve: Points | None
    """(part of the work, loss); None: it reports none that falls."""
    steps: int | None

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return self.until_seconds - self.from_seconds


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs of one node, each of which ran at the same time as another of them."""

    node: str
    cores: float
    jobs: tuple[RecordedJob, ...]

    @property
    def contended(self) -> bool:
        """Whether the jobs could have used more CPU at some moment than the node has."""
        changes = sorted(
            change for job in self.jobs for change in ((job.from_seconds, job.cores), (job.until_seconds, -job.cores))
        )
        return bool(np.cumsum([cores for _, cores in changes]).max() > self.cores * (1 + 1e-9))


def recorded_job(job: JobHistory, number: int) -> RecordedJob | None:
    """What a replay needs of a job; None where its CPU is not known, or it used none."""
    if len(job.cpu_cores) < 2:
        return None
    at, cores = job.cpu_cores[:, 0], job.cpu_cores[:, 1]
    used = np.concatenate(([0.0], np.cumsum((cores[1:] + cores[:-1]) / 2 * np.diff(at)))) + cores[0] * job.step_seconds
    work = float(used[-1])
    if work < LEAST_WORK_CPU_SECONDS:
        return None
    return RecordedJob(
        name=_name(job.pod, number),
        namespace=job.namespace,
        pod=job.pod,
        node=job.node,
        from_seconds=job.from_seconds,
        until_seconds=job.until_seconds,
        work_cpu_seconds=work,
        cores=max(LEAST_CORES, float(np.quantile(cores, PEAK_QUANTILE))),
        request_cores=job.requests.cpu_cores,
        curve=_curve(job, at, used / work),
        steps=None if job.steps_planned is None or not 1 <= job.steps_planned <= 1e12 else round(job.steps_planned),
    )


def groups_of(jobs: Iterable[RecordedJob], node_cores: Mapping[str, float]) -> list[Group]:
    """The groups of jobs that shared a node, those of two jobs or more; `node_cores` of the nodes that are known."""
    by_node: dict[str, list[RecordedJob]] = {}
    for job in jobs:
        by_node.setdefault(job.node, []).append(job)
    found = []
    for node, of_node in sorted(by_node.items()):
        of_node.sort(key=lambda job: (job.from_seconds, job.name))
        cores = node_cores.get(node) or most_used_cores(of_node)
        found += [Group(node, cores, tuple(chain)) for chain in _chains(of_node) if len(chain) > 1]
    return found


def most_used_cores(jobs: Sequence[RecordedJob]) -> float:
    """A node's cores where nothing says them: the most that its jobs used at once, on average over each one's time."""
    changes = sorted(
        change
        for job in jobs
        for rate in (job.work_cpu_seconds / max(1.0, job.seconds),)
        for change in ((job.from_seconds, rate), (job.until_seconds, -rate))
    )
    return max(LEAST_CORES, float(np.cumsum([rate for _, rate in changes]).max(initial=0.0)))


def write_scenario(
    name: str,
    jobs: Sequence[RecordedJob],
    nodes: Mapping[str, float],
    folder: Path,
    *,
    policies: Sequence[str],
    seeds: int,
) -> Path:
    """Write a scenario file, and a CSV file for each curve beside it."""
    first = min(job.from_seconds for job in jobs)
    largest = max(nodes.values())
    document = {
        "apiVersion": "slopewise.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": name, "description": f"{len(jobs)} jobs as Prometheus recorded them"},
        "spec": {
            "nodes": [
                {"name": f"node-{number}", "cpu": f"{max(1, round(1000 * cores))}m", "memoryGiB": 1024}
                for number, cores in enumerate(nodes.values(), start=1)
            ],
            "jobs": [_job(job, first, largest) for job in jobs],
            "models": {job.name: _model(job, folder, name) for job in jobs},
            **_AS_ON_A_CLUSTER,
            "policies": list(policies),
            "seeds": seeds,
        },
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


def _chains(jobs: Sequence[RecordedJob]) -> list[list[RecordedJob]]:
    """Jobs in order of their start, cut where all have ended, or there are enough."""
    chains: list[list[RecordedJob]] = []
    busy_until = 0.0
    for job in jobs:
        if not chains or job.from_seconds >= busy_until or len(chains[-1]) >= MAX_GROUP_JOBS:
            chains.append([])
            busy_until = 0.0
        chains[-1].append(job)
        busy_until = max(busy_until, job.until_seconds)
    return chains


def _curve(job: JobHistory, cpu_at: Points, done: Points) -> Points | None:
    loss = falling_loss(job)
    if not len(loss):
        return None
    places = np.interp(loss[:, 0], cpu_at, done)
    rows = np.column_stack((places, loss[:, 1]))
    rows = rows[np.concatenate(([True], np.diff(rows[:, 0]) > 1e-9))]
    rows = rows[:: max(1, len(rows) // CURVE_POINTS)]
    return rows if recorded_curve(rows) is not None else None


def _job(job: RecordedJob, first_seconds: float, largest_cores: float) -> dict[str, object]:
    low, high = job.work_cpu_seconds * (1 - WORK_RATIO), job.work_cpu_seconds * (1 + WORK_RATIO)
    request = min(job.cores if job.request_cores is None else job.request_cores, largest_cores)
    return {
        "name": job.name,
        "model": job.name,
        "arriveSeconds": round(job.from_seconds - first_seconds, 1),
        "workCpuSeconds": [round(low, 3), round(high, 3)],
        "request": f"{max(1, int(1000 * request))}m",
        "reports": job.curve is not None,
        **({} if job.steps is None else {"steps": job.steps}),
    }


def _model(job: RecordedJob, folder: Path, scenario: str) -> dict[str, object]:
    curve: dict[str, object] = {"exponential": {"k": 1.0}}  # of a job that reports nothing, which no policy sees
    if job.curve is not None:
        file = f"{scenario}-{job.name}.csv"
        rows = "".join(f"{place:.9g},{loss:.9g}\n" for place, loss in job.curve)
        (folder / file).write_text(f"{DONE},{STAGE}\n{rows}", encoding="utf-8")
        curve = {"recorded": {"name": f"./{file}", "stage": STAGE}}
    return {
        "workCpuSeconds": round(job.work_cpu_seconds, 3),
        "parallelism": round(min(job.cores, 1024.0), 4),
        "noise": 0,
        "curve": curve,
    }


def _name(pod: str, number: int) -> str:
    """Up to 63 lower-case letters, digits and dashes, and the number, so that no two jobs have one name."""
    words = re.sub(r"[^a-z0-9]+", "-", pod.lower()).strip("-")[:50].strip("-")
    return f"{words or 'job'}-{number}"
