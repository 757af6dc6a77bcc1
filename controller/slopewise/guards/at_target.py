"""Stops jobs at their final target where their owners ask for it (`slopewise.dev/at-target: stop`), under every policy.

A stop ends the job's process through its own checkpoint, and nothing starts it again but its owner. So a stop needs
more than a hit: the final target counts as reached (`TargetHits`), the present evaluation reaches it too, and
all pods of the workload agree, because they end together. Guards review it like every other decision.

A stop is recorded before it is carried out. A job that its owner starts again is another process: its record is
dropped, and its hits are counted again from none, so that it is not stopped for those of the process before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import structs

from slopewise.estimators.growth import is_usable
from slopewise.guards.context import UNKNOWN, PassContext, workloads
from slopewise.guards.framework import Guard, Stage, routine
from slopewise.model import (
    ClusterSnapshot,
    Decision,
    Job,
    JobMemory,
    JobState,
    JobUid,
    MemoryState,
    Outcome,
    Stop,
    StopRecord,
    TargetHits,
    Veto,
    reaches,
)

RETRY_SECONDS = 300.0
"""An owner that cannot be stopped is asked again so late: what has to change is a right, or the owner itself."""


@routine()
def stop_checkpointing(context: PassContext, stop: Stop) -> Stop | Veto:
    """A job is not stopped while it writes a checkpoint."""
    saves = any(pod.state is JobState.CHECKPOINTING for pod in context.pods(stop.job_uid))
    return Veto("job is checkpointing") if saves else stop


@routine()
def stop_under_way(context: PassContext, stop: Stop) -> Stop | Veto:
    """A job that is being moved is stopped where it arrives."""
    going = context.under_way
    target = next((going[pod.uid] for pod in context.pods(stop.job_uid) if pod.uid in going), None)
    return stop if target is None else Veto(f"it is being moved to {target or 'where it fits'}")


def reached_at_first(context: PassContext, stop: Stop) -> Stop | Veto:
    """A target that the first evaluation reached may be on the wrong side, unless the job has improved since."""
    job, known = context.jobs[stop.job_uid], context.known(stop.job_uid)
    first, best, evaluation, target = known.levels.first, known.levels.best, job.evaluation, job.objectives.target_level
    if first is None or evaluation is None or target is None or not reaches(first, target, evaluation.objective):
        return stop
    if any(
        level is not None and level != first and reaches(level, first, evaluation.objective)
        for level in (best, evaluation.level)
    ):
        return stop
    return Veto(
        f"its first evaluation {first:.3g} reached the target {target:.3g} already, and none since was better; is the "
        "target on the right side?"
    )


STOP_GUARDS: tuple[Guard[PassContext, Stop], ...] = (stop_checkpointing, stop_under_way, reached_at_first)


def stages(whole: PassContext, stop: Stop) -> Iterator[Stage]:
    """The guards of a stop, and what they are given."""
    yield STOP_GUARDS, whole


def stops(memory: MemoryState, snapshot: ClusterSnapshot) -> tuple[list[Stop], MemoryState]:
    """The stops that are due, one for each workload, and the memory without those of earlier processes."""
    asking = [job for job in snapshot.jobs if job.objectives.stops_at_target and not job.state.ended]
    if not asking:
        return [], memory
    memory = _without_former_processes(memory, asking)
    wished = (pods for pods in workloads(snapshot).values() if all(pod.objectives.stops_at_target for pod in pods))
    return [stop for pods in wished if (stop := _stop(pods, memory, snapshot)) is not None], memory


def record(memory: MemoryState, due: Sequence[Stop], context: PassContext) -> MemoryState:
    """Memory with a record of each stop that is about to be carried out, for all pods of its workload."""
    now = context.snapshot.taken_at_seconds
    recorded = {
        pod.uid: memory.jobs.get(pod.uid, UNKNOWN).altered(
            stop=StopRecord(now, stop.reason, pod.started_at_seconds, pod.process_started_at_seconds)
        )
        for stop in due
        for pod in context.pods(stop.job_uid)
    }
    return memory.with_jobs(recorded)


def remember(memory: MemoryState, outcomes: Sequence[Outcome[Decision]]) -> MemoryState:
    """Memory with the results of the stops, for all pods of their workloads."""
    if not outcomes:
        return memory
    results = {JobUid.of(each.decision.job_uid).workload: each for each in outcomes}
    changed = {}
    for uid, known in memory.jobs.items():
        outcome = results.get(JobUid.of(uid).workload)
        if outcome is not None and known.stop is not None:
            detail = "" if outcome.result == "applied" else outcome.detail
            changed[uid] = known.altered(stop=structs.replace(known.stop, result=outcome.result, detail=detail))
    return memory.with_jobs(changed)


def _stop(pods: Sequence[Job], memory: MemoryState, snapshot: ClusterSnapshot) -> Stop | None:
    """The stop of one workload; None: not at its target, or stopped already, or in back-off."""
    now = snapshot.taken_at_seconds
    if not all(_is_due(pod, memory.jobs.get(pod.uid), snapshot, now) for pod in pods):
        return None
    first = pods[0]
    return Stop(first.uid, first.node, f"stopped at its target: {at_target(first)}")


def _is_due(job: Job, known: JobMemory | None, snapshot: ClusterSnapshot, now_seconds: float) -> bool:
    target = job.objectives.target_level
    if known is None or known.objectives.targets is None or not known.objectives.targets.is_final or target is None:
        return False
    if known.stop is not None and not _may_retry(known.stop, now_seconds):
        return False
    return job.evaluation is not None and is_usable(job, snapshot) and job.evaluation.reaches(target)


def _may_retry(stop: StopRecord, now_seconds: float) -> bool:
    """A failed attempt is repeated in the next pass, one that cannot succeed after `RETRY_SECONDS`."""
    if stop.is_done:
        return False
    return stop.result != "infeasible" or now_seconds - stop.at_seconds >= RETRY_SECONDS


def at_target(job: Job) -> str:
    """The evaluation beside the target, e.g. `loss 0.19 ≤ 0.2`, or `evaluation 0.91 ≥ 0.9` where more is better."""
    evaluation, target = job.evaluation, job.objectives.target_level
    if evaluation is None or target is None:
        return "its evaluation is not known now"
    name, sign = ("evaluation", "≥") if evaluation.objective == "max" else ("loss", "≤")
    return f"{name} {evaluation.level:.3g} {sign} {target:.3g}"


def _without_former_processes(memory: MemoryState, jobs: Sequence[Job]) -> MemoryState:
    """Memory without the stops of earlier processes of these jobs, and without the hits that led to them."""
    changed = {
        job.uid: known.altered(stop=None, objectives=known.objectives.altered(targets=TargetHits()))
        for job in jobs
        if (known := memory.jobs.get(job.uid)) is not None and known.stop is not None and _is_another(job, known.stop)
    }
    return memory.with_jobs(changed)


def _is_another(job: Job, stop: StopRecord) -> bool:
    before, now = stop.process_started_at_seconds, job.process_started_at_seconds
    if before is not None and now is not None and before != now:
        return True
    return job.started_at_seconds != stop.started_at_seconds
