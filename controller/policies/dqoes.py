"""DQoES-style: CPU so that as many jobs as possible take no longer than what was asked of them.

Source: DQoES (arXiv 2010.12728), of which only the abstract is at hand: this is a reconstruction, not the paper's own
text. A job asks for `promises.qoe_seconds`, o, per response of a served model or per step of a training; p is what
was measured, q = (o - p)/o how much better it is than asked. Classes: over-achieving G (q > alpha), satisfied S
(|q| <= alpha), below target B (q < -alpha). Per node of C cores with n jobs:

`direct` (default) solves seconds(L) = o for the limit L* of each job, over the line a + b/L fitted to its own figures.

- If all fit, each gets its L*.
- Otherwise the largest subset is satisfied, ascending by L*/weight; the others are reported as unsatisfiable.

Worked example: C = 1 and L* of 0.2, 0.3, 0.4 and 0.5: the first three are satisfied, the fourth gets the 0.1 left.

`step` (`_qoe_step`) changes every limit a little at each look, and looks less often while nothing changes.

Our readings of `direct`, where nothing is said:

- A job counts as satisfied up to o·(1 + alpha), so what it needs at least is the limit for o·(1 + alpha - margin).
  The subset is chosen by that; then CPU brings its jobs from there towards L*.
- One that is promised its share keeps it unless another needs clearly less: figures that differ by noise do not take
  turns, which would satisfy neither.
- What the subset leaves goes evenly to all others: a job without an objective gets no less than one whose objective
  is out of reach. What they cannot use goes to the subset. Everyone has at least a small floor.
- A job that is not timed yet has an even share C/n until it is. One that reports nothing, neither steps nor responses
  nor a loss, keeps what it came with, and C is what that leaves.
- A satisfied job that wants about what it has, within a deadband, wants just that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from controller.model import ClusterSnapshot, Decisions, Job, MemoryState, Node, NodeMemory
from controller.policies import PolicyParameters, Setting, parameter
from controller.policies._looks import Look, Verdict, decide_by_node
from controller.policies._qoe import SATISFIED, UNASKED, UNKNOWN, Standing, standing
from controller.policies._qoe_step import step_interval_seconds, step_limits
from controller.policies._shares import in_proportion
from controller.policies._silence import without_a_report
from controller.policies._speed import had_cores, handed_out

PURPOSE = "served models, or steps, that were promised a time each"
DECIDES_ON = "reports"

UNSATISFIABLE = "unsatisfiable"

_ROUNDING = 1e-9


class Parameters(PolicyParameters):
    """When a job counts as satisfied, and how limits follow."""

    variant: Literal["direct", "step"] = parameter(
        "direct",
        unit="direct or step",
        source="reconstruction",
        description="solve for the limits at once, or change them a little at each look",
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
        description="step: how much all limits of a class change together in one look",
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
    floor_ratio: float = parameter(
        0.05,
        gt=0,
        le=1,
        unit="ratio of an even share, node / jobs",
        source="ours",
        description="direct: what every job has at least",
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """Limits in cores by place in the list of jobs, and the places of those whose objective is in reach."""

    limits: Sequence[float]
    chosen: frozenset[int]


class Policy:
    """Per node: classes by deviation from the objective, limits by one of two variants."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._parameters = parameters
        self._setting = setting

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Look at every node that is due."""
        alpha, margin = self._parameters.alpha, self._parameters.margin_ratio

        def look_at(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> Look:
            had = had_cores(jobs, node, self._setting.control)
            standings = [
                standing(job, memory.jobs[job.uid], node, cores, alpha, margin)
                for job, cores in zip(jobs, had, strict=True)
            ]
            if self._parameters.variant == "step":
                return self._step(node, standings, last)
            return self._direct(node, standings)

        return decide_by_node(
            "dqoes",
            snapshot,
            memory,
            self._setting.control,
            look_at,
            silence=without_a_report(snapshot),
            reserves=True,
        )

    def _step(self, node: Node, standings: Sequence[Standing], last: NodeMemory | None) -> Look:
        limits = step_limits(standings, node, self._parameters.beta)
        verdicts = {
            one.job.uid: Verdict(limit, one.listed, f"{one.listed}: {_pace(one)}")
            for one, limit in zip(standings, limits, strict=True)
        }
        first = self._setting.interval_seconds
        return Look(verdicts, step_interval_seconds(standings, last, first, self._parameters.max_interval_ratio))

    def _direct(self, node: Node, standings: Sequence[Standing]) -> Look:
        plan = self._plan(node, standings)
        verdicts = {}
        for index, (one, limit) in enumerate(zip(standings, plan.limits, strict=True)):
            out_of_reach = one.listed not in (UNKNOWN, UNASKED) and index not in plan.chosen
            listed = UNSATISFIABLE if out_of_reach else one.listed
            because = f"{_pace(one)}, {_why_not(one)}" if out_of_reach else _pace(one)
            verdicts[one.job.uid] = Verdict(limit, listed, f"{listed}: {because}")
        return Look(verdicts, self._setting.interval_seconds)

    def _plan(self, node: Node, standings: Sequence[Standing]) -> _Plan:
        """Who is satisfied, and everybody's limit; they add up to the node's CPU unless nobody can use it."""
        if not standings:
            return _Plan([], frozenset())
        even = node.cpu_cores / len(standings)
        floor = self._parameters.floor_ratio * even
        limits = [min(even, one.useful_cores) if one.listed == UNKNOWN else floor for one in standings]
        chosen = self._choose(standings, limits, node.cpu_cores)
        for index in chosen:
            limits[index] = max(floor, standings[index].needs_cores or 0.0)
        wanted = {index: self._wanted(standings[index]) for index in chosen}
        limits = _towards(wanted, limits, node.cpu_cores)
        limits = _rest_to_others(standings, limits, chosen, node.cpu_cores)
        return _Plan(_rest_in_proportion(standings, limits, chosen, node.cpu_cores), frozenset(chosen))

    def _choose(self, standings: Sequence[Standing], least: Sequence[float], capacity_cores: float) -> list[int]:
        """The jobs to satisfy, least CPU for its weight first, as long as they fit above what everyone has at least."""
        left = capacity_cores - math.fsum(least) + _ROUNDING * capacity_cores
        chosen = []
        for index in sorted(range(len(standings)), key=lambda i: self._rank(standings[i])):
            needs = standings[index].needs_cores
            if needs is None or needs > standings[index].useful_cores:
                continue
            more = max(0.0, needs - least[index])
            if more <= left:
                chosen.append(index)
                left -= more
        return chosen

    def _rank(self, one: Standing) -> tuple[float, str]:
        """Smaller comes first. One that has what it needs counts as if it needed less, and so keeps its place."""
        needs, had = one.needs_cores or 0.0, one.known.wanted_cores or 0.0
        has_it = had >= needs * (1 - self._parameters.deadband_ratio)
        held = 1 + self._parameters.hold_ratio if has_it else 1.0
        return needs / one.job.promises.weight / held, one.job.uid

    def _wanted(self, one: Standing) -> float:
        """What just meets the objective; or what a satisfied job has, where that is about the same."""
        wanted = one.useful_cores if one.wants_cores is None else min(one.wants_cores, one.useful_cores)
        had = one.known.wanted_cores or 0.0
        near = abs(had - wanted) <= self._parameters.deadband_ratio * had
        return had if near and one.listed == SATISFIED else wanted


def _towards(wanted: Mapping[int, float], limits: Sequence[float], capacity_cores: float) -> list[float]:
    """The limits, those of the wanted ones raised towards what is wanted, all by the same part of the way."""
    way = [max(0.0, wanted.get(index, 0.0) - limit) for index, limit in enumerate(limits)]
    total, left = math.fsum(way), max(0.0, capacity_cores - math.fsum(limits))
    part = min(1.0, left / total) if total > 0 else 0.0
    return [limit + part * each for limit, each in zip(limits, way, strict=True)]


def _rest_to_others(
    standings: Sequence[Standing], limits: Sequence[float], chosen: Sequence[int], capacity_cores: float
) -> list[float]:
    """What is left evenly to those that are neither chosen nor still to be timed."""
    rooms = [
        0.0 if index in chosen or one.listed == UNKNOWN else max(0.0, one.useful_cores - limit)
        for index, (one, limit) in enumerate(zip(standings, limits, strict=True))
    ]
    more = handed_out(rooms, capacity_cores - math.fsum(limits))
    return [limit + extra for limit, extra in zip(limits, more, strict=True)]


def _rest_in_proportion(
    standings: Sequence[Standing], limits: Sequence[float], chosen: Sequence[int], capacity_cores: float
) -> list[float]:
    """What nobody else can use, to the chosen in proportion to what they have."""
    given = list(limits)
    have = [limits[index] for index in chosen]
    most = [max(limits[index], standings[index].useful_cores) for index in chosen]
    left = max(0.0, capacity_cores - math.fsum(limits))
    for index, cores in zip(chosen, in_proportion(have, have, most, math.fsum(have) + left), strict=True):
        given[index] = cores
    return given


def _pace(one: Standing) -> str:
    asked = one.job.promises.qoe_seconds
    if asked is None:
        return "shares evenly what the others leave"
    if not one.known.paces:
        return f"{asked:.3g} s asked, not timed yet"
    return f"{one.known.paces[-1].seconds:.3g} s of {asked:.3g} s asked"


def _why_not(one: Standing) -> str:
    if one.needs_cores is None:
        return f"no CPU would make {one.job.name} that fast"
    if one.needs_cores > one.useful_cores:
        return f"{one.job.name} needs {one.needs_cores:.3g} cores and can use {one.useful_cores:.3g}"
    return f"{one.job.name} needs {one.needs_cores:.3g} cores, and those that need less leave it too little"
