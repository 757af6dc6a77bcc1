"""Turns recorded jobs into scenarios of the simulator: works and curves from the history.

The work of a job is the CPU that it used, and its loss is placed by the CPU that it had used by then: a job that gets
less CPU in a replay is at the same loss later. The most CPU that it can use is what it used at its peak, so a job that
its limit held back gains nothing from more: that is on the safe side. Works are drawn within 10 % of what was recorded,
since a scrape a minute and the load of other pods blur them; that is a replay's uncertainty. A curve is the trend of
the recorded points, with their noise: between two points it goes on falling, where a gauge that is read once in three
minutes would stand still for two measurements of three.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import yaml

from slopewise.adapters.prometheus.history import JobHistory, Points
from slopewise.advise.findings import cpu_is_full, waits
from slopewise.advise.flatness import MIN_POINTS, Trend, falling_loss, trend
from slopewise.config.validation import API_VERSION

WORK_RATIO = 0.1
"""How far a replayed work is from the recorded one, at most."""

CURVE_POINTS = 200
PEAK_QUANTILE = 0.95
"""Of its use over time: a highest sample of all is often one of start-up."""

LEAST_WORK_CPU_SECONDS = 1.0
LEAST_CORES = 0.05
MOST_CORES = 1024.0
"""That a scenario takes."""

DROP_RATIO = 0.05
"""Of the range of a loss: noise makes no such step between two levels of a trend."""

_AS_ON_A_CLUSTER = {
    "scrapeSeconds": 15,
    "scrapeDelaySeconds": 5,
    "stepsPerCpuSecond": None,
    "intervalSeconds": 60,
    "behaviour": {"cooldownSeconds": 120, "maxStepRatio": 2, "minChangeRatio": 0.1},
}
"""The defaults of a scenario are those of the papers' small jobs, which act at once."""


@dataclass(frozen=True, slots=True)
class RecordedCurve:
    """The loss of a job over the part of its work, from 1 to 0."""

    points: tuple[tuple[float, float], ...]
    ends_at: float
    """The best loss, as a fraction of the first."""
    noise: float
    """As a fraction of the first loss."""


@dataclass(frozen=True, slots=True)
class RecordedDevices:
    """The GPUs of a job whose steps have timed their waits."""

    used_cores: float
    limit_cores: float
    wait_ratio: float
    by_cpu: bool
    """Whether it waited because its CPU was full. Else no CPU makes its loader faster."""

    @property
    def waits_for_cpu(self) -> bool:
        """Whether more CPU would have made it faster by what is worth a look."""
        return self.by_cpu and waits(self.wait_ratio)

    def settings(self) -> dict[str, object]:
        """The accelerator of a scenario, for steps of one second; neither their length nor how many it is matters.

        Worked example: 3 cores in use, and 5/9 of the time waited: 4/9 s on the device, 3 CPU-seconds of input, so that
        it can use 6.75 cores.
        """
        loader = {} if self.by_cpu else {"maxLoaderCores": round(self.used_cores, 4)}
        step, inputs = round(max(0.001, 1 - self.wait_ratio), 4), round(self.used_cores, 4)
        return {"count": 1, "stepSeconds": step, "inputCpuSeconds": inputs, **loader}


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
    curve: RecordedCurve | None
    """None: it reports no loss that falls, or holds GPUs: no policy changes a pod that does."""
    steps: int | None
    devices: RecordedDevices | None = None
    """None: it has no GPUs, or what they waited, or its CPU limit, is not known."""

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return self.until_seconds - self.from_seconds

    @property
    def waits_for_cpu(self) -> bool:
        """Whether its GPUs did."""
        return self.devices is not None and self.devices.waits_for_cpu

    def came_with_cores(self, devices: RecordedDevices | None) -> float:
        """What it requested; by its limit, which is what is changed, where its devices are simulated."""
        came_with = self.request_cores if devices is None else devices.limit_cores
        return self.cores if came_with is None else came_with


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
        steps=round(planned) if (planned := job.steps.planned) is not None and 1 <= planned <= 1e12 else None,
        devices=_devices(job),
    )


def _devices(job: JobHistory) -> RecordedDevices | None:
    limit = job.limits.cpu_cores
    used = float(job.cpu_cores[:, 1].mean())
    if job.gpus < 1 or job.wait_ratio is None or not limit or used < LEAST_CORES:
        return None
    throttled = float(job.throttled_ratio[:, 1].mean()) if len(job.throttled_ratio) else None
    return RecordedDevices(used, limit, job.wait_ratio, cpu_is_full(job, throttled))


def write_scenario(
    name: str,
    jobs: Sequence[RecordedJob],
    nodes: Mapping[str, float],
    folder: Path,
    *,
    policies: Sequence[str | Mapping[str, str]],
    seeds: int,
    with_devices: bool = False,
) -> Path:
    """Write a scenario file. `with_devices`: with the GPUs that are known, and CPU given by limits."""
    first = min(job.from_seconds for job in jobs)
    devices = {job.name: job.devices for job in jobs if job.devices is not None} if with_devices else {}
    on_nodes = {"accelerators": len(devices)} if devices else {}
    largest = max(nodes.values())
    document = {
        "apiVersion": API_VERSION,
        "kind": "Scenario",
        "metadata": {"name": name, "description": f"{len(jobs)} jobs as Prometheus recorded them"},
        "spec": {
            "nodes": [
                {"name": f"node-{number}", "cpu": f"{max(1, round(1000 * cores))}m", "memoryGiB": 1024, **on_nodes}
                for number, cores in enumerate(nodes.values(), start=1)
            ],
            "jobs": [_job(job, first, largest, devices.get(job.name)) for job in jobs],
            "models": {job.name: _model(job) for job in jobs},
            **_AS_ON_A_CLUSTER,
            **({"control": "limits"} if with_devices else {}),
            "policies": list(policies),
            "seeds": seeds,
        },
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


def _curve(job: JobHistory, cpu_at: Points, done: Points) -> RecordedCurve | None:
    loss = falling_loss(job)
    if len(loss) < MIN_POINTS or job.gpus:
        return None
    rows = np.column_stack((np.interp(loss[:, 0], cpu_at, done), loss[:, 1]))
    rows = rows[np.concatenate(([True], np.diff(rows[:, 0]) > 0))]
    found = trend(rows) if len(rows) >= MIN_POINTS else None
    if found is None or not found.improves:
        return None
    span = found.first - found.best
    pairs = [(0.0, 1.0), *((x, max(0.0, (y - found.best) / span)) for x, y in _corners(found)), (1.0, 0.0)]
    scale = max(abs(found.first), span)
    return RecordedCurve(
        points=tuple(_thinned(pairs)),
        ends_at=min(0.99, max(0.0, found.best / found.first)) if found.first > 0 else 0.0,
        noise=min(1.0, found.noise / scale),
    )


def _corners(found: Trend) -> Iterator[tuple[float, float]]:
    """The middle of each level, and both ends of a drop that noise does not make: a late one stays where it was."""
    for level, after in pairwise(found.levels):
        yield level.middle, level.mean
        if level.mean - after.mean > DROP_RATIO * (found.first - found.best):
            yield level.end, level.mean
            yield after.begin, after.mean
    yield found.levels[-1].middle, found.levels[-1].mean


def _thinned(pairs: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """At most so many of them, first and last among them, of places that increase by a thousandth of a percent."""
    every = max(1, len(pairs) // CURVE_POINTS)
    last = -1.0
    for number, (place, level) in enumerate(pairs):
        x = round(place, 6)
        ends = number in (0, len(pairs) - 1)
        if ends or (number % every == 0 and last < x < 1.0):
            yield x, round(level, 6)
            last = x


def _job(
    job: RecordedJob, first_seconds: float, largest_cores: float, devices: RecordedDevices | None
) -> dict[str, object]:
    low, high = job.work_cpu_seconds * (1 - WORK_RATIO), job.work_cpu_seconds * (1 + WORK_RATIO)
    request = min(job.came_with_cores(devices), largest_cores)
    return {
        "name": job.name,
        "model": job.name,
        "arriveSeconds": round(job.from_seconds - first_seconds, 1),
        "workCpuSeconds": [round(low, 3), round(high, 3)],
        "request": f"{max(1, int(1000 * request))}m",
        **({} if job.steps is None else {"steps": job.steps}),
        **_reported(job, devices),
    }


def _reported(job: RecordedJob, devices: RecordedDevices | None) -> dict[str, object]:
    """Steps, which a need is measured by, are a second long with the CPU that the job came with."""
    if devices is None:
        return {"reports": job.curve is not None}
    steps = max(1, round(job.work_cpu_seconds / devices.used_cores))
    return {"steps": steps, "accelerator": devices.settings(), "parallelism": MOST_CORES}


def _model(job: RecordedJob) -> dict[str, object]:
    curve: dict[str, object] = {"exponential": {"k": 1.0}}  # of a job that reports nothing, which no policy sees
    known: dict[str, object] = {}
    if job.curve is not None:
        curve = {"points": [list(point) for point in job.curve.points]}
        known = {"noise": round(job.curve.noise, 6), "endsAt": round(job.curve.ends_at, 6)}
    return {
        "workCpuSeconds": round(job.work_cpu_seconds, 3),
        "parallelism": round(min(job.cores, MOST_CORES), 4),
        "curve": curve,
        **known,
    }


def _name(pod: str, number: int) -> str:
    """Up to 63 lower-case letters, digits and dashes, and the number, so that no two jobs have one name."""
    words = re.sub(r"[^a-z0-9]+", "-", pod.lower()).strip("-")[:50].strip("-")
    return f"{words or 'job'}-{number}"
