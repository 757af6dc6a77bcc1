"""From a pass to the face of each workload: the columns of `kubectl get growth` and its conditions. Pure.

Before it: a PassReport. After it: `adapters/kube/growth_objects.py` renders it together with what is remembered, only
when the status is about to be written: at 5,000 jobs that is 20 times a second and not 5,000 times a pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import fmean
from typing import Literal

from controller import growth
from controller.bounds import acts
from controller.conditions import Condition, Status, Wanted, timestamp, updated
from controller.control import actual_millicores, now_millicores
from controller.job_growth import JobGrowthStatus
from controller.model import (
    Change,
    ClusterSnapshot,
    CpuControl,
    Job,
    JobMemory,
    JobState,
    MoveOutcome,
    MoveUnderWay,
    Node,
    Outcome,
    PassReport,
    Resize,
    Withheld,
    WithheldMove,
)
from controller.pace import NEWEST
from controller.settings import Mode, cpu_quantity
from controller.texts import bounded

UNKNOWN = "-"
NO_LOSS = "NoLoss"
KUBELET_BEHIND = "KubeletBehind"
"""Reason of the condition InEffect: a kubelet does not carry out what the API server has accepted."""
LONGEST_REASON = 160
"""A column of `kubectl get`: longer reasons are cut off; the decision record has them whole."""


@dataclass(frozen=True, slots=True)
class PassView:
    """One pass, by job: made once a pass, read for each status that is written until the next one."""

    policy: str
    """Name of the TrainingPolicy."""
    mode: Mode
    control: CpuControl
    snapshot: ClusterSnapshot
    memory: Mapping[str, JobMemory]
    reasons: Mapping[str, str]
    nodes: Mapping[str, Node]
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    withheld: Mapping[str, Withheld] = field(default_factory=dict)
    moving: Mapping[str, MoveUnderWay] = field(default_factory=dict)
    """Moves that are under way, by job."""
    moved: Mapping[str, MoveOutcome] = field(default_factory=dict)
    """What became of the moves of this pass, by job."""
    moves_withheld: Mapping[str, WithheldMove] = field(default_factory=dict)
    looked_at: frozenset[str] = frozenset()
    """Nodes that the policy has looked at in this pass: there, no wish means none, elsewhere it means no news."""
    shown_at_seconds: float | None = None
    """When a kubelet has reported something since the pass; None: it is as the pass saw it."""

    @property
    def now_seconds(self) -> float:
        """When the pass saw the world."""
        return self.snapshot.taken_at_seconds


def view_of(report: PassReport, *, policy: str, mode: Mode, control: CpuControl) -> PassView | None:
    """The pass by job; None when it was held and so saw nothing."""
    if report.snapshot is None or report.decisions is None:
        return None
    memory = report.decisions.memory
    now = report.snapshot.taken_at_seconds
    return PassView(
        policy=policy,
        mode=mode,
        control=control,
        snapshot=report.snapshot,
        memory=memory.jobs,
        reasons=report.decisions.reasons,
        nodes={node.name: node for node in report.snapshot.nodes},
        outcomes={each.resize.job_uid: each for each in report.outcomes},
        withheld={each.resize.job_uid: each for each in report.withheld},
        moving={each.job_uid: each for each in report.snapshot.moving},
        moved={each.move.job_uid: each for each in report.moves},
        moves_withheld={each.move.job_uid: each for each in report.moves_withheld},
        looked_at=frozenset(name for name, node in memory.nodes.items() if node.looked_at_seconds == now),
    )


def face(jobs: Sequence[Job], view: PassView, previous: JobGrowthStatus) -> JobGrowthStatus:
    """The status of a workload without its `pods`, from the jobs that are its pods, in the order of their slots."""
    first = jobs[0]
    known = view.memory.get(first.uid) or JobMemory()
    cpu = _cpu(jobs, view, previous)
    done = _progress_ratio(jobs)
    action, acted_at = _last_action(jobs, view, previous)
    return JobGrowthStatus(
        state=_state_word(jobs),
        progress=UNKNOWN if done is None else f"{math.floor(done * 100)}%",
        progress_ratio=None if done is None else round(done, 4),
        eta=eta(first, known),
        cpu=_cores(cpu.actual) if cpu.desired == cpu.actual else f"{_cores(cpu.actual)} → {_cores(cpu.desired)}",
        cpu_millicores=cpu.actual,
        cpu_accepted_millicores=cpu.accepted,
        cpu_wanted_millicores=cpu.desired,
        reason=bounded(_reason(first, view), LONGEST_REASON),
        job_class=known.job_class,
        loss=_rounded(first.evaluation.level) if first.evaluation else None,
        growth=_rounded(known.growth.cpu_efficiency) if known.growth else None,
        policy=view.policy,
        node=", ".join(dict.fromkeys(job.node for job in jobs)),
        last_action=action,
        last_action_time=acted_at,
        conditions=_conditions(jobs, view, previous.conditions),
    )


@dataclass(frozen=True, slots=True)
class Departure:
    """Why a workload is not among the jobs of its policy any more, although a pod of it is there."""

    reason: Literal["LabelRemoved", "NotSelected"]
    message: str
    actual_millicores: int | None
    """What its pod has, in the dimension that was controlled; None: not known."""


def departed_face(departure: Departure, previous: JobGrowthStatus, now_seconds: float) -> JobGrowthStatus:
    """The status of such a workload: nothing is wanted for it, and nothing of it is looked at."""
    cpu = departure.actual_millicores
    wanted = (
        _unseen("MetricsAvailable", departure),
        _not_managed(departure.reason, departure.message),
        _unseen("InEffect", departure),
        _unseen("ResizePending", departure),
        _unseen("Finished", departure),
    )
    return previous.model_copy(
        update={
            "state": "Unmanaged",
            "eta": UNKNOWN,
            "cpu": UNKNOWN if cpu is None else _cores(cpu),
            "cpu_millicores": cpu,
            "cpu_accepted_millicores": None,
            "cpu_wanted_millicores": None,
            "reason": bounded(departure.message, LONGEST_REASON),
            "conditions": updated(wanted, previous.conditions, now_seconds=now_seconds),
        }
    )


def _unseen(kind: str, departure: Departure) -> Wanted:
    return Wanted(type=kind, status="Unknown", reason=departure.reason)


Key = tuple[object, ...]


def transition_key(jobs: Sequence[Job], view: PassView) -> Key:
    """What makes a status worth writing at once: two passes with the same key differ in progress only.

    Texts are not in it: `newest sample is 23 s old` is another text in every pass.
    """
    return tuple(_job_key(job, view) for job in jobs)


def _job_key(job: Job, view: PassView) -> Key:
    known = view.memory.get(job.uid)
    outcome = view.outcomes.get(job.uid)
    return (
        job.uid,
        job.state,
        job.node,
        job.allocation,
        job.actual,
        why[0] if (why := _not_in_effect(job, view)) is not None else None,
        metrics_available(job, known, view.snapshot)[:2],
        _managed(job, view).reason,
        job.pending.result if job.pending else None,
        outcome.result if outcome and outcome.result != "applied" else None,  # applied shows in what was accepted
        known.job_class if known else None,
        move.step if (move := view.moving.get(job.uid)) else None,
        moved.result if (moved := view.moved.get(job.uid)) else None,
    )


def metrics_available(job: Job, known: JobMemory | None, snapshot: ClusterSnapshot) -> tuple[Status, str, str]:
    """Whether the job's evaluation can be decided on: a condition's status, reason and message."""
    evaluation = job.evaluation
    if evaluation is None and job.missing_evaluation is not None:
        return "False", job.missing_evaluation.reason, job.missing_evaluation.message
    if evaluation is None:
        if known is None or known.series is None:
            return "Unknown", "NotSeenYet", "no evaluation has been seen yet; does the job report one?"
        return "False", "Missing", f"{known.series} is missing"
    if not evaluation.finite:
        return "False", "NotFinite", f"{evaluation.series} is not finite: the training has diverged"
    if not growth.is_fresh(evaluation, snapshot):
        age = growth.age_seconds(evaluation, snapshot)
        bound = growth.stale_after_seconds(snapshot)
        return "False", "Stale", f"the newest sample of {evaluation.series} is {age:.0f} s old, bound {bound:.0f} s"
    if not growth.is_usable(job, snapshot):
        return "Unknown", "TooFewSamples", "too few samples since the training started"
    return "True", "Fresh", f"{evaluation.series} is fresh"


def eta(job: Job, known: JobMemory) -> str:
    """Time until the planned steps are done, at the mean pace of the last measurements; `-` when not known.

    Worked example: 400 of 1,000 steps, 0.5 s a step: 600 × 0.5 s = 5m.
    """
    if job.state.ended or job.responses is not None or not known.paces:
        return UNKNOWN
    if job.steps_total is None or not job.steps_planned:
        return UNKNOWN
    pace = fmean(pace.seconds for pace in known.paces[-NEWEST:])
    left = max(0.0, job.steps_planned - job.steps_total) * pace
    return duration(left) if math.isfinite(left) else UNKNOWN


def duration(seconds: float) -> str:
    """A duration with its two largest units: `45s`, `3m20s`, `2h05m`, `4d03h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    minutes = round(whole / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    hours = round(whole / 3600)
    return f"{hours // 24}d{hours % 24:02d}h"


def _state_word(jobs: Sequence[Job]) -> str:
    """As the column shows it; a job that should report a loss by now and does not is in no state to be decided on."""
    state = _state(jobs)
    silent = state in (JobState.STARTING, JobState.TRAINING) and jobs[0].missing_evaluation is not None
    return NO_LOSS if silent else state.value.capitalize()


def _state(jobs: Sequence[Job]) -> JobState:
    """Of a workload: failed as soon as a pod has, finished when all have, else what the first running one says."""
    if any(job.state is JobState.FAILED for job in jobs):
        return JobState.FAILED
    return next((job.state for job in jobs if not job.state.ended), JobState.FINISHED)


def _progress_ratio(jobs: Sequence[Job]) -> float | None:
    """Of the pod that tells its steps: the pods of a workload train one model."""
    for job in jobs:
        if job.steps_total is not None and job.steps_planned:
            return min(1.0, max(0.0, job.steps_total / job.steps_planned))
    return None


@dataclass(frozen=True, slots=True)
class _Cpu:
    """Of a workload, in millicores, sums over its pods: what is in effect, what was accepted, what is wanted."""

    actual: int
    accepted: int
    desired: int


def _cpu(jobs: Sequence[Job], view: PassView, previous: JobGrowthStatus) -> _Cpu:
    """Without news of what the policy wants, what it wanted before."""
    actual = accepted = desired = 0
    news = False
    for job in jobs:
        node, resize = view.nodes[job.node], _resize(job, view)
        has = _accepted_millicores(job, view)
        actual += actual_millicores(job, node, view.control)
        accepted += has
        desired += has if resize is None else resize.to_millicores
        news = news or resize is not None or job.node in view.looked_at
    if not news and previous.cpu_wanted_millicores is not None:
        desired = previous.cpu_wanted_millicores
    return _Cpu(actual, accepted, desired)


def _accepted_millicores(job: Job, view: PassView) -> int:
    """Also what the API server has accepted in this pass, which the snapshot is too old to know."""
    outcome = view.outcomes.get(job.uid)
    if outcome is not None and outcome.result == "applied":
        return outcome.resize.to_millicores
    return now_millicores(job, view.nodes[job.node], view.control)


def _resize(job: Job, view: PassView) -> Resize | None:
    outcome, withheld = view.outcomes.get(job.uid), view.withheld.get(job.uid)
    if outcome is not None:
        return outcome.resize
    return withheld.resize if withheld is not None else None


def _cores(millicores: int) -> str:
    return f"{millicores / 1000:.4g}"


def _rounded(value: float | None) -> float | None:
    """Four digits are enough for people, and a figure that did not change is not written again."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.4g}")


_MODE_GUARDS = ("paused", "canary", "move_paused", "move_canary")
"""These say the same of every job; the policy's own reason says more, and the Managed condition tells the mode."""


def _reason(job: Job, view: PassView) -> str:
    """Why it has what it has: what stopped a change, or else the policy's reason."""
    if job.state.ended:
        return f"job is {job.state}"
    if (move := view.moving.get(job.uid)) is not None:
        return f"moves to {move.node or 'another node'}: {move.step}"
    if (moved := view.moved.get(job.uid)) is not None and moved.result != "applied":
        return f"not moved to {moved.move.node}: {moved.detail}"
    outcome, withheld = view.outcomes.get(job.uid), view.withheld.get(job.uid)
    if outcome is not None and outcome.result != "applied":
        return f"{outcome.result}: {outcome.detail}"
    if job.unconfirmed is not None and job.unconfirmed.late:
        return job.unconfirmed.detail
    if withheld is not None and withheld.guard not in _MODE_GUARDS:
        return withheld.reason
    if job.mobility is not None and job.mobility.backoff_reason is not None:
        return f"not moved {job.mobility.backoff_reason}"
    if (stays := view.moves_withheld.get(job.uid)) is not None and stays.guard not in _MODE_GUARDS:
        return f"not moved to {stays.move.node}: {stays.reason}"
    if job.hands_off is None and job.missing_evaluation is not None:
        return f"no loss: {job.missing_evaluation.message}"
    return job.hands_off or view.reasons.get(job.uid, "")


def _last_action(jobs: Sequence[Job], view: PassView, previous: JobGrowthStatus) -> tuple[str | None, datetime | None]:
    """The newest thing that was done or tried: in this pass, else as it stood, else as the memory knows."""
    for job in jobs:
        if (moved := view.moved.get(job.uid)) is not None:
            return f"move to {moved.move.node} {moved.result}", timestamp(view.now_seconds)
        if (outcome := view.outcomes.get(job.uid)) is not None:
            return f"{change_text(outcome.resize)} {outcome.result}", timestamp(view.now_seconds)
    if previous.last_action is not None:
        return previous.last_action, previous.last_action_time
    known = view.memory.get(jobs[0].uid)
    if known is None or known.change is None:
        return None, None
    return change_text(known.change), timestamp(known.change.at_seconds)


def change_text(change: Resize | Change) -> str:
    """A change of CPU as people read it, e.g. `limits 2 to 1500m`."""
    return f"{change.control} {cpu_quantity(change.from_millicores)} to {cpu_quantity(change.to_millicores)}"


def _conditions(jobs: Sequence[Job], view: PassView, previous: Sequence[Condition]) -> tuple[Condition, ...]:
    first = jobs[0]
    status, reason, message = metrics_available(first, view.memory.get(first.uid), view.snapshot)
    wanted = (
        Wanted(type="MetricsAvailable", status=status, reason=reason, message=message),
        _managed(first, view),
        _in_effect(jobs, view),
        _resize_pending(jobs),
        _finished(jobs),
    )
    return updated(wanted, previous, now_seconds=view.shown_at_seconds or view.now_seconds)


def _managed(job: Job, view: PassView) -> Wanted:
    """Whether the controller may change this job at all, and if not, why."""
    known, withheld = view.memory.get(job.uid), view.withheld.get(job.uid)
    if job.state.ended:
        return _not_managed("Ended", f"job is {job.state}")
    if job.hands_off is not None:
        return _not_managed("HandsOff", job.hands_off)
    if known is not None and (known.alone_until_seconds or 0.0) > view.now_seconds:
        return _not_managed("LeftAlone", known.alone_because or "left alone")
    if not acts(view.mode):
        return _not_managed(f"Mode{view.mode}", f"mode is {view.mode}: nothing is changed")
    if withheld is not None and withheld.guard == "canary":
        return _not_managed("NotInCanary", withheld.reason)
    return Wanted(type="Managed", status="True", reason="Managed", message="its CPU may be changed")


def _not_managed(reason: str, message: str) -> Wanted:
    return Wanted(type="Managed", status="False", reason=reason, message=message)


def _in_effect(jobs: Sequence[Job], view: PassView) -> Wanted:
    """Whether the CPU that the API server has accepted is in effect, as the kubelets of the workload's pods report."""
    running = [job for job in jobs if not job.state.ended]
    missing = [why for job in running if (why := _not_in_effect(job, view)) is not None]
    if missing:
        reason, message = next((why for why in missing if why[0] == KUBELET_BEHIND), missing[0])
        return Wanted(type="InEffect", status="False", reason=reason, message=message)
    if not running:
        return Wanted(type="InEffect", status="Unknown", reason="Ended", message="nothing of it runs")
    if any(job.actual is None for job in running):
        return Wanted(type="InEffect", status="Unknown", reason="NotReported", message="its kubelet does not report it")
    return Wanted(type="InEffect", status="True", reason="Reported", message="its kubelet reports it")


def _not_in_effect(job: Job, view: PassView) -> tuple[str, str] | None:
    """Why what was accepted is not in effect, as a condition's reason and message; None: it is."""
    if job.unconfirmed is not None:
        return KUBELET_BEHIND if job.unconfirmed.late else "Accepted", job.unconfirmed.detail
    if job.pending is not None:
        return job.pending.result.capitalize(), job.pending.detail
    accepted, node = _accepted_millicores(job, view), view.nodes[job.node]
    if accepted == actual_millicores(job, node, view.control):
        return None
    return "Accepted", f"the API server has accepted {accepted}m; {job.node} has not reported it in effect yet"


def _resize_pending(jobs: Sequence[Job]) -> Wanted:
    pending = next((job.pending for job in jobs if job.pending is not None), None)
    if pending is None:
        return Wanted(type="ResizePending", status="False", reason="NothingPending")
    return Wanted(type="ResizePending", status="True", reason=pending.result.capitalize(), message=pending.detail)


def _finished(jobs: Sequence[Job]) -> Wanted:
    if not all(job.state.ended for job in jobs):
        return Wanted(type="Finished", status="False", reason="Running")
    failed = [job.name for job in jobs if job.state is JobState.FAILED]
    if failed:
        return Wanted(type="Finished", status="True", reason="Failed", message=f"{failed[0]} has failed")
    return Wanted(type="Finished", status="True", reason="Succeeded", message="the training has ended")
