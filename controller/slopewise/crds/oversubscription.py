"""The conditions `Oversubscribes` and `GpuWaits` of a JobGrowth: its steps cost more CPU, or have too little. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slopewise.crds.conditions import Condition, Wanted
from slopewise.estimators.gpu_need import explained, gpu_need, waiting
from slopewise.estimators.step_cost import oversubscribed, step_cost
from slopewise.model import Job, JobMemory

OVERSUBSCRIBES, GPU_WAITS = "Oversubscribes", "GpuWaits"
_REASONS = {"cpu": "ForCpu", "workers": "ForLoaderWorkers"}
REMEDY = "set OMP_WAIT_POLICY=passive, or SLOPEWISE_THREADS=follow"


def conditions(pods: Iterable[tuple[Job, JobMemory]], previous: Sequence[Condition]) -> tuple[Wanted, ...]:
    """That a pod of the workload oversubscribes its CPU, or its GPUs wait for batches, or that this is so no more.

    `pods`: each with its memory. No condition for a workload of which it was never known: its steps may have been dear
    from the start.
    """
    several = list(pods)
    return (*_oversubscribes(several, previous), *_gpu_waits(several, previous))


def _gpu_waits(several: Sequence[tuple[Job, JobMemory]], previous: Sequence[Condition]) -> tuple[Wanted, ...]:
    """That the GPUs of a pod wait for batches, and what would end that, or do so no more."""
    need = next(filter(None, (waiting(job, known) for job, known in several)), None)
    if need is not None:
        return (Wanted(GPU_WAITS, "True", _REASONS[need.limiting], explained(need)),)
    if all(each.type != GPU_WAITS for each in previous):
        return ()
    if all(job.state.ended or gpu_need(job, known).limiting == "unknown" for job, known in several):
        return (Wanted(GPU_WAITS, "Unknown", "NotMeasured"),)
    return (Wanted(GPU_WAITS, "False", "Busy"),)


def _oversubscribes(several: Sequence[tuple[Job, JobMemory]], previous: Sequence[Condition]) -> tuple[Wanted, ...]:
    found = next(filter(None, (oversubscribed(job, known) for job, known in several)), None)
    if found is not None:
        return (Wanted(OVERSUBSCRIBES, "True", "StepsCostMore", f"{found}; {REMEDY}"),)
    if all(each.type != OVERSUBSCRIBES for each in previous):
        return ()
    if all(job.state.ended or step_cost(known) is None for job, known in several):
        return (Wanted(OVERSUBSCRIBES, "Unknown", "NotMeasured"),)
    return (Wanted(OVERSUBSCRIBES, "False", "StepsCostLess"),)


def transitions(job: Job, known: JobMemory | None) -> tuple[object, ...]:
    """What of both makes a status worth writing at once."""
    need = waiting(job, known)
    dear = known is not None and known.timing.oversubscribes and oversubscribed(job, known) is not None
    return dear, None if need is None else need.limiting


def message(found: Iterable[Condition], *types: str) -> str:
    """Why the first of these conditions holds (default: either), and the remedy; empty where none does."""
    wanted = types or (OVERSUBSCRIBES, GPU_WAITS)
    return next((each.message for each in found if each.type in wanted and each.status == "True"), "")
