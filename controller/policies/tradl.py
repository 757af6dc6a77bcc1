"""TRADL-style: CPU for the jobs that are furthest from the loss their users need; done ones make room.

Source: TRADL, of which only a short account in the thesis (chapter 2) is at hand: this is a reconstruction, not the
paper's own text. Users state up to two targets in the unit of the metric: the evaluation from which the model is of
use (`promises.deliverable_level`) and the one at which it is done (`promises.target_level`). What is compared is
the evaluation's level over its window, in the metric's own direction; lower is better in what follows.

Per node of C cores with n jobs, the floor being C/(2n):

- urgent, above the first target: CPU in proportion to (E - τ1) / (E_first - τ1), at most 1, never below the floor;
- deliverable, between the targets: the floor;
- released, at the second target: the floor, also while nobody else wants the CPU: it is free for whoever arrives.
  The job is not stopped: that is its owner's to do.

Worked example: C = 1, τ1 = 0.4, two jobs that started at 1 and are at 0.7 and 0.5: 0.5 to 0.167, so 0.75 and 0.25.

Our readings, where nothing is said:

- A target counts as reached after three measurements in a row that reach it, one a look and none twice, and as lost
  after three in a row that miss it. Targets are passed one after another: a job that is below both at once is
  deliverable after three looks and released after six.
- One target alone: a lone final target is both of them, passed at once; a lone deliverable target never releases.
- A job whose evaluation is not known now (young, stale, restarted, diverged, an outlier) keeps its class and its count.
  One that is urgent, and one without targets, then has an even share C/n, as if nobody managed it.
- CPU that the urgent jobs cannot use, or leave because there are none, goes evenly to all but the released ones,
  each up to its useful parallelism.
- A job that has never reported a loss, or none for long, keeps what it came with; C and n are of the others.
- Only CPU is given back. Memory stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controller.control import even_shares
from controller.growth import is_usable
from controller.level_range import is_held_back
from controller.model import (
    ClusterSnapshot,
    Decisions,
    Evaluation,
    Job,
    JobMemory,
    MemoryState,
    Node,
    NodeMemory,
)
from controller.policies import PolicyParameters, Setting, parameter
from controller.policies._looks import Look, Verdict, decide_by_node
from controller.policies._shares import in_proportion, useful_cores

PURPOSE = "trainings that only have to reach a stated loss"

URGENT, DELIVERABLE, RELEASED, UNTARGETED = "urgent", "deliverable", "released", "untargeted"
_TIERS = (URGENT, DELIVERABLE, RELEASED)


class Parameters(PolicyParameters):
    """How sure a hit must be, and what is left to those that are not urgent."""

    hits: int = parameter(
        3,
        ge=1,
        le=1000,
        unit="measurements in a row",
        source="reconstruction",
        description="how many measurements must reach a target, or miss it, before a job's class changes",
    )
    floor_ratio: float = parameter(
        0.5,
        gt=0,
        le=1,
        unit="ratio of an even share, node / jobs",
        source="reconstruction",
        description="what a deliverable or released job keeps, and an urgent one has at least",
    )


@dataclass(frozen=True, slots=True)
class _Standing:
    """Where a job stands to its targets. `urgency` is 0 to 1; None: no figure for it, and an even share."""

    listed: str
    streak: int
    urgency: float | None
    because: str


class Policy:
    """Per node: classes by target, CPU by distance to the first of them."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._parameters = parameters
        self._setting = setting

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Look at every node that is due."""

        def look_at(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> Look:
            looked_at = last.looked_at_seconds if last else float("-inf")
            standings = [self._standing(job, memory.jobs[job.uid], snapshot, looked_at) for job in jobs]
            return self._look(node, jobs, standings)

        return decide_by_node("tradl", snapshot, memory, self._setting.control, look_at)

    def _look(self, node: Node, jobs: Sequence[Job], standings: Sequence[_Standing]) -> Look:
        verdicts = {}
        limits = _limits(node, jobs, standings, self._parameters.floor_ratio)
        for job, standing, limit in zip(jobs, standings, limits, strict=True):
            reason = f"{standing.listed}: {standing.because}"
            verdicts[job.uid] = Verdict(limit, standing.listed, reason, streak=standing.streak)
        return Look(verdicts, self._setting.interval_seconds)

    def _standing(self, job: Job, known: JobMemory, snapshot: ClusterSnapshot, looked_at: float) -> _Standing:
        levels = _levels(job)
        if not levels:
            return _Standing(UNTARGETED, 0, None, "no target stated")
        before, streak = (known.job_class, known.streak) if known.job_class in _TIERS else (URGENT, 0)
        evaluation, first = job.evaluation, known.first_level
        if evaluation is None or first is None or not is_usable(job, snapshot) or is_held_back(known):
            return _Standing(before, streak, None if before == URGENT else 0.0, "evaluation not known now")
        reached = sum(_distance(evaluation, level) <= 0 for level in levels)
        tier = min(_TIERS.index(before), len(levels))
        if known.growth is not None and known.growth.at_seconds > looked_at:  # measured since the last look
            tier, streak = self._counted(tier, streak, reached, levels)
        urgency = _urgency(evaluation, first, levels[0]) if tier == 0 else 0.0
        return _Standing(_TIERS[tier], streak, urgency, _because(evaluation, levels, reached))

    def _counted(self, tier: int, streak: int, reached: int, levels: Sequence[float]) -> tuple[int, int]:
        """The tier after one more measurement, and the count: above 0 for hits in a row, below 0 for misses."""
        step = (reached > tier) - (reached < tier)
        streak = streak + step if step * streak > 0 else step
        if abs(streak) < self._parameters.hits:
            return tier, streak
        between_equals = tier + step == 1 and len(levels) == 2 and levels[0] == levels[1]
        return (reached if between_equals else tier + step), 0


def _levels(job: Job) -> tuple[float, ...]:
    """The targets in the order in which they are passed, also where they were stated the other way round."""
    promises = job.promises
    final = promises.target_level
    first = final if promises.deliverable_level is None else promises.deliverable_level
    falls = job.evaluation is None or job.evaluation.objective == "min"
    return tuple(sorted((level for level in (first, final) if level is not None), reverse=falls))


def _distance(evaluation: Evaluation, level: float) -> float:
    """How much worse than `level` the evaluation is, in the metric's own unit; 0 or less: it is reached."""
    return (level - evaluation.level) if evaluation.objective == "max" else (evaluation.level - level)


def _urgency(evaluation: Evaluation, first_level: float, target: float) -> float:
    """The part of the way to the target that is still to go, 0 to 1; one that got worse than it began has all of it."""
    left = _distance(evaluation, target)
    gone = (evaluation.level - first_level) if evaluation.objective == "max" else (first_level - evaluation.level)
    if left <= 0:
        return 0.0
    return 1.0 if gone <= 0 else left / (left + gone)


def _because(evaluation: Evaluation, levels: Sequence[float], reached: int) -> str:
    if reached == len(levels):
        return f"{evaluation.level:.3g} reaches target {levels[-1]:.3g}"
    return f"{evaluation.level:.3g} misses target {levels[reached]:.3g}"


def _limits(node: Node, jobs: Sequence[Job], standings: Sequence[_Standing], floor_ratio: float) -> list[float]:
    """Limits in cores, which add up to the node's CPU unless nobody can use what the released ones leave."""
    if not jobs:
        return []
    even = node.cpu_cores / len(jobs)
    floor = floor_ratio * even
    most = [max(floor, useful_cores(job, node)) for job in jobs]
    limits = [min(cap, even if one.urgency is None else floor) for cap, one in zip(most, standings, strict=True)]
    urgent = [i for i, one in enumerate(standings) if one.urgency]
    for_them = node.cpu_cores - sum(limits) + sum(limits[i] for i in urgent)
    shares = in_proportion(
        [standings[i].urgency or 0.0 for i in urgent], [limits[i] for i in urgent], [most[i] for i in urgent], for_them
    )
    for i, share in zip(urgent, shares, strict=True):
        limits[i] = share
    return _with_the_rest(limits, most, standings, node)


def _with_the_rest(
    limits: Sequence[float], most: Sequence[float], standings: Sequence[_Standing], node: Node
) -> list[float]:
    """The limits with what is left handed out evenly to all but the released, each up to what it can use."""
    room = [
        0.0 if one.listed == RELEASED else cap - limit for cap, limit, one in zip(most, limits, standings, strict=True)
    ]
    extra = even_shares(room, max(0.0, node.cpu_cores - sum(limits)))
    return [limit + min(more, space) for limit, more, space in zip(limits, extra, room, strict=True)]
