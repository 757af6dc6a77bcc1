"""Marginal value: CPU first to the job whose next work is worth most, while no job ends later than under fair sharing.

Source: ours; SRPT, Gittins' index and virtual fair-sharing clusters are its ancestors.

Value is what a job reaches of 90 % and of 99 % of its improvement, and its end, weighted by `favour`. A job's index is
the most value per core-second of any next piece of its work, by its curve, which is fitted to its raw points, and its
planned steps. Jobs are ordered by index as long as all of them are ahead of their ends in eight virtual clusters under
fair sharing; a job that would fall behind goes first. CPU goes down the order, to each job up to what it can use.

What is not stated elsewhere, and is our reading:

- A job without a plan is expected to need what jobs of its class have needed, as far as those are alike, else what its
  curve says. Its guarantee is the same, to the end of the 20 % quantile of its work. Where jobs have ended later than
  under fair sharing, those estimates were wrong: then a job that has had too little service gets an even share.
- A job with a deadline, or an objective that was timed, is given what that needs before all else, earliest deadline
  first, as far as the node goes.
- Arriving jobs go where the milestones of all jobs are delayed least. A job moves only to a node that idles.
- A job that reports no loss, for instance because it has only begun, keeps its original CPU.
- The floor is no lower than what `behaviour` can take back within two intervals.
- Contention is in the CPU-seconds that are counted, of fair sharing as of this; so none is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from slopewise.allocation import capacity_cores
from slopewise.estimators.speed import measured_speed
from slopewise.model import ClusterSnapshot, Decisions, Ends, Job, JobMemory, MemoryState, Node, NodeMemory
from slopewise.policies import PolicyParameters, Setting, parameter
from slopewise.policies.shared import marginal_unplanned
from slopewise.policies.shared.guarantees import Guarantees, guarantees
from slopewise.policies.shared.marginal_index import FAVOURS, UNPLANNED, planned_indices
from slopewise.policies.shared.marginal_moves import loads, moves, places
from slopewise.policies.shared.marginal_order import Order, expected_ends, handed_down, order
from slopewise.policies.shared.node_passes import NodeDecision, Verdict, decide_by_node
from slopewise.policies.shared.prospects import Prospect, Prospects, prospects
from slopewise.policies.shared.shares import floor_ratio_parameter, useful_cores
from slopewise.policies.shared.silence import silent_jobs, without_a_loss
from slopewise.policies.shared.work_priors import priors

PURPOSE = "good and done sooner, none much later than under fair sharing"
ACTIONS = ("resize", "place", "migrate")
READS_POINTS = True
IN_TURNS = True

FIRST, WAITS, DUE, LAGS, PROMISED = "first", "waits", "due", "lags", "promised"

MIN_LOOK_SECONDS = 5.0
"""Between two evaluations."""

LAG_ENDS_RATIO = 1.1
"""A lag ends at so much more of the service than that at which it begins."""

KEEP_RATIO = 1.5
"""A job without a plan that has the node keeps it unless another's index is so much larger."""

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
    """What one decision is made from."""

    snapshot: ClusterSnapshot
    memory: MemoryState
    expected: Prospects
    promised: Guarantees
    ends: dict[str, Ends]
    """Filled in by the decisions on the nodes that are due."""


class Policy:
    """The whole cluster at each pass; every node as it is due."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._parameters = parameters
        self._setting = setting
        self._weights = FAVOURS[parameters.favour]

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Decide on every node that is due, place arrivals, and move jobs to nodes that idle."""
        expected = self._expected(snapshot, memory)
        promised = guarantees(snapshot, memory, expected)
        fitted = {
            uid: promised.memory.jobs[uid].altered(curve=each.fit)
            for uid, each in expected.by_uid.items()
            if each.fit is not memory.jobs[uid].curve
        }
        remembered = replace(promised.memory, jobs={**promised.memory.jobs, **fitted})
        view = _View(snapshot, memory, expected, promised, {})
        found = loads(snapshot, expected, self._weights)
        placed = places(snapshot, memory, expected, self._weights, found)
        moved = moves(snapshot, memory, expected, found)

        def decide_node(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> NodeDecision:
            return self._decide_node(node, jobs, view)

        decided = decide_by_node(
            "marginal", snapshot, remembered, self._setting.control, decide_node, (*placed, *moved), reserves=True
        )
        jobs = {**decided.memory.jobs}
        for uid, at in view.ends.items():
            jobs[uid] = jobs[uid].altered(ends=at)
        return replace(decided, memory=replace(decided.memory, jobs=jobs, departed=remembered.departed))

    def _expected(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Prospects:
        """Work, curve and index of each running job that reports a loss."""
        running = sorted((job for job in snapshot.jobs if not job.state.ended), key=lambda job: job.uid)
        silent = silent_jobs(running, memory.jobs, without_a_loss(snapshot))
        reporting = [job for job in running if job.uid not in silent]
        granted = {uid: known.wanted_cores or 0.0 for uid, known in memory.jobs.items()}
        found = prospects(snapshot, memory, reporting, granted)
        planned = [each for each in found.by_uid.values() if each.planned]
        dropped = [(points := memory.jobs[each.job.uid].points) is not None and points.dropped for each in planned]
        for each, index in zip(
            planned, planned_indices(planned, dropped, self._weights, found.median_work).tolist(), strict=True
        ):
            each.index = index
        unplanned = [each for each in found.by_uid.values() if not each.planned]
        unit = snapshot.scrape_interval_seconds
        marginal_unplanned.look_ahead(unplanned, priors(memory.classes, unit), UNPLANNED[self._parameters.favour])
        for each in unplanned:
            if memory.jobs[each.job.uid].job_class == FIRST:
                each.index *= KEEP_RATIO
        return found

    def _decide_node(self, node: Node, jobs: Sequence[Job], view: _View) -> NodeDecision:
        if not jobs:
            return NodeDecision({}, self._setting.interval_seconds)
        now = view.snapshot.taken_at_seconds
        capacity = capacity_cores(node)
        cores = {job.uid: min(capacity, useful_cores(job, node)) for job in jobs}
        found = [view.expected.by_uid[job.uid] for job in jobs]
        due = {job.uid: view.promised.due_at_seconds.get(job.uid, now) - now for job in jobs}
        ordered = order(found, due, cores, capacity, self._setting.interval_seconds / 2)
        lagging = frozenset(each.job.uid for each in found if not each.planned and self._lags(each, view))
        by_uid = {each.job.uid: each for each in found}
        view.ends.update(expected_ends(ordered.uids, by_uid, cores, capacity, now))
        needs = self._needs(found, view, cores, capacity)
        floors = self._floors(found, lagging, needs, capacity)
        given = handed_down(ordered.uids, floors, cores, capacity)
        verdicts = {each.job.uid: self._verdict(each, ordered, given, floors, lagging, needs, due) for each in found}
        first = view.expected.by_uid[ordered.uids[0]]
        return NodeDecision(verdicts, self._until_next_look(first, given[first.job.uid], view.snapshot))

    def _lags(self, each: Prospect, view: _View) -> bool:
        """Whether a job without a plan has had so little that the errors of earlier estimates forbid less."""
        begins = view.promised.least_service_ratio
        lagged = view.memory.jobs[each.job.uid].job_class == LAGS
        ratio = min(1.0, LAG_ENDS_RATIO * begins) if lagged else begins
        unit = view.snapshot.scrape_interval_seconds
        return each.done < ratio * view.promised.service.get(each.job.uid, 0.0) - unit

    def _needs(
        self, found: Sequence[Prospect], view: _View, cores: Mapping[str, float], capacity: float
    ) -> dict[str, float]:
        """The cores that deadlines and objectives take, earliest deadline first, as far as the node goes."""
        wanted = []
        for each in found:
            uid, need = each.job.uid, _promise_cores(each, view.memory.jobs[each.job.uid], view.snapshot)
            if need > 0:
                deadline = each.job.objectives.deadline_at_seconds
                wanted.append((math.inf if deadline is None else deadline, uid, min(need, cores[uid])))
        needs, left = {}, capacity
        for _, uid, need in sorted(wanted):
            needs[uid] = min(need, left)
            left -= needs[uid]
        return needs

    def _floors(
        self, found: Sequence[Prospect], lagging: frozenset[str], needs: Mapping[str, float], capacity: float
    ) -> dict[str, float]:
        """What each job gets at least; promised CPU is never scaled down with the rest."""
        even = capacity / len(found)
        ratio = max(self._parameters.floor_ratio, self._setting.squeeze_ratio)
        floors = {}
        for each in found:
            uid = each.job.uid
            if uid in lagging:
                floors[uid] = even
            else:
                least = ratio * even
                floors[uid] = min(least, LIMITS_FLOOR_CORES) if self._squeezes_hard else least
        others = math.fsum(each for uid, each in floors.items() if uid not in needs)
        room = max(0.0, capacity - math.fsum(max(needs[uid], floors[uid]) for uid in needs))
        if others > room:
            floors = {uid: each * room / others if uid not in needs else each for uid, each in floors.items()}
        return {uid: max(each, needs.get(uid, 0.0)) for uid, each in floors.items()}

    @property
    def _squeezes_hard(self) -> bool:
        return self._setting.control == "limits" and self._setting.squeeze_ratio <= self._parameters.floor_ratio

    def _until_next_look(self, first: Prospect, cores: float, snapshot: ClusterSnapshot) -> float:
        """Until the first in the order reaches its next milestone, but at least once an interval."""
        works = [first.work_to(0.925), first.work_to(0.995), first.left] if first.planned else []
        seconds = min((work / cores for work in works if work > 0), default=math.inf) if cores > 0 else math.inf
        least = max(MIN_LOOK_SECONDS, snapshot.scrape_interval_seconds)
        return min(self._setting.interval_seconds, max(least, seconds))

    def _verdict(
        self,
        each: Prospect,
        ordered: Order,
        given: Mapping[str, float],
        floors: Mapping[str, float],
        lagging: frozenset[str],
        needs: Mapping[str, float],
        due: Mapping[str, float],
    ) -> Verdict:
        uid, place = each.job.uid, ordered.uids.index(each.job.uid) + 1
        gets_more = given[uid] > 1.01 * floors[uid] or len(ordered.uids) == 1
        ahead = _milestone(each, given[uid] if gets_more else None)
        least = ordered.least_slack_beside(uid)
        if uid in needs and not gets_more:
            listed, why = PROMISED, f"its promise needs {needs[uid]:.3g} cores"
        elif uid in lagging:
            listed, why = LAGS, "has had less than fair sharing would have given, and gets an even share"
        elif uid not in ordered.admissible and gets_more:
            listed, why = (
                DUE,
                f"would end after its end under fair sharing, which is {_time(due[uid])} away, if it waited",
            )
        elif gets_more:
            after = ahead if uid != ordered.critical else f"{ahead}; it has longer left than all others together"
            listed, why = FIRST, f"{after}{_of_others(least)}"
        else:
            listed, why = WAITS, f"{place} in order, {ahead}{_of_itself(ordered.slack_seconds[uid])}"
        return Verdict(given[uid], listed, f"{listed}: {why}")


def _promise_cores(each: Prospect, known: JobMemory, snapshot: ClusterSnapshot) -> float:
    """What the job's deadline and objective take from now on, in cores; 0: it has none, or nothing is known."""
    asked, need = each.job.objectives, 0.0
    if asked.deadline_at_seconds is not None and each.planned:
        left = asked.deadline_at_seconds - snapshot.taken_at_seconds
        if left > 0:
            need = max(0.0, each.high - each.done) / left
    if asked.qoe_seconds is not None and (speed := measured_speed(known)) is not None:
        need = max(need, speed.limit_for(asked.qoe_seconds) or 0.0)
    return need


def _milestone(each: Prospect, cores: float | None) -> str:
    """The job's next milestone: in seconds with these cores, else in core-seconds of work."""
    if not each.planned:
        return f"no plan, its end is {each.low_left:.3g} to {each.high_left:.3g} core-s away"
    works = {"90 % of its improvement": each.work_to(0.9), "99 % of its improvement": each.work_to(0.99)}
    name, work = next((one for one in works.items() if one[1] > 0), ("its end", each.left))
    return f"{name} is {_time(work / cores) if cores else f'{work:.3g} core-s'} away"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if abs(seconds) < 180 else f"{seconds / 60:.0f} min"


def _of_others(slack: float) -> str:
    if not math.isfinite(slack):
        return ""
    if slack < 0:
        return f", another job ends {_time(-slack)} after fair sharing would have ended it"
    return f", every other job still ends {_time(slack)} before fair sharing would have ended it"


def _of_itself(slack: float) -> str:
    if not math.isfinite(slack):
        return ""
    if slack < 0:
        return f", and it ends {_time(-slack)} after fair sharing would have ended it"
    return f", and it can wait {_time(slack)} and still end before fair sharing would have ended it"
