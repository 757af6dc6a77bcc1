"""Stops jobs at their final target where their owners ask for it (`slopewise.dev/at-target: stop`), under every policy.

A stop ends the job's process through its own checkpoint, and nothing starts it again but its owner. So a stop needs
more than a hit: the final target counts as reached (`JobMemory.targets`), the present evaluation reaches it too, and
all pods of the workload agree, because they end together. Guards review it like every other decision.

A stop is recorded before it is carried out. A job that its owner starts again is another process: its record is
dropped, and its hits are counted again from none, so that it is not stopped for those of the process before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

from msgspec import structs

from slopewise.estimators.growth import is_usable
from slopewise.feedback import move_tracking
from slopewise.guards.permission import not_in_canary, one_under_a_freeze, paused_by_mode
from slopewise.guards.resize import Guard, Refusal, apply_guards, withheld_by
from slopewise.model import (
    Bounds,
    ClusterSnapshot,
    Decision,
    Decisions,
    Job,
    JobMemory,
    JobState,
    JobUid,
    MemoryState,
    Move,
    Outcome,
    Resize,
    Stop,
    StopRecord,
    TargetHits,
    Veto,
    Withheld,
    reaches,
)

RETRY_SECONDS = 300.0
"""An owner that cannot be stopped is asked again so late: what has to change is a right, or the owner itself."""

STOPPING = "stopping"
"""Name of the guard that withholds resizes and moves of jobs that are being stopped."""


@dataclass(frozen=True, slots=True)
class StopContext:
    """The inputs of a guard of one stop."""

    bounds: Bounds
    pods: tuple[Job, ...]
    """All of its workload that have not ended."""
    known: JobMemory
    under_way: Mapping[str, str]
    """The target of every job that is being moved, by uid."""
    snapshot: ClusterSnapshot


def stop_paused(context: StopContext, stop: Stop) -> Stop | Veto:
    """Only modes Auto and Canary stop jobs."""
    return paused_by_mode(context.bounds) or stop


def stop_canary(context: StopContext, stop: Stop) -> Stop | Veto:
    """Mode Canary stops a share of the jobs."""
    return not_in_canary(stop.job_uid, context.bounds) or stop


def stop_frozen(context: StopContext, stop: Stop) -> Stop | Veto:
    """No job is stopped under a freeze."""
    return one_under_a_freeze(context.snapshot, context.pods) or stop


def stop_checkpointing(context: StopContext, stop: Stop) -> Stop | Veto:
    """A job is not stopped while it writes a checkpoint."""
    saves = any(pod.state is JobState.CHECKPOINTING for pod in context.pods)
    return Veto("job is checkpointing") if saves else stop


def stop_under_way(context: StopContext, stop: Stop) -> Stop | Veto:
    """A job that is being moved is stopped where it arrives."""
    target = next((context.under_way[pod.uid] for pod in context.pods if pod.uid in context.under_way), None)
    return stop if target is None else Veto(f"it is being moved to {target or 'where it fits'}")


def reached_at_first(context: StopContext, stop: Stop) -> Stop | Veto:
    """A target that the first evaluation reached may be on the wrong side, unless the job has improved since."""
    first, best, evaluation = context.known.first_level, context.known.best_level, context.pods[0].evaluation
    target = context.pods[0].objectives.target_level
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


STOP_GUARDS: tuple[Guard[StopContext, Stop], ...] = (
    stop_paused,
    stop_canary,
    stop_frozen,
    stop_checkpointing,
    stop_under_way,
    reached_at_first,
)


@dataclass(frozen=True, slots=True)
class Stopping:
    """The stops of a pass."""

    due: tuple[Stop, ...]
    withheld: tuple[Withheld[Stop], ...]
    decisions: Decisions
    """Without the resizes and moves of the jobs that are being stopped; the memory has the stops that are due."""
    resizes_withheld: tuple[Withheld[Resize], ...] = ()
    moves_withheld: tuple[Withheld[Move], ...] = ()


def review(decisions: Decisions, snapshot: ClusterSnapshot, bounds: Bounds) -> Stopping:
    """The stops that may be carried out, one for each workload, and withheld ones with their reasons."""
    asking = [job for job in snapshot.jobs if job.objectives.stops_at_target and not job.state.ended]
    if not asking:
        return Stopping((), (), decisions)
    memory = _without_former_processes(decisions.memory, asking)
    under_way = move_tracking.under_way(memory, snapshot)
    due: list[Stop] = []
    withheld: list[Withheld[Stop]] = []
    recorded = dict(memory.jobs)
    for pods in _workloads(snapshot):
        stop = _stop(pods, memory, snapshot)
        if stop is None:
            continue
        context = StopContext(bounds, pods, memory.jobs[stop.job_uid], under_way, snapshot)
        verdict = apply_guards(STOP_GUARDS, context, stop)
        if isinstance(verdict, Refusal):
            withheld.append(withheld_by(stop, verdict))
            continue
        due.append(verdict)
        recorded |= {pod.uid: _recorded(pod, recorded.get(pod.uid), verdict, snapshot) for pod in pods}
    return _taking_precedence(replace(decisions, memory=replace(memory, jobs=recorded)), due, withheld)


def remember(memory: MemoryState, outcomes: Sequence[Outcome[Decision]]) -> MemoryState:
    """Memory with the results of the stops, for all pods of their workloads."""
    if not outcomes:
        return memory
    results = {JobUid.of(each.decision.job_uid).workload: each for each in outcomes}
    changed = {}
    for uid, known in memory.jobs.items():
        outcome = results.get(JobUid.of(uid).workload)
        if outcome is not None and known.stop is not None:
            changed[uid] = known.altered(stop=_with_result(known.stop, outcome))
    return replace(memory, jobs={**memory.jobs, **changed})


def _workloads(snapshot: ClusterSnapshot) -> list[tuple[Job, ...]]:
    """The jobs that have not ended, by workload, where the owner of all of them asks for a stop."""
    by_workload = sorted(
        ((JobUid.of(job.uid).workload, number, job) for number, job in enumerate(snapshot.jobs) if not job.state.ended),
        key=itemgetter(0, 1),
    )
    found = [tuple(job for _, _, job in pods) for _, pods in groupby(by_workload, key=itemgetter(0))]
    return [pods for pods in found if all(pod.objectives.stops_at_target for pod in pods)]


def _stop(pods: Sequence[Job], memory: MemoryState, snapshot: ClusterSnapshot) -> Stop | None:
    """The stop of one workload; None: not at its target, or stopped already, or in back-off."""
    now = snapshot.taken_at_seconds
    if not all(_is_due(pod, memory.jobs.get(pod.uid), snapshot, now) for pod in pods):
        return None
    first = pods[0]
    return Stop(first.uid, first.node, f"stopped at its target: {at_target(first)}")


def _is_due(job: Job, known: JobMemory | None, snapshot: ClusterSnapshot, now_seconds: float) -> bool:
    target = job.objectives.target_level
    if known is None or known.targets is None or not known.targets.is_final or target is None:
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


def _recorded(job: Job, known: JobMemory | None, stop: Stop, snapshot: ClusterSnapshot) -> JobMemory:
    record = StopRecord(snapshot.taken_at_seconds, stop.reason, job.started_at_seconds, job.process_started_at_seconds)
    return (known or JobMemory()).altered(stop=record)


def _with_result(stop: StopRecord, outcome: Outcome[Decision]) -> StopRecord:
    detail = "" if outcome.result == "applied" else outcome.detail
    return structs.replace(stop, result=outcome.result, detail=detail)


def _without_former_processes(memory: MemoryState, jobs: Sequence[Job]) -> MemoryState:
    """Memory without the stops of earlier processes of these jobs, and without the hits that led to them."""
    changed = {
        job.uid: known.altered(stop=None, targets=TargetHits())
        for job in jobs
        if (known := memory.jobs.get(job.uid)) is not None and known.stop is not None and _is_another(job, known.stop)
    }
    return replace(memory, jobs={**memory.jobs, **changed}) if changed else memory


def _is_another(job: Job, stop: StopRecord) -> bool:
    before, now = stop.process_started_at_seconds, job.process_started_at_seconds
    if before is not None and now is not None and before != now:
        return True
    return job.started_at_seconds != stop.started_at_seconds


def _taking_precedence(decisions: Decisions, due: Sequence[Stop], withheld: Sequence[Withheld[Stop]]) -> Stopping:
    """A job that is being stopped is neither resized nor moved in the same pass."""
    ending = {JobUid.of(stop.job_uid).workload for stop in due}
    refusal = Refusal(STOPPING, "it is being stopped at its target")

    def ends(decision: Resize | Move) -> bool:
        return JobUid.of(decision.job_uid).workload in ending

    left = replace(
        decisions,
        resizes=tuple(each for each in decisions.resizes if not ends(each)),
        moves=tuple(each for each in decisions.moves if not ends(each)),
    )
    return Stopping(
        tuple(due),
        tuple(withheld),
        left,
        tuple(withheld_by(each, refusal) for each in decisions.resizes if ends(each)),
        tuple(withheld_by(each, refusal) for each in decisions.moves if ends(each)),
    )
