"""The status of a TrainingPolicy: whether it is obeyed, by how many jobs, and what is in its way.

Before it: what the controller knows of the policy (`Standing`). After it: `adapters/kube/status_writer.py` writes it,
and `crds/definitions.py` makes the schema out of the same models. `kubectl wait --for=condition=Ready
trainingpolicy/NAME` works on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import Field

from controller.bounds import in_canary
from controller.conditions import Conditions, StatusPart, Wanted, timestamp, updated
from controller.growth_face import PassView, metrics_available
from controller.model import Job, NodeMemory
from controller.settings import Mode


class JobCounts(StatusPart):
    """How many workloads' pods the policy manages, and how they are doing."""

    total: int = 0
    by_class: dict[str, int] = Field(default_factory=dict, description="by the class that the policy put them in")
    by_state: dict[str, int] = Field(default_factory=dict, description="by state")


class NodeInterval(StatusPart):
    """When the jobs of one node were looked at, and when they will be again."""

    name: str
    interval_seconds: float = Field(description="s between two looks at this node")
    looked_at_seconds: float = Field(description="Unix time of the last look, in s")
    next_look: datetime | None = None


class TrainingPolicyStatus(StatusPart):
    """Written by the controller only."""

    observed_generation: int | None = Field(None, description="the metadata.generation that this is about")
    jobs: JobCounts = JobCounts()
    canary: str | None = Field(None, description="in mode Canary: how many of the jobs are in its share, and changed")
    conditions: Conditions = ()
    nodes: tuple[NodeInterval, ...] = Field(
        (), json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )


@dataclass(frozen=True, slots=True)
class Conflict:
    """Pods that this policy selects and an older one manages."""

    pods: int
    first: tuple[str, ...] = ()
    """`namespace/name` of the first three."""
    winner: str = ""


@dataclass(frozen=True, slots=True)
class OtherResizers:
    """Pods of this policy that somebody else resizes too; they are left to that."""

    pods: int
    first: tuple[str, ...] = ()
    """`namespace/name` of the first three."""
    who: str = ""
    """Field managers, by name."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a policy besides its last pass."""

    generation: int
    mode: Mode | None
    """None: the document could not be understood."""
    invalid: str | None = None
    """The sentence that says why it cannot be obeyed."""
    held: str | None = None
    """Why the last pass could not observe or decide."""
    policy_failed: bool = False
    """It could observe; the policy failed."""
    conflict: Conflict | None = None
    others: OtherResizers | None = None
    canary_ratio: float = 1.0
    """The share of the jobs that mode Canary changes."""
    degraded: str | None = None
    """What keeps the controller from doing all that it should: a right that it lacks, a write that fails."""
    seen: PassView | None = field(default=None)


def policy_status(standing: Standing, previous: TrainingPolicyStatus, *, now_seconds: float) -> TrainingPolicyStatus:
    """The status without `nodes`, which are the memory's."""
    wanted = _wanted(standing)
    view = standing.seen
    return TrainingPolicyStatus(
        observed_generation=standing.generation,
        jobs=previous.jobs if view is None else _counts(view, previous.jobs),
        canary=_canary(view, standing.canary_ratio) if view is not None and standing.mode == "Canary" else None,
        conditions=updated(wanted, previous.conditions, now_seconds=now_seconds, generation=standing.generation),
    )


def standing_key(standing: Standing) -> tuple[object, ...]:
    """What makes the status worth writing at once; counts and texts are progress."""
    return (standing.generation, *((each.type, each.status, each.reason) for each in _wanted(standing)))


def _wanted(standing: Standing) -> tuple[Wanted, ...]:
    return _ready(standing), _metrics_available(standing), _conflict(standing), _degraded(standing)


def node_intervals(nodes: Mapping[str, NodeMemory]) -> tuple[NodeInterval, ...]:
    """As they are stored, by name. Who was on a node is stored with each job (`JobGrowth.status.pods[].node`)."""
    return tuple(
        NodeInterval(
            name=name,
            interval_seconds=node.interval_seconds,
            looked_at_seconds=node.looked_at_seconds,
            next_look=timestamp(node.look_at_seconds),
        )
        for name, node in sorted(nodes.items())
    )


def _ready(standing: Standing) -> Wanted:
    if standing.invalid is not None:
        return Wanted(type="Ready", status="False", reason="InvalidSpec", message=standing.invalid)
    if standing.held is not None:
        reason = "PolicyFailed" if standing.policy_failed else "CannotObserve"
        return Wanted(type="Ready", status="False", reason=reason, message=standing.held)
    if standing.seen is None:
        return Wanted(type="Ready", status="Unknown", reason="NotLookedYet", message="no pass has ended yet")
    message = _canary_message(standing.seen, standing.canary_ratio)
    if standing.mode != "Canary":
        message = _TOLD[standing.mode or "Observe"]
    return Wanted(type="Ready", status="True", reason=f"Mode{standing.mode}", message=message)


_TOLD: Mapping[Mode, str] = {
    "Observe": "jobs are measured; nothing is decided or changed",
    "Recommend": "decisions are shown; nothing is changed",
    "Auto": "jobs are measured and changed",
}


def _canary_message(view: PassView, ratio: float) -> str:
    """Who is in the share is decided by a hash of each workload: of few jobs it may be none, or all."""
    running = _running(view)
    chosen = sum(in_canary(job.uid, ratio) for job in running)
    share = f"the share of {ratio:.0%} that is changed"
    if not running:
        return f"no job runs; {share} is chosen among those that come"
    if not chosen:
        raised = "raise spec.behaviour.canaryRatio, or set mode to Auto"
        return f"none of {len(running)} jobs is in {share}, so nothing is changed; {raised}"
    return (
        f"{chosen} of {len(running)} jobs {'is' if chosen == 1 else 'are'} in {share}; set mode to Auto to change all"
    )


def _metrics_available(standing: Standing) -> Wanted:
    view = standing.seen
    if standing.held is not None and not standing.policy_failed:
        return Wanted(type="MetricsAvailable", status="Unknown", reason="CannotObserve", message=standing.held)
    if view is None:
        return Wanted(type="MetricsAvailable", status="Unknown", reason="NotLookedYet")
    running = _running(view)
    if not running:
        return Wanted(type="MetricsAvailable", status="Unknown", reason="NoJobs", message="no job is running")
    lacking = [job for job in running if metrics_available(job, view.memory.get(job.uid), view.snapshot)[0] == "False"]
    if not lacking:
        return Wanted(type="MetricsAvailable", status="True", reason="Fresh")
    names = _first_names([f"{job.namespace}/{job.name}" for job in lacking])
    told = f"{len(lacking)} of {len(running)} jobs have no usable evaluation: {names}"
    return Wanted(type="MetricsAvailable", status="False", reason="JobsWithoutMetrics", message=told)


def _conflict(standing: Standing) -> Wanted:
    conflict, others = standing.conflict, standing.others
    told: dict[str, str] = {}
    if conflict is not None and conflict.pods:
        named = _first_of(conflict.first, conflict.pods)
        told["OlderPolicyWins"] = (
            f"{conflict.pods} pods are managed by the older policy {conflict.winner}: {named}; narrow one's selector"
        )
    if others is not None and others.pods:
        told["OtherResizer"] = others_message(others)
    if not told:
        return Wanted(type="Conflict", status="False", reason="NoConflict")
    return Wanted(type="Conflict", status="True", reason=next(iter(told)), message="; ".join(told.values()))


def others_message(others: OtherResizers) -> str:
    """Whom pods are left to, and what to do about it."""
    pods = "1 pod is" if others.pods == 1 else f"{others.pods} pods are"
    named = _first_of(others.first, others.pods)
    return f"{pods} resized by {others.who} too, and left to that: {named}; stop one of the two"


def _first_of(names: Sequence[str], pods: int) -> str:
    return ", ".join(names) + (" and more" if pods > len(names) else "")


def _degraded(standing: Standing) -> Wanted:
    if standing.degraded is None:
        return Wanted(type="Degraded", status="False", reason="AllWell")
    return Wanted(type="Degraded", status="True", reason="CannotDoAll", message=standing.degraded)


def _counts(view: PassView, previous: JobCounts) -> JobCounts:
    """Classes and states that nobody is in any more stay with a 0: a merge patch cannot leave a key out."""
    jobs = view.snapshot.jobs
    classes = Counter(known.job_class for job in jobs if (known := view.memory.get(job.uid)) and known.job_class)
    states = Counter(str(job.state) for job in jobs)
    return JobCounts(
        total=len(jobs),
        by_class=dict.fromkeys(sorted({*previous.by_class, *classes}), 0) | classes,
        by_state=dict.fromkeys(sorted({*previous.by_state, *states}), 0) | states,
    )


def _canary(view: PassView, ratio: float) -> str:
    running = _running(view)
    chosen = sum(in_canary(job.uid, ratio) for job in running)
    changed = sum(1 for job in running if (known := view.memory.get(job.uid)) and known.original is not None)
    return f"{chosen} of {len(running)} jobs, {changed} changed"


def _running(view: PassView) -> list[Job]:
    return [job for job in view.snapshot.jobs if not job.state.ended]


def _first_names(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (" and more" if len(names) > most else "")
