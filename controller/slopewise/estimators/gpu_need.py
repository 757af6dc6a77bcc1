"""The CPU that a job with accelerators can turn into steps, from the waiting that its steps measure: no profile.

A step of T seconds waits w of them for its batch, on u cores. G = T - w is what its devices take, D = u T is the CPU
that its batch takes, and D / G the cores with which batches come as fast as the devices compute them: its useful cores.
With less it is input-bound, and each core more brings 1 / D steps a second; with more the rest lies idle.

Worked example: T = 0.9 s, w = 0.5 s, u = 3 cores: G = 0.4 s, D = 2.7 CPU-seconds, 6.75 useful cores, and with them
0.4 s a step, 2.25 times faster.

G and D are of the job and not of its CPU, so intervals before and after a change of CPU count alike. The median of
three is taken: an evaluation, a checkpoint or a compilation is one interval (`step_cost.py`).
"""

from __future__ import annotations

from statistics import median
from typing import Literal, NamedTuple

from slopewise.estimators.growth import IDLE_CORES
from slopewise.estimators.pace import CPU_COUNT_AGE_SECONDS
from slopewise.estimators.step_cost import INTERVALS
from slopewise.model import AcceleratorControl, Job, JobMemory, LearnedCores, Pace

MIN_WAIT_RATIO = 0.05
"""Steps that wait for less of their time are as fast as the device: a loader with a full queue still takes a moment."""

UNUSED_RATIO = 0.8
"""A job that waits for batches and uses less of its CPU cannot use more: its loader has too few workers, or reads."""

SHORT_RATIO = 0.1
"""Throttled in fewer periods, or under pressure for less of the time, a job has had the CPU that it wanted. Rollbacks
call 0.25 throttled; a loader under its quota is in nearly all periods."""

SPARE_RATIO = 1.2
"""Of its useful cores, what a job keeps that lends CPU: its loader must fill a queue again that ran empty."""

LEARNED_SECONDS = 3600.0
"""For how long a change that went wrong is not tried again: jobs get other data, and loaders other workers."""

_NOTHING = LearnedCores(0.0)

Limiting = Literal["cpu", "workers", "gpu", "unknown"]
"""What a job's steps take their time from: its CPU, its loader workers (or a disk: not CPU), its devices."""


class GpuNeed(NamedTuple):
    """What a job with accelerators needs of the CPU, and what limits it."""

    limiting: Limiting
    useful_cores: float | None = None
    """D / G; where its loader cannot use more, what it uses. None: not known."""
    gpu_seconds: float | None = None
    """G, of a step; None: not known, like what follows."""
    cpu_seconds: float | None = None
    """D, of a step."""
    wait_ratio: float | None = None
    """w / T."""
    at_seconds: float | None = None
    """End of the newest interval that it is of."""
    spread_ratio: float = 0.0
    """Largest less smallest D / G of the intervals, over their median."""

    def seconds_at(self, cores: float) -> float | None:
        """Seconds of a step with this CPU; None: not known. Worked example (above): 0.9 s at 3 cores."""
        if self.gpu_seconds is None or self.cpu_seconds is None:
            return None
        return max(self.gpu_seconds, self.cpu_seconds / cores)


UNKNOWN = GpuNeed("unknown")


def gpu_need(job: Job, known: JobMemory) -> GpuNeed:
    """The need of a job with accelerators, from the paces of its last three intervals; `UNKNOWN` before."""
    newest = [pace for pace in known.paces[-INTERVALS:] if _is_measured(pace)]
    if not job.accelerators or job.responses is not None or len(newest) < INTERVALS:
        return UNKNOWN
    gpu = [pace.seconds * (1 - (pace.wait_ratio or 0.0)) for pace in newest]
    cpu = [pace.seconds * (pace.cores or 0.0) for pace in newest]
    cores = [of_cpu / of_gpu for of_cpu, of_gpu in zip(cpu, gpu, strict=True)]
    useful, waits = median(cores), median(pace.wait_ratio or 0.0 for pace in newest)
    spread = (max(cores) - min(cores)) / useful
    limiting: Limiting = "gpu"
    if waits >= MIN_WAIT_RATIO:
        most = _learned(known).most
        limiting = "cpu" if most is None and not _leaves_cpu(job, known) else "workers"
        if limiting == "workers":
            useful = min(useful, newest[-1].cores or 0.0) if most is None else min(useful, most)
    return GpuNeed(limiting, useful, median(gpu), median(cpu), waits, newest[-1].at_seconds, spread)


def _is_measured(pace: Pace) -> bool:
    """An interval in which every step waited to the last says nothing of the device."""
    waited, cores = pace.wait_ratio, pace.cores
    return waited is not None and waited < 1 and cores is not None and cores >= IDLE_CORES


def _leaves_cpu(job: Job, known: JobMemory) -> bool:
    """Whether it leaves CPU that it has, as far as that shows: in an interval that lies after its last change."""
    newest, before = known.paces[-1], known.paces[-2]
    resized_at = known.last_resized_at_seconds
    if resized_at is not None and before.at_seconds < resized_at + CPU_COUNT_AGE_SECONDS:
        return False
    if newest.short_ratio is not None and newest.short_ratio >= SHORT_RATIO:
        return False
    limit = (job.actual or job.allocation).limit_millicores
    if limit is None:
        return newest.short_ratio is not None
    return (newest.cores or 0.0) < UNUSED_RATIO * limit / 1000


def least_cores(need: GpuNeed, known: JobMemory, original_cores: float, control: AcceleratorControl) -> float:
    """The CPU with which a job is as fast as with what it came with, in cores; never more than that."""
    if control != "Share" or need.useful_cores is None:
        return original_cores
    return min(original_cores, max(SPARE_RATIO * need.useful_cores, _learned(known).least or 0.0))


def _learned(known: JobMemory) -> LearnedCores:
    """What is not forgotten yet."""
    learned, now = known.learned_cores, known.paces[-1].at_seconds if known.paces else 0.0
    return learned if learned is not None and now - learned.at_seconds < LEARNED_SECONDS else _NOTHING
