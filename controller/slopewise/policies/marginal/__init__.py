"""Marginal value: CPU first to the job whose next work is worth most, while no job ends later than under fair sharing.

Source: ours; shortest job first, Gittins' index and virtual fair sharing are its ancestors.

Value is what a job reaches of 90 % and of 99 % of its improvement, and its end, weighted by `favour`. A job's index is
the most value per core-second of the milestones ahead, by its curve and its planned steps (`forecast`, `curve`). A job
is due when it would end if all jobs, also those that have ended since, shared the cluster evenly (`fair_ends`). Jobs go
by index as long as all that are due sooner keep an interval of slack; the others after them, by when they are due. CPU
goes down the order, to each job up to what it can use. A job that cannot end in time with any less gets what fair
sharing would give it now, and not the node. Objectives and deadlines are served before all else (`nodes` has moves).

What is not stated elsewhere, and is our reading:

- Jobs that have ended go on in the virtual sharing until they would have ended there: what the order saved them is
  what the others had to wait, and without them every job that is left would be due sooner for it.
- A job that reports no loss, for instance because it has only begun, keeps its original CPU; one whose loss is not
  finite keeps the floor, and claims nothing.
- Contention is in the CPU-seconds that are counted, of fair sharing as of this; so none is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from slopewise.allocation import capacity_cores
from slopewise.estimators.speed import measured_speed, useful_cores
from slopewise.model import (
    ClusterSnapshot,
    Decisions,
    Ends,
    Job,
    JobMemory,
    MemoryState,
    Migrate,
    Node,
    NodeMemory,
    Place,
)
from slopewise.policies import PolicyParameters, Setting, parameter
from slopewise.policies.marginal.fair_ends import fair_ends
from slopewise.policies.marginal.forecast import Forecast, Weights, forecasts, state_of
from slopewise.policies.marginal.nodes import moves, places
from slopewise.policies.marginal.order import Order, down, expected_ends, order
from slopewise.policies.shared.node_passes import NodeDecision, Verdict, decide_by_node
from slopewise.policies.shared.shares import floor_ratio_parameter
from slopewise.policies.shared.silence import Silence, silent_jobs, without_a_loss
from slopewise.text import duration

PURPOSE = "good and done sooner, none much later than under fair sharing"
ACTIONS = ("resize", "place", "migrate")
READS_POINTS = True
DECIDES_ON = "reports"
IN_TURNS = True

FAVOURS: Mapping[str, Weights] = {
    "balanced": (0.45, 0.10, 0.50),
    "quality": (0.65, 0.10, 0.30),
    "full": (0.35, 0.40, 0.25),
    "ends": (0.0, 0.0, 1.0),
}
"""Of ten jobs with plans on one node, `balanced` is .72 / .84 of fair sharing in mean completion and time to 90 %,
`ends` .63 / 1.35, `quality` .82 / .70: losses buy time to quality, the plan alone buys completion."""

FIRST, WAITS, DUE, OBJECTIVE = "first", "waits", "due", "objective"

NOT_FINITE = f"{WAITS}: its loss is not finite, so it keeps the least"

RESERVE_INTERVALS = 1.0
"""Slack that a job keeps: what is decided now holds for an interval. With half of one the worst of ten jobs is 3 %
later than under fair sharing, with one it is not."""

MIN_EVALUATION_SECONDS = 5.0
"""Between two evaluations; a scrape interval where that is longer."""

DEADLINE_MARGIN = 1.1
"""Of the CPU that a deadline takes: core-seconds a step are known to a tenth."""

LIMITS_FLOOR_CORES = 0.02
"""Under hard limits, whose fractions of a core cost more than they are."""


class Parameters(PolicyParameters):
    """What is worth how much, and what those who wait are given."""

    favour: Literal["balanced", "quality", "full", "ends"] = parameter(
        "balanced",
        unit="balanced, quality, full or ends",
        source="ours",
        description="what counts most: 90 % of the improvement (quality), 99 % (full), the end, or all (balanced)",
    )
    floor_ratio: float = floor_ratio_parameter()


@dataclass(frozen=True, slots=True)
class _View:
    """What the decisions on all nodes are made from."""

    snapshot: ClusterSnapshot
    jobs: Mapping[str, JobMemory]
    found: Mapping[str, Forecast]
    due: Mapping[str, float]
    """Seconds from now until each job ends under fair sharing; infinite where its work is not known."""
    ends: dict[str, Ends]
    """Filled in by the decisions on the nodes that are evaluated."""


class Policy:
    """The whole cluster at each pass; every node as it is due."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._parameters = parameters
        self._setting = setting
        self._reserve_seconds = RESERVE_INTERVALS * setting.interval_seconds

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Decide on every node that is due, place arrivals, and move jobs to nodes that idle."""
        silence = _silence(snapshot)
        running = sorted((job for job in snapshot.jobs if not job.state.ended), key=lambda job: job.uid)
        silent = silent_jobs(running, memory.jobs, silence)
        claiming = [job for job in running if job.uid not in silent and _has_a_loss(job, memory.jobs[job.uid])]
        states = {job.uid: state_of(memory.jobs[job.uid].state) for job in snapshot.jobs}
        known = {uid: state for uid, state in states.items() if state is not None}
        weights = FAVOURS[self._parameters.favour]
        found = forecasts(snapshot, memory, claiming, known, weights, self._setting.interval_seconds)
        remembered, due = fair_ends(snapshot, memory, known, found)
        view = _View(snapshot, remembered.jobs, found, due, {})

        def decide_node(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> NodeDecision:
            return self._decide_node(node, jobs, view)

        chosen: list[Place | Migrate] = [*places(snapshot, memory, found), *moves(snapshot, memory, found)]
        decided = decide_by_node(
            "marginal",
            snapshot,
            remembered,
            self._setting.control,
            decide_node,
            chosen,
            silence=silence,
            reserves=True,
        )
        jobs = {**decided.memory.jobs}
        for uid, ends in view.ends.items():
            jobs[uid] = jobs[uid].altered(ends=ends)
        return replace(decided, memory=replace(decided.memory, jobs=jobs, departed=remembered.departed))

    def _decide_node(self, node: Node, jobs: Sequence[Job], view: _View) -> NodeDecision:
        if not jobs:
            return NodeDecision({}, self._setting.interval_seconds)
        total = capacity_cores(node)
        cores = {job.uid: min(total, useful_cores(job, node)) for job in jobs}
        claims = [view.found[job.uid] for job in jobs if job.uid in view.found]
        ordered = order(claims, view.due, total, self._reserve_seconds)
        needs = _needs(jobs, view, cores, total)
        floors = self._floors(jobs, view, cores, needs, total)
        others = [job.uid for job in jobs if job.uid not in view.found]
        given = down([*(each.job.uid for each in ordered.jobs), *others], floors, cores, total)
        view.ends.update(expected_ends(ordered.jobs, view.due, cores, total, view.snapshot.taken_at_seconds))
        verdicts = {uid: Verdict(given[uid], WAITS, NOT_FINITE) for uid in others}
        for place, each in enumerate(ordered.jobs, start=1):
            uid = each.job.uid
            cores_beyond = given[uid] if given[uid] > 1.01 * floors[uid] or len(jobs) == 1 else None
            verdicts[uid] = _verdict(each, place, ordered, view.due[uid], given[uid], cores_beyond)
        for uid, need in needs.items():
            if uid in others or given[uid] <= 1.01 * floors[uid]:
                why = f"{OBJECTIVE}: its objective or deadline needs {need:.3g} cores"
                verdicts[uid] = Verdict(given[uid], OBJECTIVE, why)
        return NodeDecision(verdicts, self._until_next_evaluation(ordered.jobs, given, view.snapshot))

    def _floors(
        self,
        jobs: Sequence[Job],
        view: _View,
        cores: Mapping[str, float],
        needs: Mapping[str, float],
        total: float,
    ) -> dict[str, float]:
        """What each job gets at least; what objectives take is never scaled down with the rest."""
        even = total / len(jobs)
        least = self._parameters.floor_ratio * even
        if self._setting.control == "limits":
            least = min(least, LIMITS_FLOOR_CORES)
        floors = {}
        for job in jobs:
            claim = view.found.get(job.uid)
            last = claim is not None and claim.sure_left / cores[job.uid] > view.due[job.uid] - self._reserve_seconds
            floors[job.uid] = min(even if last else least, cores[job.uid])
        beside = math.fsum(floor for uid, floor in floors.items() if uid not in needs)
        room = total - math.fsum(max(need, floors[uid]) for uid, need in needs.items())
        scale = max(0.0, room) / beside if beside > max(0.0, room) else 1.0
        return {uid: max(needs[uid], floor) if uid in needs else floor * scale for uid, floor in floors.items()}

    def _until_next_evaluation(
        self, order: Sequence[Forecast], given: Mapping[str, float], snapshot: ClusterSnapshot
    ) -> float:
        """Until the first in the order reaches its next milestone, but at least once an interval."""
        least = max(MIN_EVALUATION_SECONDS, snapshot.scrape_interval_seconds)
        seconds = self._setting.interval_seconds
        for each in order[:1]:
            cores = given[each.job.uid]
            ahead = [work for work in (each.work_to(0.9), each.work_to(0.99), each.left) if work > 0]
            if cores > 0 and ahead:
                seconds = min(seconds, max(least, ahead[0] / cores))
        return seconds


def _silence(snapshot: ClusterSnapshot) -> Silence:
    """A job is silent that reports no loss, unless its objective can be served without one."""
    no_loss = without_a_loss(snapshot)

    def silence(job: Job, known: JobMemory) -> str | None:
        why = no_loss(job, known)
        timed = why is not None and job.objectives.qoe_seconds is not None and measured_speed(known) is not None
        return None if timed else why

    return silence


def _has_a_loss(job: Job, known: JobMemory) -> bool:
    return known.first_level is not None and (job.evaluation is None or job.evaluation.finite)


def _needs(jobs: Sequence[Job], view: _View, cores: Mapping[str, float], total: float) -> dict[str, float]:
    """The cores that deadlines and objectives take, earliest deadline first, as far as the node goes."""
    wanted = []
    for job in jobs:
        asked, claim, need = job.objectives, view.found.get(job.uid), 0.0
        deadline = math.inf if asked.deadline_at_seconds is None else asked.deadline_at_seconds
        left = deadline - view.snapshot.taken_at_seconds
        if claim is not None and claim.planned and 0 < left < math.inf:
            need = DEADLINE_MARGIN * claim.left / left
        if asked.qoe_seconds is not None and (speed := measured_speed(view.jobs[job.uid])) is not None:
            need = max(need, speed.limit_for(asked.qoe_seconds) or 0.0)
        if need > 0:
            wanted.append((deadline, job.uid, min(need, cores[job.uid])))
    needs, room = {}, total
    for _, uid, need in sorted(wanted):
        needs[uid] = min(need, room)
        room -= needs[uid]
    return needs


def _verdict(
    each: Forecast, place: int, ordered: Order, due_seconds: float, given: float, cores: float | None
) -> Verdict:
    """`cores`: what it has beyond its floor; None: no more than that."""
    works = {"90 % of its improvement": each.work_to(0.9), "99 % of its improvement": each.work_to(0.99)}
    name, work = next((one for one in works.items() if one[1] > 0), ("its end", each.left))
    away = f"{name} is {duration(work / cores) if cores else f'{work:.3g} core-s'} away"
    ahead = away if each.planned else f"{away}, without a plan"
    if cores and each.job.uid not in ordered.by_index:
        why = f"would end later than under fair sharing, {duration(max(0.0, due_seconds))} from now, if it waited"
        return Verdict(given, DUE, f"{DUE}: {why}")
    if cores:
        return Verdict(given, FIRST, f"{FIRST}: {ahead}")
    slack = ordered.slack_seconds[each.job.uid]
    can_wait = f"it can wait {duration(slack)}" if slack >= 0 else f"it is {duration(-slack)} behind fair sharing"
    return Verdict(given, WAITS, f"{WAITS}: {place} in order, {ahead}, and {can_wait}")
