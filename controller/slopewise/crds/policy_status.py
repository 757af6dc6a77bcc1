"""The status of a TrainingPolicy: conditions, counts of jobs, intervals of nodes. Pure.

`kubectl wait --for=condition=Ready trainingpolicy/NAME` works on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import Field

from slopewise.config.training_policy import Mode
from slopewise.crds.conditions import Conditions, StatusPart, Wanted, timestamp, updated
from slopewise.crds.growth_status import PassView, metrics_available
from slopewise.model import Job, NodeMemory, in_canary


class JobCounts(StatusPart):
    """How many workloads' pods the policy manages, and how they are doing."""

    total: int = 0
    by_class: dict[str, int] = Field(default_factory=dict, description="by the class that the policy put them in")
    by_state: dict[str, int] = Field(default_factory=dict, description="by state")


class NodeInterval(StatusPart):
    """When the policy decided on one node, and when it does again."""

    name: str
    interval_seconds: float = Field(description="s between two evaluations of this node")
    evaluated_at_seconds: float = Field(description="Unix time of the last evaluation, in s")
    requeue_time: datetime | None = None


class TrainingPolicyStatus(StatusPart):
    """Written by the controller only."""

    observed_generation: int | None = Field(None, description="the metadata.generation that this is about")
    jobs: JobCounts = JobCounts()
    canary: str | None = Field(None, description="in mode Canary: how many of the jobs are in its share, and changed")
    conditions: Conditions = ()
    nodes: tuple[NodeInterval, ...] = Field(
        (), json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )
    placement_nodes: tuple[NodeInterval, ...] = Field(
        (),
        description="the same of the policy of spec.placement",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )

    classes: str | None = Field(
        None, description="what the jobs of each workload class have shown, as JSON; the controller's own"
    )
    departed: str | None = Field(
        None,
        description="jobs that ended before they would have under fair sharing, as JSON; the controller's own, for "
        "policies that guarantee ends",
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
    """Pods of this policy that another controller resizes too; Slopewise does not resize them."""

    pods: int
    first: tuple[str, ...] = ()
    """`namespace/name` of the first three."""
    who: str = ""
    """Field managers, by name."""


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """The inputs of a policy's status."""

    generation: int
    mode: Mode | None
    """None: the document is invalid."""
    invalid: str | None = None
    """Why the document is invalid."""
    held: str | None = None
    """Why the last pass could not observe or decide."""
    policy_failed: bool = False
    """It could observe; the policy failed."""
    conflict: Conflict | None = None
    others: OtherResizers | None = None
    canary_ratio: float = 1.0
    """The share of the jobs that mode Canary changes."""
    capacity: str | None = None
    """What is wrong with the figures of what other pods leave of nodes; None: nothing."""
    degraded: str | None = None
    """What the controller cannot do: a missing right, a failing write."""
    seen: PassView | None = field(default=None)


def policy_status(facts: PolicyFacts, previous: TrainingPolicyStatus, *, now_seconds: float) -> TrainingPolicyStatus:
    """The status without `nodes` and `placement_nodes`, which are the memory's."""
    wanted = _wanted(facts)
    view = facts.seen
    return TrainingPolicyStatus(
        observed_generation=facts.generation,
        jobs=previous.jobs if view is None else _counts(view, previous.jobs),
        canary=_canary(view, facts.canary_ratio) if view is not None and facts.mode == "Canary" else None,
        conditions=updated(wanted, previous.conditions, now_seconds=now_seconds, generation=facts.generation),
    )


def policy_key(facts: PolicyFacts) -> tuple[object, ...]:
    """What makes the status worth writing at once; counts and texts are progress."""
    return (facts.generation, *((each.type, each.status, each.reason) for each in _wanted(facts)))


def _wanted(facts: PolicyFacts) -> tuple[Wanted, ...]:
    return _ready(facts), _metrics_available(facts), _conflict(facts), _degraded(facts), _capacity_known(facts)


def node_intervals(nodes: Mapping[str, NodeMemory]) -> tuple[NodeInterval, ...]:
    """As they are stored, by name. The jobs of a node are stored with each job (`JobGrowth.status.pods[].node`)."""
    return tuple(
        NodeInterval(
            name=name,
            interval_seconds=node.interval_seconds,
            evaluated_at_seconds=node.evaluated_at_seconds,
            requeue_time=timestamp(node.requeue_at_seconds),
        )
        for name, node in sorted(nodes.items())
    )


def _ready(facts: PolicyFacts) -> Wanted:
    if facts.invalid is not None:
        return Wanted("Ready", "False", "InvalidSpec", facts.invalid)
    if facts.held is not None:
        reason = "PolicyFailed" if facts.policy_failed else "CannotObserve"
        return Wanted("Ready", "False", reason, facts.held)
    if facts.seen is None:
        return Wanted("Ready", "Unknown", "NotEvaluatedYet", "no pass has ended yet")
    if facts.mode == "Canary":  # of each job a hash, in each pass
        return Wanted("Ready", "True", "ModeCanary", _canary_message(facts.seen, facts.canary_ratio))
    return Wanted("Ready", "True", f"Mode{facts.mode}", _MODE_MESSAGES[facts.mode or "Observe"])


_MODE_MESSAGES: Mapping[Mode, str] = {
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


def _metrics_available(facts: PolicyFacts) -> Wanted:
    view = facts.seen
    if facts.held is not None and not facts.policy_failed:
        return Wanted("MetricsAvailable", "Unknown", "CannotObserve", facts.held)
    if view is None:
        return Wanted("MetricsAvailable", "Unknown", "NotEvaluatedYet")
    running = _running(view)
    if not running:
        return Wanted("MetricsAvailable", "Unknown", "NoJobs", "no job is running")
    lacking = [job for job in running if metrics_available(job, view.known(job), view.snapshot)[0] == "False"]
    if not lacking:
        return Wanted("MetricsAvailable", "True", "Fresh")
    names = _first_names([f"{job.namespace}/{job.name}" for job in lacking])
    message = f"{len(lacking)} of {len(running)} jobs have no usable evaluation: {names}"
    return Wanted("MetricsAvailable", "False", "JobsWithoutMetrics", message)


def _conflict(facts: PolicyFacts) -> Wanted:
    conflict, others = facts.conflict, facts.others
    messages: dict[str, str] = {}
    if conflict is not None and conflict.pods:
        named = _first_of(conflict.first, conflict.pods)
        messages["OlderPolicyWins"] = (
            f"{conflict.pods} pods are managed by the older policy {conflict.winner}: {named}; narrow one's selector"
        )
    if others is not None and others.pods:
        messages["OtherResizer"] = others_message(others)
    if not messages:
        return Wanted("Conflict", "False", "NoConflict")
    return Wanted("Conflict", "True", next(iter(messages)), "; ".join(messages.values()))


def others_message(others: OtherResizers) -> str:
    """Which other controller resizes the pods, and what to do."""
    pods = "1 pod is" if others.pods == 1 else f"{others.pods} pods are"
    named = _first_of(others.first, others.pods)
    return f"{pods} resized by {others.who} too, and not by Slopewise: {named}; stop one of the two"


def _first_of(names: Sequence[str], pods: int) -> str:
    return ", ".join(names) + (" and more" if pods > len(names) else "")


def _degraded(facts: PolicyFacts) -> Wanted:
    if facts.degraded is None:
        return Wanted("Degraded", "False", "AsExpected")
    return Wanted("Degraded", "True", "CannotDoAll", facts.degraded)


def _capacity_known(facts: PolicyFacts) -> Wanted:
    if facts.seen is None:
        return Wanted("CapacityKnown", "Unknown", "NotEvaluatedYet")
    if facts.capacity is None:
        return Wanted("CapacityKnown", "True", "OthersCounted")
    return Wanted("CapacityKnown", "False", "OthersUncertain", facts.capacity)


def _counts(view: PassView, previous: JobCounts) -> JobCounts:
    """Classes and states without jobs stay with a 0: a merge patch cannot leave a key out."""
    jobs = view.snapshot.jobs
    classes = Counter(known.decided.job_class for job in jobs if (known := view.known(job)) and known.decided.job_class)
    states = Counter(str(job.state) for job in jobs)
    return JobCounts(
        total=len(jobs),
        by_class=dict.fromkeys(sorted({*previous.by_class, *classes}), 0) | classes,
        by_state=dict.fromkeys(sorted({*previous.by_state, *states}), 0) | states,
    )


def _canary(view: PassView, ratio: float) -> str:
    running = _running(view)
    chosen = sum(in_canary(job.uid, ratio) for job in running)
    changed = sum(1 for job in running if (known := view.known(job)) and known.original is not None)
    return f"{chosen} of {len(running)} jobs, {changed} changed"


def _running(view: PassView) -> list[Job]:
    return [job for job in view.snapshot.jobs if not job.state.ended]


def _first_names(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (" and more" if len(names) > most else "")
