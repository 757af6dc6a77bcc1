"""The CPU that a job with accelerators can turn into steps, from the waiting that its steps measure: no profile.

A step of T seconds waits w of them for its batch, on u cores. G = T - w is what its devices take, D = u T is the CPU
that its batch takes, and D / G the cores with which batches come as fast as the devices compute them: its useful cores.
With less it is input-bound, and each core more brings 1 / D steps a second; with more the rest lies idle.

Worked example: T = 0.9 s, w = 0.5 s, u = 3 cores: G = 0.4 s, D = 2.7 CPU-seconds, 6.75 useful cores, and with them
0.4 s a step, 2.25 times faster.

G and D are of the job and not of its CPU, so intervals before and after a change of CPU count alike. The median of
three is taken: an evaluation, a checkpoint or a compilation is one interval (`step_cost.py`). Two that agree are enough
for a job that has just begun: of Synergy's jobs a tenth of the time would pass before a third.
"""

from __future__ import annotations

import math
from statistics import median
from typing import Literal, NamedTuple

from slopewise.estimators.growth import IDLE_CORES
from slopewise.estimators.pace import CPU_COUNT_AGE_SECONDS, SHORT_RATIO
from slopewise.estimators.step_cost import INTERVALS
from slopewise.model import AcceleratorControl, ClusterSnapshot, Job, JobMemory, LearnedCores, MemoryState, Pace

MIN_WAIT_RATIO = 0.05
"""Steps that wait for less of their time are as fast as the device: a loader with a full queue still takes a moment."""

AGREES_RATIO = 0.1
"""Two intervals whose useful cores differ by no more have no evaluation in one of them."""

UNUSED_RATIO = 0.8
"""A job that waits for batches and uses less of its CPU cannot use more: its loader has too few workers, or reads."""

SPARE_RATIO, SPARE_CORES = 1.2, 0.05
"""What a job keeps that lends CPU: 1.2 times its useful cores, and 0.05 more at least, which a hard quota costs below a
core. A real loader of two workers whose batches differ was 2 % slower with 1.2 times its use as quota than without one,
4 % with 1.1 times and 7 % with 1.05: an empty queue must fill again."""

BUSY_RATIO = 0.8
"""A device that computes for more of the time has no need of more CPU, as far as its use alone shows it."""

RAISE_STEP = 1.25
"""Of the CPU that it has, what a job gets next whose need has no figure, as long as that has its devices used more."""

GPU_USE_SECONDS = 120.0
"""The use of devices is an average over two minutes (`node_queries.GPU_USE`): a change shows in part before."""

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
    gpu_use: float | None = None
    """Of its devices, where only that and a shortage of CPU are known: its useful cores are then one step more."""
    useful_range: tuple[float, float] | None = None
    """The least and the most useful cores of the intervals, where they differ by more than `AGREES_RATIO`."""

    def seconds_at(self, cores: float) -> float | None:
        """Seconds of a step with this CPU; None: not known. Worked example (above): 0.9 s at 3 cores."""
        if self.gpu_seconds is None or self.cpu_seconds is None:
            return None
        return max(self.gpu_seconds, self.cpu_seconds / cores)


UNKNOWN = GpuNeed("unknown")


def gpu_need(job: Job, known: JobMemory) -> GpuNeed:
    """The need of a job with accelerators, from the paces of its last three intervals, or two; `UNKNOWN` before."""
    if not job.accelerators or job.responses is not None:
        return UNKNOWN
    newest = [pace for pace in known.paces[-INTERVALS:] if _is_measured(pace)]
    if len(newest) < 2:
        return _by_use(job, known)
    gpu = [pace.seconds * (1 - (pace.wait_ratio or 0.0)) for pace in newest]
    cpu = [pace.seconds * (pace.cores or 0.0) for pace in newest]
    cores = [of_cpu / of_gpu for of_cpu, of_gpu in zip(cpu, gpu, strict=True)]
    useful, waits = median(cores), median(pace.wait_ratio or 0.0 for pace in newest)
    differ = (max(cores) - min(cores)) / useful > AGREES_RATIO
    if len(newest) < INTERVALS and differ:
        return UNKNOWN
    limiting: Limiting = "gpu"
    if waits >= MIN_WAIT_RATIO:
        most = learned(known).most
        limiting = "cpu" if most is None and not _leaves_cpu(job, known) else "workers"
        if limiting == "workers":
            useful = max(IDLE_CORES, min(useful, (newest[-1].cores or 0.0) if most is None else most))
    between = (min(cores), max(cores)) if differ and limiting != "workers" else None
    return GpuNeed(limiting, useful, median(gpu), median(cpu), waits, newest[-1].at_seconds, useful_range=between)


def _by_use(job: Job, known: JobMemory) -> GpuNeed:
    """The direction alone, for a job that reports no waits: idle devices and a shortage of CPU together."""
    newest, limit = known.paces[-INTERVALS:], (job.actual or job.allocation).limit_millicores
    uses = [pace.gpu_use for pace in newest if pace.gpu_use is not None]
    shortages = [pace.short_ratio for pace in newest if pace.short_ratio is not None]
    if limit is None or len(uses) < INTERVALS:
        return UNKNOWN
    use, resized_at, at_seconds = median(uses), known.last_resized_at_seconds, newest[-1].at_seconds
    judged = resized_at is None or newest[0].at_seconds >= resized_at + GPU_USE_SECONDS
    if (most := learned(known).most) is not None:
        return GpuNeed("workers", most, at_seconds=at_seconds, gpu_use=use)
    if use >= BUSY_RATIO or len(shortages) < INTERVALS or median(shortages) < SHORT_RATIO:
        return UNKNOWN if known.original is None else GpuNeed("gpu", limit / 1000, at_seconds=at_seconds, gpu_use=use)
    return GpuNeed("cpu", (RAISE_STEP if judged else 1.0) * limit / 1000, at_seconds=at_seconds, gpu_use=use)


def _is_measured(pace: Pace) -> bool:
    """An interval in which every step waited to the last says nothing of the device."""
    waited, cores = pace.wait_ratio, pace.cores
    return waited is not None and waited < 1 and cores is not None and cores >= IDLE_CORES


def _leaves_cpu(job: Job, known: JobMemory) -> bool:
    """Whether it leaves CPU that it has, as far as that shows: in an interval that lies after its last change.

    Where its pressure is not known, only CPU below its request is certainly its own: neighbours may have the rest.
    """
    newest, before = known.paces[-1], known.paces[-2]
    resized_at, has = known.last_resized_at_seconds, job.actual or job.allocation
    if resized_at is not None and before.at_seconds < resized_at + CPU_COUNT_AGE_SECONDS:
        return False
    if newest.short_ratio is None:
        return (newest.cores or 0.0) < UNUSED_RATIO * has.request_millicores / 1000
    if newest.short_ratio >= SHORT_RATIO:
        return False
    return has.limit_millicores is None or (newest.cores or 0.0) < UNUSED_RATIO * has.limit_millicores / 1000


def explained(need: GpuNeed, original_cores: float | None = None) -> str:
    """What limits a job, as text for its owner; also what its GPU is used more than with the CPU that it came with."""
    waits, useful = f"its GPU waits {need.wait_ratio or 0.0:.0%} of the time", f"{need.useful_cores or 0.0:.3g} cores"
    if need.useful_range is not None:
        useful = (
            f"{useful} ({need.useful_range[0]:.3g} to {need.useful_range[1]:.3g} in its last {INTERVALS} intervals)"
        )
    if need.gpu_use is not None:
        end = "and it is short of CPU" if need.limiting == "cpu" else f"and more than {useful} would not change that"
        return f"its GPU is used {need.gpu_use:.0%} of the time, {end}"
    if need.limiting == "gpu":
        text = f"{waits}, and {useful} are all that it can use"
    elif need.limiting == "workers":
        text = f"{waits}, and not for CPU: it uses {useful} whatever it has, and lacks loader workers or faster reads"
    else:
        text = f"{waits} for CPU, and would not with {useful}"
    seconds = need.seconds_at(original_cores) if original_cores else None
    before, now = (need.gpu_seconds or 0.0) / (seconds or math.inf), 1 - (need.wait_ratio or 0.0)
    return f"{text} (GPU {before:.0%} → {now:.0%})" if 0 < before < now - MIN_WAIT_RATIO else text


def waiting(job: Job, known: JobMemory | None) -> GpuNeed | None:
    """The need of a job whose GPUs wait for batches; None: they do not, as far as is known, or it has ended."""
    need = UNKNOWN if known is None or job.state.ended else gpu_need(job, known)
    return need if need.limiting in ("cpu", "workers") else None


def least_cores(need: GpuNeed, known: JobMemory, original_cores: float, control: AcceleratorControl) -> float:
    """The CPU with which a job is as fast as with what it came with, in cores; never more than that."""
    if control != "Share" or need.useful_cores is None or need.gpu_use is not None:
        return original_cores
    useful = need.useful_cores
    return min(original_cores, max(SPARE_RATIO * useful, useful + SPARE_CORES, learned(known).least or 0.0))


def measure(snapshot: ClusterSnapshot, memory: MemoryState, remembered: MemoryState) -> MemoryState:
    """The memory with the device-seconds that each job has won since its CPU was first changed.

    Those are of each interval that has ended since the last pass its steps, times what each would have taken longer
    with the limit that the job came with. Worked example: 40 steps of 0.45 s that would have taken 0.9 s, on two
    devices, are 36 device-seconds.
    """
    changed = {}
    for job in snapshot.jobs:
        known, before = memory.jobs.get(job.uid), remembered.jobs.get(job.uid)
        if not job.accelerators or known is None or before is None or known.paces == before.paces:
            continue
        limit = None if known.original is None else known.original.limit_millicores
        seconds = None if limit is None else gpu_need(job, known).seconds_at(limit / 1000)
        if seconds is not None and before.timing.anchor is not None:
            newest = known.paces[-1]
            steps = (newest.at_seconds - before.timing.anchor.at_seconds) / newest.seconds
            won = job.accelerators * steps * (seconds - newest.seconds)
            changed[job.uid] = known.altered(gpu=known.gpu.altered(seconds_won=known.gpu.seconds_won + max(0.0, won)))
    return memory.with_jobs(changed)


def learned(known: JobMemory) -> LearnedCores:
    """What is not forgotten yet."""
    found, now = known.gpu.learned, known.paces[-1].at_seconds if known.paces else 0.0
    return found if found is not None and now - found.at_seconds < LEARNED_SECONDS else _NOTHING
