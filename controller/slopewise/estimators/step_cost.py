"""Cost of a step: the CPU-seconds that a step of a training takes now, over the least that it has cost this job.

A library with more threads than CPU spins at its barriers: CPU is used, and no step is done. `measure` runs after
`pace.measure`, whose figures it compares, and keeps the least in the job's memory.

Both sides are of three intervals in a row: the least is the dearest of three, now is the cheapest of the newest three.
What lasts for an interval or two changes neither: an evaluation or a checkpoint, a compilation at the start, a late
count of CPU, steps that jump after a resume, the rounding of a few steps in an interval (a factor of two at most).

Nothing is known between a restart and the end of the next interval. The least outlives a restart, unless steps are then
counted from the start: in the pod of a notebook that is another training, whose steps are others.

Worked example: 2, 2, 2, 3.2, 3.6 and 3.4 CPU-seconds a step: the least is 2, and now is 3.2, which is 1.6 times it.

What it cannot tell:

- A job that never had enough CPU for its threads has had dear steps only, and its ratio is 1.
- Larger batches, longer sequences or an older processor make a step dearer as well. A learning rate does not. A move by
  the controller begins the least again, a pod that comes back elsewhere by itself does not.
- A first phase of cheap steps, three intervals long, stays the least.
"""

from __future__ import annotations

from typing import NamedTuple

from slopewise.estimators.growth import IDLE_CORES
from slopewise.model import ClusterSnapshot, Job, JobMemory, MemoryState, Pace, PaceAnchor

INTERVALS = 3
"""In a row. One is an evaluation or a late count of CPU; an interval after a change of CPU is one of both CPUs."""

OVERSUBSCRIBES_RATIO = 1.5
"""A step of one thread cost the same to within 3 % under quotas from 0.02 to 1 core, beside a load of 23 on two cores;
threads that spin made a step 4 to 40 times dearer (docs/exporters-threads.md). Rollbacks call 1.4 times waste."""

UNTIL_RATIO = 1.25
"""A job that oversubscribes does so until it is below this: about 1.5 it would be reported again at each crossing."""

_FROM_THE_START_RATIO = 0.5
"""Of the steps before: a process that resumes from its checkpoint has more, a training that begins has few."""


class StepCost(NamedTuple):
    """CPU-seconds a step of one training. `did`: it oversubscribed at the last pass."""

    now_seconds: float
    least_seconds: float
    cores: float
    """CPU that it uses now."""
    did: bool = False

    @property
    def ratio(self) -> float:
        """Now over the least; never below 1."""
        return max(1.0, self.now_seconds / self.least_seconds)

    @property
    def oversubscribes(self) -> bool:
        """Whether it has more threads than CPU, as far as the cost of its steps shows it."""
        return self.ratio > (UNTIL_RATIO if self.did else OVERSUBSCRIBES_RATIO)


def measure(snapshot: ClusterSnapshot, memory: MemoryState, remembered: MemoryState) -> MemoryState:
    """Bring the least of each training up to its newest paces; served models have none. `remembered` is as stored."""
    changed = {}
    for job in snapshot.jobs:
        known = memory.jobs.get(job.uid)
        if known is None or not known.paces or job.responses is not None:
            continue
        before, costs, timing = remembered.jobs.get(job.uid), _newest(known), known.timing
        least = _least(known, costs, None if before is None else before.timing.anchor)
        cost = _cost(known, costs, least)
        oversubscribes = cost is not None and cost.oversubscribes
        if least != timing.least_step_cpu_seconds or oversubscribes != timing.oversubscribes:
            timing = timing.altered(least_step_cpu_seconds=least, oversubscribes=oversubscribes)
            changed[job.uid] = known.altered(timing=timing)
    return memory.with_jobs(changed)


def step_cost(known: JobMemory) -> StepCost | None:
    """What a step costs now and at best; None: not known yet, not of this node, or no training."""
    return _cost(known, _newest(known), known.timing.least_step_cpu_seconds)


def _cost(known: JobMemory, costs: list[float], least: float | None) -> StepCost | None:
    cores = known.paces[-1].cores if costs else None
    return None if least is None or cores is None else StepCost(min(costs), least, cores, known.timing.oversubscribes)


def oversubscribed(job: Job, known: JobMemory | None) -> str | None:
    """`8 threads on 1.00 cores: a step costs 3.2 CPU-seconds, 2 at best`, without threads that are not known.

    None: the job does not oversubscribe its CPU, as far as is known, or has ended.
    """
    cost = None if known is None or job.state.ended else step_cost(known)
    if cost is None or not cost.oversubscribes:
        return None
    threads = "" if job.threads is None else f"{job.threads:.0f} thread{'' if job.threads == 1 else 's'} "
    costs = f"a step costs {cost.now_seconds:.3g} CPU-seconds, {cost.least_seconds:.3g} at best"
    return f"{threads}on {cost.cores:.2f} cores: {costs}"


def cpu_seconds(pace: Pace | None) -> float | None:
    """CPU-seconds a step or response; None: not known."""
    return None if pace is None or pace.cores is None else pace.seconds * pace.cores


def _least(known: JobMemory, costs: list[float], before: PaceAnchor | None) -> float | None:
    moved_at, kept = known.moved_at_seconds, known.timing.least_step_cpu_seconds
    if moved_at is not None and known.paces[-INTERVALS:][0].at_seconds <= moved_at:
        return None
    now = known.timing.anchor
    if before is not None and now is not None and now.done_total < _FROM_THE_START_RATIO * before.done_total:
        kept = None
    return min([max(costs), *([] if kept is None else [kept])]) if costs else kept


def _newest(known: JobMemory) -> list[float]:
    """The costs of the newest intervals, all of which used CPU; else none, and none after a restart."""
    newest, anchor = known.paces[-INTERVALS:], known.timing.anchor
    if anchor is not None and newest and newest[-1].at_seconds < anchor.at_seconds:  # its first interval has not ended
        return []
    costs = [pace.seconds * pace.cores for pace in newest if pace.cores and pace.cores >= IDLE_CORES]
    return costs if len(costs) == INTERVALS else []
