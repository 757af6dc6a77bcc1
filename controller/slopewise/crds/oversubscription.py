"""The condition `Oversubscribes` of a JobGrowth: a step costs more CPU than it did, as where threads spin. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slopewise.crds.conditions import Condition, Wanted
from slopewise.estimators.step_cost import oversubscribed, step_cost
from slopewise.model import Job, JobMemory

OVERSUBSCRIBES = "Oversubscribes"
REMEDY = "set OMP_WAIT_POLICY=passive, or SLOPEWISE_THREADS=follow"


def conditions(pods: Iterable[tuple[Job, JobMemory]], previous: Sequence[Condition]) -> tuple[Wanted, ...]:
    """That a pod of the workload oversubscribes its CPU, or does so no more.

    `pods`: each with its memory. No condition for a workload of which it was never known: its steps may have been dear
    from the start.
    """
    several = list(pods)
    found = next(filter(None, (oversubscribed(job, known) for job, known in several)), None)
    if found is not None:
        return (Wanted(type=OVERSUBSCRIBES, status="True", reason="StepsCostMore", message=f"{found}; {REMEDY}"),)
    if all(each.type != OVERSUBSCRIBES for each in previous):
        return ()
    if all(job.state.ended or step_cost(known) is None for job, known in several):
        return (Wanted(type=OVERSUBSCRIBES, status="Unknown", reason="NotMeasured"),)
    return (Wanted(type=OVERSUBSCRIBES, status="False", reason="StepsCostLess"),)


def message(found: Iterable[Condition]) -> str:
    """What a step costs now and at best, and the remedy; empty where the condition is not true."""
    return next((each.message for each in found if (each.type, each.status) == (OVERSUBSCRIBES, "True")), "")
