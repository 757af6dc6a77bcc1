"""Finds what one job held and used: what it held while its loss was flat (`flatness.py`), what it never used.

All is known afterwards, so a plateau before a late drop does not count as flat. A job that still runs may drop again;
its row says that it runs.

Worked example: a loss falls from 2.3 to 0.3 in 2 h, and the job ends after 10 h. With a request of 4 cores it held
4 x 8 = 32 core-hours while its loss was flat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from slopewise.adapters.prometheus.history import JobHistory, Points
from slopewise.advise.flatness import MIN_POINTS, Flatness, State, falling_loss, of_job
from slopewise.text import duration

THROTTLED_RATIO = 0.25
"""Of the periods in which it wanted to run; the same bound is in the alert of kubernetes-mixin."""

MANY_THREADS_RATIO, MANY_THREADS = 4.0, 8
"""So many threads a core, and so many more than cores, are many: beside one a core a training has about six that wait,
of its loader, its exporter and its progress bar. A library that counts the cores of a node has one for each of them."""

INPUT_BOUND_RATIO = 0.25
"""Of the time of its steps, in which they waited for their batches."""

LOW_GPU_RATIO = 0.5
FULL_CPU_RATIO = 0.9
"""Of its CPU limit, or of its request where it has no limit."""

NEVER_USED_RATIO = 0.5
"""A request of which half was never used, at its peak, is reported."""

GAP_RATIO = 0.1
GAP_SPACINGS = 5.0
"""Of the usual time between two points: more is a gap."""

NOT_KNOWN = (None, "unclear", "fits")
"""States of a loss of which it cannot be said whether the job learns nothing more."""

HOUR = 3600.0
GIB = 2.0**30


@dataclass(frozen=True, slots=True)
class LossFinding:
    """A loss in its own unit. None: there are too few points of it."""

    first: float
    last: float
    state: State | None
    level: float | None
    """Of its last half, in which it gained what comes next, at least and at most."""
    gain_low: float | None
    gain_high: float | None


@dataclass(frozen=True, slots=True)
class JobFinding:
    """One job. Hours are hours of its life; None: not known, because it was not scraped or not stated."""

    namespace: str
    pod: str
    node: str
    started_at_seconds: float
    hours: float
    still_running: bool
    loss: LossFinding | None
    """None: it reports none."""
    flat_hours: float | None
    """How long it ran while its loss was flat; 0: it was not. None: not known, or it never improved."""
    cpu_used_core_hours: float | None
    cpu_held_core_hours: float | None
    cpu_held_flat_core_hours: float | None
    memory_held_flat_gib_hours: float | None
    gpus: float
    gpu_hours: float
    gpu_flat_hours: float | None
    gpu_use_ratio: float | None
    throttled_ratio: float | None
    """While it improved."""
    throttled_while_improving: bool
    threads: float | None
    """Of all its processes; the median."""
    spinning_most_core_hours: float | None
    """What it used while it was throttled with many more threads than CPU: how much of that was spent spinning is not
    measured. None: it had not so many."""
    wait_ratio: float | None
    input_bound: bool
    """Its steps waited for their batches, or its GPUs were idle half of the time while its CPU was all used."""
    cpu_request_cores: float | None
    cpu_never_used_cores: float | None
    """Of its request, at its peak."""
    memory_request_gib: float | None
    memory_never_used_gib: float | None
    gap_ratio: float
    """The part of its life without samples."""

    @property
    def reports_loss(self) -> bool:
        """Whether it reports the loss that was asked for."""
        return self.loss is not None

    @property
    def loss_state(self) -> State | None:
        """What its loss does; None: not reported, or too few points."""
        return None if self.loss is None else self.loss.state

    @property
    def is_stalled(self) -> bool:
        """Whether its loss never improved."""
        return self.loss_state == "stalled"

    @property
    def is_unknown(self) -> bool:
        """Whether it cannot be said if it learned nothing more."""
        return self.loss_state in NOT_KNOWN

    @property
    def hours_in_vain(self) -> float:
        """Its hours while its loss was flat; all of them where it did not improve."""
        return self.hours if self.is_stalled else self.flat_hours or 0.0

    @property
    def useful_cores(self) -> float | None:
        """The CPU with which its GPUs would not have waited (`estimators/gpu_need.py`); None: not known, or no GPUs.

        Worked example: 3 cores in use, and 5/9 of the time waited: 3 / (1 - 5/9) = 6.75.
        """
        if not self.gpus or self.wait_ratio is None or self.cpu_used_core_hours is None or not self.hours:
            return None
        return self.cpu_used_core_hours / self.hours / (1 - self.wait_ratio) if self.wait_ratio < 1 else None

    @property
    def messages(self) -> list[str]:
        """What is worth a look, e.g. `flat for the last 8h00m of 10h00m`."""
        found = list(self._on_the_loss())
        if self.throttled_while_improving:
            found.append(f"throttled in {self.throttled_ratio:.0%} of its periods while it improved")
        if self.spinning_most_core_hours is not None:
            found.append(
                f"throttled with {self.threads:.0f} threads: 0 to {self.spinning_most_core_hours:.2g} core-hours "
                "may have been spent spinning; set OMP_WAIT_POLICY=passive or SLOPEWISE_THREADS=follow"
            )
        if waits(self.wait_ratio):
            more = "" if self.useful_cores is None else f"; {self.useful_cores:.2g} cores would keep its GPUs busy"
            found.append(f"waited for its batches in {self.wait_ratio:.0%} of its steps' time: input-bound{more}")
        elif self.input_bound:
            found.append(f"GPU used {self.gpu_use_ratio:.0%} while its CPU was full: input-bound")
        if self.cpu_never_used_cores and self.cpu_request_cores:
            found.append(f"never used {self.cpu_never_used_cores:.1f} of {self.cpu_request_cores:.1f} requested cores")
        if self.memory_never_used_gib and self.memory_request_gib:
            used = f"{self.memory_never_used_gib:.1f} of {self.memory_request_gib:.1f}"
            found.append(f"never used {used} requested GiB")
        if self.gap_ratio >= GAP_RATIO:
            found.append(f"no samples for {self.gap_ratio:.0%} of its time: its figures are estimates")
        return found

    def _on_the_loss(self) -> Iterator[str]:
        if self.loss is None or self.loss.state is None:
            return
        hours, level = shown_hours(self.hours), self.loss.level
        gained = f"gained {self.loss.gain_low:.2g} to {self.loss.gain_high:.2g} in its last half"
        if self.flat_hours:
            word = "converged, flat" if self.loss_state == "converged" else "flat"
            patience = shown_hours(self.hours - self.flat_hours)
            yield (
                f"{word} at {level:.3g} for the last {shown_hours(self.flat_hours)} of {hours} ({gained}): stop it at "
                f"a target, or early, with a patience of {patience}"
            )
        elif self.is_stalled:
            yield f"its loss did not improve in {hours}"
        elif self.loss_state == "planned":
            yield f"flat so far, within its plan ({gained}): its schedule may lower it"
        elif self.loss_state == "fits":
            yield f"flat on held-out data at {level:.3g} ({gained}) while its training loss falls: compare its metric"
        elif self.loss_state == "rises":
            yield f"its loss rises ({gained}): keep its best checkpoint, and stop early"
        elif self.loss_state == "unclear":
            yield f"not known whether it is flat at {level:.3g} ({gained}): report a smoothed loss"


def shown_hours(hours: float) -> str:
    """`7h42m`, also of a job of seconds or of days."""
    return duration(HOUR * hours)


def finding(job: JobHistory) -> JobFinding:
    """What is found of one job."""
    found = of_job(job)
    tail_seconds = None
    if found is not None and found.state != "stalled" and found.state not in NOT_KNOWN:
        tail_seconds = job.until_seconds - found.since if found.is_flat else 0.0
    flat_at = job.until_seconds - (tail_seconds or 0.0)
    improves = found is not None and found.state != "stalled"
    cores = job.requests.cpu_cores
    used_core_hours = _integral(job.cpu_cores, job.step_seconds) / HOUR if len(job.cpu_cores) else None
    held_cores = cores if cores is not None else _mean(job.cpu_cores)
    memory = job.requests.memory_bytes if job.requests.memory_bytes is not None else _mean(job.memory_bytes)
    tail_hours = None if tail_seconds is None else tail_seconds / HOUR
    hours = job.seconds / HOUR
    throttled = _mean(_until(job.throttled_ratio, flat_at))
    gpu_use = _mean(_until(job.gpu_use_ratio, flat_at))
    idle_gpus = gpu_use is not None and gpu_use < LOW_GPU_RATIO and cpu_is_full(job, throttled)
    return JobFinding(
        namespace=job.namespace,
        pod=job.pod,
        node=job.node,
        started_at_seconds=job.from_seconds,
        hours=hours,
        still_running=job.still_running,
        loss=_of_loss(job, found) if len(job.loss) else None,
        flat_hours=tail_hours,
        cpu_used_core_hours=used_core_hours,
        cpu_held_core_hours=None if held_cores is None else held_cores * hours,
        cpu_held_flat_core_hours=_product(tail_hours, cores, _mean(_since(job.cpu_cores, flat_at))),
        memory_held_flat_gib_hours=_product(tail_hours, None if memory is None else memory / GIB),
        gpus=job.gpus,
        gpu_hours=job.gpus * hours,
        gpu_flat_hours=None if tail_hours is None else job.gpus * tail_hours,
        gpu_use_ratio=gpu_use,
        throttled_ratio=throttled,
        throttled_while_improving=improves and (throttled or 0.0) >= THROTTLED_RATIO,
        threads=float(np.median(job.threads[:, 1])) if len(job.threads) else None,
        spinning_most_core_hours=_spinning_most_core_hours(job),
        wait_ratio=job.wait_ratio,
        input_bound=idle_gpus or waits(job.wait_ratio),
        cpu_request_cores=cores,
        cpu_never_used_cores=_never_used(cores, job.cpu_cores),
        memory_request_gib=None if job.requests.memory_bytes is None else job.requests.memory_bytes / GIB,
        memory_never_used_gib=_gib(_never_used(job.requests.memory_bytes, job.memory_bytes)),
        gap_ratio=_gap_ratio(job),
    )


def _of_loss(job: JobHistory, found: Flatness | None) -> LossFinding:
    """In the unit of what the job reports: of an accuracy not what it lacks of 1."""
    first, last = float(job.loss[0, 1]), float(job.loss[-1, 1])
    if found is None:
        return LossFinding(first, last, None, None, None, None)
    level = found.level if job.objective == "min" else first + float(falling_loss(job)[0, 1]) - found.level
    return LossFinding(first, last, found.state, level, found.gain.low, found.gain.high)


def cpu_is_full(job: JobHistory, throttled: float | None) -> bool:
    """Whether its CPU held it back; `throttled`: in which part of its periods it was."""
    bound = job.limits.cpu_cores or job.requests.cpu_cores
    used = _mean(job.cpu_cores)
    full = bound is not None and used is not None and used >= FULL_CPU_RATIO * bound
    return full or (throttled is not None and throttled >= THROTTLED_RATIO)


def _spinning_most_core_hours(job: JobHistory) -> float | None:
    """The CPU of the steps in which it was throttled; None: its threads are not many for its CPU, or not known.

    Worked example: 64 threads under a limit of 4 cores, throttled for 2 of 10 h: 0 to 8 core-hours.
    """
    cores, threads = job.limits.cpu_cores or _mean(job.cpu_cores), job.threads[:, 1]
    if not cores or not len(threads) or np.median(threads) < max(MANY_THREADS_RATIO * cores, cores + MANY_THREADS):
        return None
    throttled = job.throttled_ratio[job.throttled_ratio[:, 1] >= THROTTLED_RATIO]
    used = job.cpu_cores[np.isin(job.cpu_cores[:, 0], throttled[:, 0])]
    return float(used[:, 1].sum()) * job.step_seconds / HOUR if len(used) else None


def waits(wait_ratio: float | None) -> bool:
    """Whether its steps waited for their batches long enough for a word about it."""
    return wait_ratio is not None and wait_ratio >= INPUT_BOUND_RATIO


def _never_used(request: float | None, used: Points) -> float | None:
    """What of a request was above the highest use, where that is half of it or more; 0 where it is less."""
    if request is None or not len(used):
        return None
    rest = request - float(used[:, 1].max())
    return rest if rest >= NEVER_USED_RATIO * request else 0.0


def _gib(size_bytes: float | None) -> float | None:
    return None if size_bytes is None else size_bytes / GIB


def _product(hours: float | None, amount: float | None, otherwise: float | None = None) -> float | None:
    held = amount if amount is not None else otherwise
    return None if hours is None or held is None else hours * held


def _until(points: Points, at_seconds: float) -> Points:
    return points[points[:, 0] <= at_seconds]


def _since(points: Points, at_seconds: float) -> Points:
    return points[points[:, 0] > at_seconds]


def _mean(points: Points) -> float | None:
    return float(points[:, 1].mean()) if len(points) else None


def _integral(points: Points, step_seconds: float) -> float:
    """The sum over time; a gap in the scrapes has the mean of what is around it, over the time between its ends."""
    if len(points) < 2:
        return float(points[:, 1].sum()) * step_seconds
    return float(np.trapezoid(points[:, 1], points[:, 0])) + float(points[0, 1]) * step_seconds


def _gap_ratio(job: JobHistory) -> float:
    """Worked example: points each 60 s for 2 h, of which 30 min are missing: 0.25."""
    points = max((job.loss, job.cpu_cores), key=len)
    if len(points) < MIN_POINTS or not job.seconds:
        return 0.0
    spacings = np.diff(points[:, 0])
    return float(spacings[spacings > GAP_SPACINGS * np.median(spacings)].sum() / job.seconds)
