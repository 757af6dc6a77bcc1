"""TRADL-style: CPU for the jobs that are furthest from the loss their users need; done ones make room.

Source: TRADL, of which only a short account in the thesis (chapter 2) is at hand: this is a reconstruction, not the
paper's own text. Users state up to two targets in the unit of the metric: the evaluation from which the model is of
use (`objectives.deliverable_level`) and the one at which it is done (`objectives.target_level`). What is compared is
the evaluation's level over its window, in the metric's own direction; lower is better in what follows.

Per node of C cores with n jobs, the floor being C/(2n):

- urgent, above the first target: CPU in proportion to (E - τ1) / (E_first - τ1), at most 1, never below the floor;
- deliverable, between the targets: the floor;
- released, at the second target: the floor, also while no other job wants the CPU: it is free for arriving jobs.
  The policy does not stop the job. Where its owner asks for that (`slopewise.dev/at-target: stop`), the pass does,
  under every policy (`guards/at_target.py`).

Worked example: C = 1, τ1 = 0.4, two jobs that started at 1 and are at 0.7 and 0.5: 0.5 to 0.167, so 0.75 and 0.25.

Our readings, where nothing is said:

- A target counts as reached after three measurements in a row that reach it (`spec.evaluation.targetHits`), and as lost
  after three in a row that miss it. Every pass counts that, under any policy (`estimators/targets.py`). Targets are
  passed one after another: a job that is below both at once is deliverable after three measurements and released after
  six.
- One target alone: a lone final target is both of them, passed at once; a lone deliverable target never releases.
- A job whose evaluation is not known now (young, stale, restarted, diverged, an outlier) keeps its class and its count.
  One that is urgent, and one without targets, then has an even share C/n, as if it were not managed.
- CPU that the urgent jobs cannot use, or leave because there are none, goes evenly to all but the released ones, each
  up to its useful parallelism.
- A job that has never reported a loss, or none for long, keeps its original CPU; C and n are of the others.
- The policy releases CPU. Memory requests are lowered by class where `spec.resources.memory` allows it
  (`memory_sizing.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slopewise.allocation import down_an_order
from slopewise.estimators import targets
from slopewise.estimators.growth import is_usable
from slopewise.estimators.level_range import is_held_back
from slopewise.model import (
    ClusterSnapshot,
    Decisions,
    Evaluation,
    Job,
    JobMemory,
    MemoryState,
    Node,
    NodeMemory,
    TargetHits,
)
from slopewise.policies import PolicyParameters, Setting
from slopewise.policies.shared.node_passes import NodeDecision, Verdict, decide_by_node
from slopewise.policies.shared.shares import floor_ratio_parameter, in_proportion, useful_cores

PURPOSE = "trainings that only have to reach a stated loss"
ACTIONS = ("resize",)

URGENT, DELIVERABLE, RELEASED, UNTARGETED = "urgent", "deliverable", "released", "untargeted"


class Parameters(PolicyParameters):
    """What is left to those that are not urgent."""

    floor_ratio: float = floor_ratio_parameter(
        0.5,
        source="reconstruction",
        description="what a deliverable or released job keeps, and an urgent one has at least",
    )


@dataclass(frozen=True, slots=True)
class _TargetCase:
    """A job's class by its targets. `urgency` is 0 to 1; None: no figure for it, and an even share."""

    listed: str
    urgency: float | None
    because: str


class Policy:
    """Per node: classes by target, CPU by distance to the first of them."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._parameters = parameters
        self._setting = setting

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Decide on every node that is due."""

        def decide_node(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> NodeDecision:
            cases = [self._assess(job, memory.jobs[job.uid], snapshot) for job in jobs]
            return self._decide_node(node, jobs, cases)

        longest = self._setting.interval_seconds
        return decide_by_node("tradl", snapshot, memory, self._setting.control, decide_node, longest_seconds=longest)

    def _decide_node(self, node: Node, jobs: Sequence[Job], cases: Sequence[_TargetCase]) -> NodeDecision:
        limits = _limits(node, jobs, cases, self._parameters.floor_ratio)
        verdicts = {
            job.uid: Verdict(limit, case.listed, f"{case.listed}: {case.because}")
            for job, case, limit in zip(jobs, cases, limits, strict=True)
        }
        return NodeDecision(verdicts, self._setting.interval_seconds)

    def _assess(self, job: Job, known: JobMemory, snapshot: ClusterSnapshot) -> _TargetCase:
        stated = targets.levels(job)
        if not stated:
            return _TargetCase(UNTARGETED, None, "no target stated")
        listed = _listed(known.objectives.targets or targets.UNCOUNTED, stated)
        evaluation, first = job.evaluation, known.levels.first
        if evaluation is None or first is None or not is_usable(job, snapshot) or is_held_back(known.levels):
            return _TargetCase(listed, None if listed == URGENT else 0.0, "its loss is not known now")
        urgency = _urgency(evaluation, first, stated[0]) if listed == URGENT else 0.0
        return _TargetCase(listed, urgency, _because(evaluation, stated))


def _listed(hits: TargetHits, stated: Sequence[float]) -> str:
    """The class of a job with targets; a lone deliverable one never releases, also after a final one was dropped."""
    if not hits.is_deliverable:
        return URGENT
    return RELEASED if hits.is_final and len(stated) > 1 else DELIVERABLE


def _urgency(evaluation: Evaluation, first_level: float, target: float) -> float:
    """The part of the way to the target that is still to go, 0 to 1; one that got worse than it began has all of it."""
    left = targets.distance(evaluation, target)
    gone = (evaluation.level - first_level) if evaluation.objective == "max" else (first_level - evaluation.level)
    if left <= 0:
        return 0.0
    return 1.0 if gone <= 0 else left / (left + gone)


def _because(evaluation: Evaluation, levels: Sequence[float]) -> str:
    reached = targets.reached_by(evaluation, levels)
    if reached == len(levels):
        return f"{evaluation.level:.3g} reaches target {levels[-1]:.3g}"
    return f"{evaluation.level:.3g} misses target {levels[reached]:.3g}"


def _limits(node: Node, jobs: Sequence[Job], cases: Sequence[_TargetCase], floor_ratio: float) -> list[float]:
    """Limits in cores, which add up to the node's CPU unless no job can use what the released ones leave."""
    if not jobs:
        return []
    even = node.cpu_cores / len(jobs)
    floor = floor_ratio * even
    most = [max(floor, useful_cores(job, node)) for job in jobs]
    limits = [min(cap, even if one.urgency is None else floor) for cap, one in zip(most, cases, strict=True)]
    urgent = [i for i, one in enumerate(cases) if one.urgency]
    for_them = node.cpu_cores - sum(limits) + sum(limits[i] for i in urgent)
    shares = in_proportion(
        [cases[i].urgency or 0.0 for i in urgent], [limits[i] for i in urgent], [most[i] for i in urgent], for_them
    )
    for i, share in zip(urgent, shares, strict=True):
        limits[i] = share
    sharing = [i for i, one in enumerate(cases) if one.listed != RELEASED]
    return list(down_an_order(dict(enumerate(limits)), [sharing], dict(enumerate(most)), node.cpu_cores).values())
