"""The status of a workload whose pods a pass has seen: columns of `kubectl get growth`, and conditions. Pure.

`state/job_growth_object.py` renders a status only when it is about to be written: with 5,000 jobs, 20 times a second
and not 5,000 times a pass. `inactive_status.py` is for workloads that no pass sees.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slopewise.allocation import accepted_millicores, actual_millicores
from slopewise.composition import parts_of
from slopewise.config.quantities import cpu_quantity
from slopewise.config.training_policy import Mode
from slopewise.crds import oversubscription, promise_status
from slopewise.crds.conditions import Condition, Status, Wanted, timestamp, updated
from slopewise.crds.job_growth import UNKNOWN, JobGrowthStatus
from slopewise.crds.promise_status import rounded
from slopewise.crds.workload_columns import eta, memory_of, memory_reason, progress_ratio
from slopewise.estimators import growth
from slopewise.guards.permission import canary, is_by_mode
from slopewise.model import (
    Change,
    ClusterSnapshot,
    CpuControl,
    Job,
    JobMemory,
    JobState,
    JobView,
    MemoryControl,
    Migrate,
    Node,
    ObjectiveStatus,
    PassReport,
    Place,
    Resize,
    ResizeMemory,
    Stop,
    acts,
)
from slopewise.text import bounded, mebibytes

NO_LOSS = "NoLoss"
KUBELET_BEHIND = "KubeletBehind"
"""Reason of the condition InEffect: a kubelet does not carry out what the API server has accepted."""
MAX_REASON = 160
"""A column of `kubectl get`: longer reasons are cut off; the decision record has them whole."""


@dataclass(frozen=True, slots=True)
class PassView:
    """One pass by job, for all statuses that are written until the next one."""

    policy: str
    """Name of the TrainingPolicy."""
    mode: Mode
    control: CpuControl
    snapshot: ClusterSnapshot
    jobs: Mapping[str, JobView]
    """By uid."""
    nodes: Mapping[str, Node]
    evaluated_nodes: frozenset[str] = frozenset()
    """Nodes that the policy decided on in this pass: only there is a missing resize a decision to keep the CPU."""
    max_reason: int = MAX_REASON
    """Twice as long where two policies decide."""
    shown_at_seconds: float | None = None
    """When a kubelet has reported something since the pass; None: it is as the pass saw it."""
    memory: MemoryControl = "Ignore"

    @property
    def now_seconds(self) -> float:
        """When the pass observed."""
        return self.snapshot.taken_at_seconds

    def of(self, job: Job) -> JobView:
        """The job in this pass."""
        return self.jobs.get(job.uid) or JobView(job.uid)

    def known(self, job: Job) -> JobMemory | None:
        """Its memory."""
        return self.of(job).known


def view_of(
    report: PassReport, *, policy: str, mode: Mode, control: CpuControl, memory: MemoryControl = "Ignore"
) -> PassView | None:
    """The pass by job; None when it was held."""
    if report.snapshot is None or report.decisions is None:
        return None
    now, nodes = report.snapshot.taken_at_seconds, report.decisions.memory.nodes
    return PassView(
        policy=policy,
        mode=mode,
        control=control,
        snapshot=report.snapshot,
        jobs=report.by_job,
        nodes={node.name: node for node in report.snapshot.nodes},
        evaluated_nodes=frozenset(name for name, node in nodes.items() if node.evaluated_at_seconds == now),
        max_reason=MAX_REASON * len(parts_of(report.policy)),
        memory=memory,
    )


def running_status(jobs: Sequence[Job], view: PassView, previous: JobGrowthStatus) -> JobGrowthStatus:
    """The status of a workload without its `pods`, from the jobs that are its pods, in the order of their slots."""
    first = _first_running(jobs)
    known = view.known(first) or JobMemory()
    cpu = _cpu(jobs, view, previous)
    memory = memory_of(jobs)
    kept = previous if first.state.ended else JobGrowthStatus()  # its series are gone a minute after its end
    done = kept.progress_ratio if (ratio := progress_ratio(jobs)) is None else ratio
    action, acted_at = _last_action(jobs, view, previous)
    running = (view.known(job) for job in jobs if not job.state.ended)
    chances = [each.decided.chance for each in running if each is not None and each.decided.chance is not None]
    return JobGrowthStatus(
        state=_state_label(jobs),
        progress=UNKNOWN if done is None else f"{math.floor(done * 100)}%",
        progress_ratio=None if done is None else round(done, 4),
        eta=eta(first, known, view.now_seconds, carried_out=view.mode == "Auto" and first.ineligible_reason is None),
        cpu=UNKNOWN if cpu is None else cpu.text,
        cpu_millicores=None if cpu is None else cpu.actual,
        cpu_accepted_millicores=None if cpu is None else cpu.accepted,
        cpu_wanted_millicores=None if cpu is None else cpu.desired,
        reason=bounded(_reason_of_all(jobs, view), view.max_reason),
        memory=" / ".join(UNKNOWN if each is None else mebibytes(each) for each in memory),
        memory_working_set_bytes=memory.working_set_bytes,
        memory_request_bytes=memory.request_bytes,
        memory_limit_bytes=memory.limit_bytes,
        memory_reason=memory_reason(jobs, view.of, view.memory),
        job_class=known.decided.job_class,
        loss=rounded(first.evaluation.level) if first.evaluation else kept.loss,
        growth=rounded(known.growth.cpu_efficiency) if known.growth else None,
        study=next(filter(None, (job.objectives.study for job in jobs)), kept.study),
        chance=rounded(max(chances, default=None)),
        policy=view.policy,
        node=", ".join(dict.fromkeys(job.node for job in jobs)),
        **_promised(jobs, view, previous),
        last_action=action,
        last_action_time=acted_at,
        conditions=_conditions(jobs, view, previous.conditions),
    )


def workload_objective_status(jobs: Sequence[Job], view: PassView) -> ObjectiveStatus:
    """How a workload stands to what is asked of it: of each promise as the worst of its pods."""
    return promise_status.worst(status for job in jobs if (status := view.of(job).objective_status) is not None)


def _promised(jobs: Sequence[Job], view: PassView, previous: JobGrowthStatus) -> dict[str, Any]:
    status = workload_objective_status(jobs, view)
    if not all(job.state.ended for job in jobs):
        return promise_status.shown(status)
    return promise_status.shown_of_ended(status.target, previous, succeeded=_state(jobs) is JobState.FINISHED)


Key = tuple[object, ...]


def transition_key(jobs: Sequence[Job], view: PassView) -> Key:
    """What makes a status worth writing at once: two passes with the same key differ in progress only.

    Texts are not in it: `newest sample is 23 s old` is another text in every pass.
    """
    return tuple(_job_key(job, view) for job in jobs)


def _job_key(job: Job, view: PassView) -> Key:
    here = view.of(job)
    known, outcome, stop = here.known, here.outcome(Resize), here.withheld(Stop)
    moved = here.outcome(Place, Migrate)
    return (
        job.uid,
        job.state,
        job.node,
        job.allocation,
        job.actual,
        job.memory,
        reason_text[0] if (reason_text := _not_in_effect(job, view)) is not None else None,
        metrics_available(job, known, view.snapshot)[:2],
        _managed(job, view).reason,
        job.pending.result if job.pending else None,
        outcome.result if outcome and outcome.result != "applied" else None,  # applied shows in what was accepted
        known.decided.job_class if known else None,
        here.moving.step if here.moving else None,
        moved.result if moved else None,
        None if here.objective_status is None else promise_status.transitions(here.objective_status),
        known.stop.result if known and known.stop else None,
        stop.guard if stop else None,
        *oversubscription.transitions(job, known),
    )


def metrics_available(job: Job, known: JobMemory | None, snapshot: ClusterSnapshot) -> tuple[Status, str, str]:
    """Whether the job's evaluation can be decided on: a condition's status, reason and message."""
    evaluation = job.evaluation
    if evaluation is not None and growth.is_usable(job, snapshot):  # as nearly always
        return "True", "Fresh", f"{evaluation.series} is fresh"
    if evaluation is None and job.missing_evaluation is not None:
        return "False", job.missing_evaluation.reason, job.missing_evaluation.message
    if evaluation is None:
        if known is None or known.levels.series is None:
            return "Unknown", "NotSeenYet", "no evaluation has been seen yet; does the job report one?"
        return "False", "Missing", f"{known.levels.series} is missing"
    if not evaluation.finite:
        return "False", "NotFinite", f"{evaluation.series} is not finite: the training has diverged"
    if not growth.is_fresh(evaluation, snapshot):
        age = growth.age_seconds(evaluation, snapshot)
        bound = growth.stale_after_seconds(snapshot)
        return "False", "Stale", f"the newest sample of {evaluation.series} is {age:.0f} s old, bound {bound:.0f} s"
    return "Unknown", "TooFewSamples", "too few samples since the training started"


def _state_label(jobs: Sequence[Job]) -> str:
    """The state in the column; NoLoss for a job that has to report a loss by now and does not."""
    state = _state(jobs)
    silent = state in (JobState.STARTING, JobState.TRAINING) and _first_running(jobs).missing_evaluation is not None
    return NO_LOSS if silent else state.value.capitalize()


def _first_running(jobs: Sequence[Job]) -> Job:
    """The pod that stands for its workload; the first one where all have ended. Trials of a sweep end one by one."""
    return next((job for job in jobs if not job.state.ended), jobs[0])


def _state(jobs: Sequence[Job]) -> JobState:
    """Of a workload: failed as soon as a pod has, finished when all have, else what the first running one says."""
    if any(job.state is JobState.FAILED for job in jobs):
        return JobState.FAILED
    state = _first_running(jobs).state
    return JobState.FINISHED if state.ended else state


@dataclass(frozen=True, slots=True)
class _Cpu:
    """Of a workload, in millicores, sums over its pods."""

    actual: int
    accepted: int
    desired: int

    @property
    def text(self) -> str:
        """The column: `2`, or `2 → 1.5`."""
        actual = cores_text(self.actual)
        return actual if self.desired == self.actual else f"{actual} → {cores_text(self.desired)}"


def _cpu(jobs: Sequence[Job], view: PassView, previous: JobGrowthStatus) -> _Cpu | None:
    """Of the pods that run; without a new decision, desired is that of the previous status. None: all have ended."""
    actual = accepted = desired = 0
    has_decision = False
    running = [job for job in jobs if not job.state.ended]
    if not running:
        return None
    for job in running:
        node, resize = view.nodes[job.node], view.of(job).resize
        has = _accepted_millicores(job, view)
        actual += actual_millicores(job, node, view.control)
        accepted += has
        desired += has if resize is None else resize.to_millicores
        has_decision = has_decision or resize is not None or job.node in view.evaluated_nodes
    if not has_decision and previous.cpu_wanted_millicores is not None:
        desired = previous.cpu_wanted_millicores
    return _Cpu(actual, accepted, desired)


def _accepted_millicores(job: Job, view: PassView) -> int:
    """With what the API server has accepted in this pass, after the snapshot."""
    outcome = view.of(job).outcome(Resize)
    if outcome is not None and outcome.result == "applied":
        return outcome.decision.to_millicores
    return accepted_millicores(job, view.nodes[job.node], view.control)


def cores_text(millicores: int) -> str:
    """Millicores as cores with four digits."""
    return f"{millicores / 1000:.4g}"


def _reason_of_all(jobs: Sequence[Job], view: PassView) -> str:
    """The reason that all pods share, or that of each with its name: the row's CPU is their sum."""
    reasons = {job.name: _reason(job, view) for job in jobs}
    if len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())


def _reason(job: Job, view: PassView) -> str:
    """What stopped a change, or else the policy's reason: the mode is in the condition Managed."""
    if job.state.ended:
        return f"job is {job.state}"
    here = view.of(job)
    outcome, withheld, moved = here.outcome(Resize), here.withheld(Resize), here.outcome(Place, Migrate)
    if (stopping := _stopping_reason(here)) is not None:
        return stopping
    if here.moving is not None:
        return f"moves to {here.moving.node or 'another node'}: {here.moving.step}"
    if moved is not None and moved.result != "applied":
        return f"not moved to {moved.decision.node}: {moved.detail}"
    if outcome is not None and outcome.result != "applied":
        return f"{outcome.result}: {outcome.detail}"
    if job.unconfirmed is not None and job.unconfirmed.late:
        return job.unconfirmed.detail
    if withheld is not None and not is_by_mode(withheld.guard):
        return withheld.reason
    if (not_moved := _not_moved(job, here)) is not None:
        return not_moved
    if job.ineligible_reason is None and job.missing_evaluation is not None:
        return f"no loss: {job.missing_evaluation.message}"
    return job.ineligible_reason or here.reason


def _stopping_reason(here: JobView) -> str | None:
    """That a job is stopped at its target, or why it goes on there; None: it is not at its target."""
    stop = None if here.known is None else here.known.stop
    if stop is not None and stop.is_done:
        return f"{stop.reason}; its pods save and end"
    withheld = here.withheld(Stop)
    if withheld is not None and not is_by_mode(withheld.guard):
        return f"not stopped at its target: {withheld.reason}"
    return None if stop is None else f"not stopped at its target: {stop.detail or 'not known whether it was done'}"


def _not_moved(job: Job, here: JobView) -> str | None:
    """Why a move of it waits; None: none does."""
    if job.movability is not None and job.movability.backoff_reason is not None:
        return f"not moved {job.movability.backoff_reason}"
    withheld = here.withheld(Place, Migrate)
    if withheld is not None and not is_by_mode(withheld.guard):
        return f"not moved to {withheld.decision.node}: {withheld.reason}"
    return None


def _last_action(jobs: Sequence[Job], view: PassView, previous: JobGrowthStatus) -> tuple[str | None, datetime | None]:
    """The newest action: of this pass, of the previous status, or from memory."""
    for job in jobs:
        here = view.of(job)
        if (moved := here.outcome(Place, Migrate)) is not None:
            return f"move to {moved.decision.node} {moved.result}", timestamp(view.now_seconds)
        if (stop := here.outcome(Stop)) is not None:
            return f"stop at its target {stop.result}", timestamp(view.now_seconds)
        if (outcome := here.outcome(Resize)) is not None:
            return f"{change_text(outcome.decision)} {outcome.result}", timestamp(view.now_seconds)
        if (sized := here.outcome(ResizeMemory)) is not None:
            return f"{change_text(sized.decision)} {sized.result}", timestamp(view.now_seconds)
    before, known = previous.last_action_time, view.known(jobs[0])
    change = None if known is None else known.change
    if change is None or (before is not None and before >= timestamp(change.at_seconds)):
        return previous.last_action, before
    return change_text(change), timestamp(change.at_seconds)  # of a pass whose status was not written


def change_text(change: Resize | ResizeMemory | Change) -> str:
    """A change as people read it, e.g. `limits 2 to 1500m`, `memory request 1024Mi to 360Mi`."""
    if isinstance(change, ResizeMemory):
        return f"memory {change.bound} {mebibytes(change.from_bytes)} to {mebibytes(change.to_bytes)}"
    return f"{change.control} {cpu_quantity(change.from_millicores)} to {cpu_quantity(change.to_millicores)}"


def _conditions(jobs: Sequence[Job], view: PassView, previous: Sequence[Condition]) -> tuple[Condition, ...]:
    first = _first_running(jobs)
    status, reason, message = metrics_available(first, view.known(first), view.snapshot)
    wanted = (
        Wanted("MetricsAvailable", status, reason, message),
        _managed(first, view),
        _in_effect(jobs, view),
        _resize_pending(jobs),
        _finished(jobs),
        *oversubscription.conditions(((job, view.known(job) or JobMemory()) for job in jobs), previous),
        *promise_status.conditions(workload_objective_status(jobs, view)),
    )
    now = updated(wanted, previous, now_seconds=view.shown_at_seconds or view.now_seconds)
    ended = all(job.state.ended for job in jobs)
    return (*now, *promise_status.last_conditions(previous, now)) if ended else now


def _resize_pending(jobs: Sequence[Job]) -> Wanted:
    """Whether a pod of the workload waits for what was accepted for it."""
    pending = next((job.pending for job in jobs if job.pending is not None), None)
    if pending is None:
        return Wanted("ResizePending", "False", "NothingPending")
    return Wanted("ResizePending", "True", pending.result.capitalize(), pending.detail)


def _finished(jobs: Sequence[Job]) -> Wanted:
    """Whether all pods of the workload have ended, and how."""
    if not all(job.state.ended for job in jobs):
        return Wanted("Finished", "False", "Running")
    if failed := [job.name for job in jobs if job.state is JobState.FAILED]:
        return Wanted("Finished", "True", "Failed", f"{failed[0]} has failed")
    return Wanted("Finished", "True", "Succeeded", "the training has ended")


def _managed(job: Job, view: PassView) -> Wanted:
    """Whether the controller may change this job."""
    here = view.of(job)
    known, withheld = here.known, here.withheld(Resize)
    if job.state.ended:
        return not_managed("Ended", f"job is {job.state}")
    if job.ineligible_reason is not None:
        return not_managed("Ineligible", job.ineligible_reason)
    if known is not None and (known.backoff.until_seconds or 0.0) > view.now_seconds:
        return not_managed("BackingOff", known.backoff.reason or "it regressed after a change")
    if not acts(view.mode):
        return not_managed(f"Mode{view.mode}", f"mode is {view.mode}: nothing is changed")
    if (freeze := view.snapshot.freezes.of(job.namespace, job.node)) is not None:
        return not_managed("Frozen", freeze.message)
    if withheld is not None and withheld.guard == canary.__name__:
        return not_managed("NotInCanary", withheld.reason)
    return Wanted("Managed", "True", "Managed", "its CPU may be changed")


def not_managed(reason: str, message: str) -> Wanted:
    """The condition `Managed` of a workload that no policy manages."""
    return Wanted("Managed", "False", reason, message)


def _in_effect(jobs: Sequence[Job], view: PassView) -> Wanted:
    """Whether the CPU that the API server has accepted is in effect, as the kubelets of the workload's pods report."""
    running = [job for job in jobs if not job.state.ended]
    missing = [reason_text for job in running if (reason_text := _not_in_effect(job, view)) is not None]
    if missing:
        reason, message = next((reason_text for reason_text in missing if reason_text[0] == KUBELET_BEHIND), missing[0])
        return Wanted("InEffect", "False", reason, message)
    if not running:
        return Wanted("InEffect", "Unknown", "Ended", "nothing of it runs")
    if any(job.actual is None for job in running):
        return Wanted("InEffect", "Unknown", "NotReported", "its kubelet does not report it")
    return Wanted("InEffect", "True", "Reported", "its kubelet reports it")


def _not_in_effect(job: Job, view: PassView) -> tuple[str, str] | None:
    """Why what was accepted is not in effect, as a condition's reason and message; None: it is."""
    if job.unconfirmed is not None:
        return KUBELET_BEHIND if job.unconfirmed.late else "Accepted", job.unconfirmed.detail
    if job.pending is not None:
        return job.pending.result.capitalize(), job.pending.detail
    if job.actual == job.allocation and not view.of(job).results.outcomes:
        return None  # as nearly always
    accepted, node = _accepted_millicores(job, view), view.nodes[job.node]
    if accepted == actual_millicores(job, node, view.control):
        return None
    return "Accepted", f"the API server has accepted {accepted}m; {job.node} has not reported it in effect yet"
