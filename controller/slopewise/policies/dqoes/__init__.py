"""DQoES-style: CPU so that as many jobs as possible take no longer than what was asked of them.

Source: DQoES (arXiv 2010.12728), of which only the abstract is at hand: this is a reconstruction, not the paper's own
text. A job asks for `objectives.qoe_seconds`, o, per response of a served model or per step of a training; p is what
was measured, q = (o - p)/o how much better it is than asked. Classes: over-achieving G (q > alpha), satisfied S
(|q| <= alpha), below target B (q < -alpha). Per node of C cores with n jobs:

`direct` (default) solves seconds(L) = o for the limit L* of each job, over the line a + b/L fitted to its own figures.

- If all fit, each gets its L*.
- Otherwise the largest subset is satisfied, ascending by L*/weight; the others are reported as unsatisfiable.

Worked example: C = 1 and L* of 0.2, 0.3, 0.4 and 0.5: the first three are satisfied, the fourth gets the 0.1 left.

`step` (`objectives.py`) changes every limit a little at each evaluation, with back-off while nothing
changes.

On several nodes (ours): arriving jobs are placed by need, those that fit nowhere where most is free
(`shared/need_placement.py`), and a job that was below target and out of reach at `missedEvaluations` in a row is moved
to a node that can satisfy it (`shared/need_policy.py`).

Our readings of `direct`, where nothing is said:

- A job counts as satisfied up to o·(1 + alpha), so what it needs at least is the limit for o·(1 + alpha - margin).
  The subset is chosen by that; then CPU brings its jobs from there towards L*.
- A satisfied job keeps its share unless another needs clearly less: figures that differ by noise do not take
  turns, which would satisfy neither.
- What the subset leaves goes evenly to all others: a job without an objective gets no less than one whose objective
  is out of reach. What they cannot use goes to the subset. Everyone has at least a small floor.
- A job that is not timed yet has an even share C/n until it is, and so has a served model that has stopped answering
  although it has requests: its last figures no longer count (`estimators/pace.py`). One that reports nothing, neither
  steps nor responses nor a loss, keeps its original CPU, and C is what that leaves.
- A satisfied job that wants about what it has, within a deadband, wants just that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from slopewise.model import Arrival, Job, JobMemory, Node, NodeMemory, Objectives
from slopewise.policies import parameter
from slopewise.policies.dqoes.objectives import (
    BELOW,
    NO_OBJECTIVE,
    SATISFIED,
    UNKNOWN,
    ObjectiveCase,
    assess,
    pace_message,
    rest_in_proportion,
    rest_to,
    step_interval_seconds,
    step_limits,
    towards,
)
from slopewise.policies.shared.need_placement import Need, NodeRoom
from slopewise.policies.shared.need_policy import (
    ROUNDING,
    At,
    NeedParameters,
    NeedPolicy,
    missed_evaluations_parameter,
    moves_parameter,
    placement_parameter,
)
from slopewise.policies.shared.node_passes import NodeDecision, Verdict
from slopewise.policies.shared.shares import floor_ratio_parameter

PURPOSE = "served models, or steps, with an objective of seconds each"
ACTIONS = ("resize", "place", "migrate")
DECIDES_ON = "reports"

UNSATISFIABLE = "unsatisfiable"


class Parameters(NeedParameters):
    """When a job counts as satisfied, and how limits follow."""

    placement: bool = placement_parameter(source="ours")
    moves: bool = moves_parameter("objective")
    missed_evaluations: int = missed_evaluations_parameter("objective")
    variant: Literal["direct", "step"] = parameter(
        "direct",
        unit="direct or step",
        source="reconstruction",
        description="solve for the limits at once, or change them a little at each evaluation",
    )
    alpha: float = parameter(
        0.1,
        gt=0,
        lt=1,
        unit="ratio of the objective",
        source="reconstruction",
        description="relative deviation up to which a job counts as satisfied",
    )
    beta: float = parameter(
        0.1,
        gt=0,
        lt=1,
        unit="ratio of a limit",
        source="reconstruction",
        description="step: how much all limits of a class change together in one evaluation",
    )
    max_interval_ratio: float = parameter(
        16.0,
        ge=1,
        le=1024,
        unit="ratio",
        source="ours",
        description="step: back-off stops at this multiple of the interval",
    )
    margin_ratio: float = parameter(
        0.03,
        ge=0,
        le=0.5,
        unit="ratio of the objective",
        source="ours",
        description="direct: how far inside of alpha the least share of a satisfied job aims",
    )
    hold_ratio: float = parameter(
        0.1,
        ge=0,
        le=1,
        unit="ratio of a limit",
        source="ours",
        description="direct: a job that has its share keeps it beside one that needs less by no more than this",
    )
    deadband_ratio: float = parameter(
        0.05,
        ge=0,
        lt=1,
        unit="ratio of a limit",
        source="ours",
        description="direct: a satisfied job whose limit is off by less wants no other",
    )
    floor_ratio: float = floor_ratio_parameter(description="direct: what every job has at least")


class Policy(NeedPolicy[Parameters, ObjectiveCase]):
    """Per node: classes by deviation from the objective, limits by one of two variants."""

    NAME, OBJECTIVE = "dqoes", "objective"

    @property
    def _longest_seconds(self) -> float:
        ratio = self._parameters.max_interval_ratio if self._parameters.variant == "step" else 1.0
        return ratio * self._setting.interval_seconds

    def _assess(self, job: Job, known: JobMemory, node: Node, had_cores: float, at: At) -> ObjectiveCase:
        return assess(job, known, node, had_cores, self._parameters.alpha, self._parameters.margin_ratio)

    def _room(self, node: Node, cases: Iterable[ObjectiveCase]) -> NodeRoom:
        room = NodeRoom(node.cpu_cores)
        for one in cases:
            wants = min(one.useful_cores, one.job.useful_parallelism_cores or 1.0)
            room.add(wants if one.listed == UNKNOWN else one.needs_cores if one.is_kept else None)
        return room

    def _is_asked(self, objectives: Objectives) -> bool:
        return objectives.qoe_seconds is not None

    def _asked_seconds(self, arrival: Arrival, known: JobMemory, at: At) -> float | None:
        asked = arrival.objectives.qoe_seconds
        return None if asked is None else asked * (1 + self._parameters.alpha - self._parameters.margin_ratio)

    def _turn(self, arrival: Arrival, need: Need | None) -> float:
        return math.inf if need is None else need.cores / arrival.objectives.weight

    def _verdicts(
        self, node: Node, cases: Sequence[ObjectiveCase], last: NodeMemory | None, now_seconds: float
    ) -> NodeDecision:
        is_step, seconds = self._parameters.variant == "step", self._setting.interval_seconds
        limits = [one.limit_cores for one in cases]
        if is_step:
            limits = step_limits(cases, node, self._parameters.beta)
            seconds = step_interval_seconds(cases, last, seconds, self._longest_seconds)
        verdicts = {}
        for one, limit in zip(cases, limits, strict=True):
            out_of_reach = one.listed not in (UNKNOWN, NO_OBJECTIVE) and not one.is_kept
            says_so = out_of_reach and not is_step
            listed = UNSATISFIABLE if says_so else one.listed
            why = pace_message(one, now_seconds) + (f", {_unsatisfiable_reason(one)}" if says_so else "")
            unmet = out_of_reach and one.listed == BELOW
            verdicts[one.job.uid] = Verdict(limit, listed, f"{listed}: {why}", unmet=unmet)
        return NodeDecision(verdicts, seconds)

    def _divide(self, node: Node, cases: Sequence[ObjectiveCase]) -> None:
        """Satisfied jobs, and every job's limit; limits add up to the node's CPU unless no job can use it."""
        even = node.cpu_cores / max(1, len(cases))
        floor = self._parameters.floor_ratio * even
        limits = [min(even, one.useful_cores) if one.listed == UNKNOWN else floor for one in cases]
        chosen = self._choose(cases, limits, node.cpu_cores)
        for index in chosen:
            limits[index] = max(floor, cases[index].needs_cores or 0.0)
            cases[index].is_kept = True
        wanted = {index: self._wanted(cases[index]) for index in chosen}
        limits = towards(wanted, limits, node.cpu_cores)
        others = [index for index, one in enumerate(cases) if index not in chosen and one.listed != UNKNOWN]
        limits = rest_to(others, cases, limits, node.cpu_cores)
        limits = rest_in_proportion(cases, limits, chosen, node.cpu_cores)
        for one, limit in zip(cases, limits, strict=True):
            one.limit_cores = limit

    def _choose(self, cases: Sequence[ObjectiveCase], least: Sequence[float], capacity_cores: float) -> list[int]:
        """The jobs to satisfy, least CPU for its weight first, as long as they fit above what everyone has at least."""
        left = capacity_cores - math.fsum(least) + ROUNDING * capacity_cores
        chosen = []
        for index in sorted(range(len(cases)), key=lambda i: self._rank(cases[i])):
            needs = cases[index].needs_cores
            if needs is None or needs > cases[index].useful_cores:
                continue
            more = max(0.0, needs - least[index])
            if more <= left:
                chosen.append(index)
                left -= more
        return chosen

    def _rank(self, one: ObjectiveCase) -> tuple[float, str]:
        """Smaller comes first. One that has what it needs counts as if it needed less, and so keeps its place."""
        needs, had = one.needs_cores or 0.0, one.known.decided.wanted_cores or 0.0
        has_it = had >= needs * (1 - self._parameters.deadband_ratio)
        held = 1 + self._parameters.hold_ratio if has_it else 1.0
        return needs / one.job.objectives.weight / held, one.job.uid

    def _wanted(self, one: ObjectiveCase) -> float:
        """What just meets the objective; or what a satisfied job has, where that is about the same."""
        wanted = one.useful_cores if one.wants_cores is None else min(one.wants_cores, one.useful_cores)
        had = one.known.decided.wanted_cores or 0.0
        near = abs(had - wanted) <= self._parameters.deadband_ratio * had
        return had if near and one.listed == SATISFIED else wanted


def _unsatisfiable_reason(one: ObjectiveCase) -> str:
    if one.needs_cores is None:
        return f"no CPU would make {one.job.name} that fast"
    if one.needs_cores > one.useful_cores:
        return f"{one.job.name} needs {one.needs_cores:.3g} cores and can use {one.useful_cores:.3g}"
    return f"{one.job.name} needs {one.needs_cores:.3g} cores, and those that need less leave it too little"
