"""Marginal value: CPU to the job whose next work is worth most, after those that would be late by fair sharing's ends.

Source: ours; shortest job first, Gittins' index and virtual fair sharing are its ancestors.

Value is what a job reaches of 90 % and of 99 % of its improvement, and its end, weighted by `favour`. A job's index is
the most value per core-second of the milestones ahead, by its curve and its planned steps (`forecast`, `curve`). A job
is due when it would end if all jobs, also those that have ended since, shared the cluster evenly (`fair_ends`). Jobs go
by index as long as all that are due sooner keep an interval of slack; the others after them, by when they are due. CPU
goes down the order, to each job up to what it can use. A job that cannot end in time with any less gets what fair
sharing would give it now, and not the node. Objectives and deadlines are served before all else (`nodes` has moves).
Where the best trial of a study is favoured, its trials exchange their places in that order (`studies`).

What is not stated elsewhere, and is our reading:

- Jobs that have ended go on in the virtual sharing until they would have ended there: what the order saved them is
  what the others had to wait, and without them every job that is left would be due sooner for it.
- Jobs with accelerators, where they are changed at all, keep their speed (`shared/accelerators.py`). Under `Raise` they
  get what no other job can use. Those without a loss come after those with one, the least need first.
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
from slopewise.model import ClusterSnapshot, Decisions, Job, JobMemory, MemoryState, Move, Node, NodeMemory
from slopewise.policies import PolicyParameters, Setting, parameter
from slopewise.policies.marginal.fair_ends import Order, down, expected_ends, fair_ends, order
from slopewise.policies.marginal.forecast import Forecast, Weights, forecasts, state_of
from slopewise.policies.marginal.nodes import moves, places
from slopewise.policies.marginal.studies import Studies, exchanged
from slopewise.policies.shared.accelerators import GpuJobs, gpu_jobs
from slopewise.policies.shared.node_passes import NodeDecision, Verdict, decide_by_node
from slopewise.policies.shared.shares import floor_ratio_parameter
from slopewise.policies.shared.silence import Silence, without_a_loss
from slopewise.text import duration

PURPOSE = "good and done sooner on average; fair sharing gives due times"
ACTIONS = ("resize", "place", "migrate")
READS_POINTS = True
DECIDES_ON = "reports"
IN_TURNS = True
ACCELERATORS = True
STUDIES = True

FAVOURS: Mapping[str, Weights] = {
    "balanced": (0.45, 0.10, 0.50),
    "quality": (0.65, 0.10, 0.30),
    "full": (0.35, 0.40, 0.25),
    "ends": (0.0, 0.0, 1.0),
}
"""Of ten jobs with plans on one node, `balanced` is .72 / .84 of fair sharing in mean completion and time to 90 %,
`ends` .63 / 1.35, `quality` .82 / .70: losses buy time to quality, the plan alone buys completion."""

FIRST, WAITS, DUE, OBJECTIVE = "first", "waits", "due", "objective"

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


class Policy:
    """The whole cluster at each pass; every node as it is due."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._parameters, self._setting = parameters, setting

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Decide on every node that is due, place arrivals, and move jobs to nodes that idle."""
        setting = self._setting
        gpus = gpu_jobs(snapshot, memory, setting)
        snapshot = gpus.snapshot
        silence = gpus.silence(_silence(snapshot))
        running = [job for job in sorted(snapshot.jobs, key=lambda job: job.uid) if not job.state.ended]
        claiming = [job for job in running if _claims(job, memory.jobs[job.uid], silence)]
        states = {
            job.uid: state
            for job in snapshot.jobs
            if (state := state_of(memory.jobs[job.uid].decided.state)) is not None
        }
        weights = FAVOURS[self._parameters.favour]
        found = forecasts(snapshot, memory, claiming, states, weights, setting.interval_seconds)
        remembered, due = fair_ends(snapshot, memory, states, found)
        studies = exchanged(snapshot, memory, found, due, best=setting.studies == "Best")
        decide_node = _Nodes(self._parameters, setting, snapshot, memory, studies, gpus).decide
        chosen: tuple[Move, ...] = (*places(snapshot, memory, studies.found), *moves(snapshot, memory, studies.found))
        decided = decide_by_node(
            "marginal", snapshot, remembered, setting.control, decide_node, chosen,
            silence=silence, reserves=True, longest_seconds=setting.interval_seconds,
        )  # fmt: skip
        return replace(decided, memory=replace(decided.memory, departed=remembered.departed))


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The decisions on the CPU of single nodes."""

    parameters: Parameters
    setting: Setting
    snapshot: ClusterSnapshot
    memory: MemoryState
    studies: Studies
    gpus: GpuJobs

    @property
    def found(self) -> Mapping[str, Forecast]:
        """Of the jobs with a loss to go by."""
        return self.studies.found

    @property
    def due(self) -> Mapping[str, float]:
        """Seconds from now until each job ends under fair sharing; infinite where its work is not known."""
        return self.studies.due

    @property
    def _reserve_seconds(self) -> float:
        return RESERVE_INTERVALS * self.setting.interval_seconds

    def decide(self, node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> NodeDecision:
        """Objectives and deadlines first, then down the order."""
        total, due, found = capacity_cores(node), self.due, self.found
        cores = {job.uid: min(total, useful_cores(job, node)) for job in jobs}
        ordered = order([found[uid] for uid in cores if uid in found], due, total, self._reserve_seconds)
        needs = self._needs(jobs, cores, total)
        kept = {job.uid: max(needs.get(job.uid, 0.0), job.least_cores) for job in jobs if job.least_cores is not None}
        floors = self._floors(cores, needs | kept, total)
        others = [uid for uid in cores if uid not in found]
        given = down(self._turns(jobs, ordered, others), floors, cores, total)
        given = self.gpus.with_idle(given, total)
        ends = expected_ends(ordered.jobs, due, self.studies.fair, cores, total, self.snapshot.taken_at_seconds)
        above = {uid for uid in given if given[uid] > 1.01 * floors[uid]}
        not_finite = f"{WAITS}: its loss is not finite, so it keeps the least"
        verdicts = {
            uid: self.gpus.verdict(uid, given[uid]) if uid in kept else Verdict(given[uid], WAITS, not_finite)
            for uid in others
        }
        for place, each in enumerate(ordered.jobs, start=1):
            uid = each.job.uid
            served = given[uid] if uid in above or len(jobs) == 1 else None
            listed, why = _reason(each, place, ordered, due[uid], served)
            if (trial := self.studies.trials.get(uid)) is not None and listed != DUE:
                why = trial.why(at_floor=not served)
            if uid in self.studies.shared:
                why = f"{why}; {self.studies.shared[uid]}"
            why, chance = f"{listed}: {why}{self.gpus.because(uid)}", None if trial is None else trial.chance
            verdicts[uid] = Verdict(given[uid], listed, why, ends=ends[uid], chance=chance)
        for uid, need in needs.items():
            if uid in others or uid not in above:
                why = f"{OBJECTIVE}: its objective or deadline needs {need:.3g} cores"
                verdicts[uid] = Verdict(given[uid], OBJECTIVE, why, ends=ends.get(uid))
        return NodeDecision(verdicts, self._until_next_evaluation(ordered.jobs[:1], given))

    def _turns(self, jobs: Sequence[Job], ordered: Order, others: Sequence[str]) -> list[str]:
        """Whose turn it is for CPU beyond the floors: by the order, then those without a loss whose GPUs wait."""
        turns = [each.job.uid for each in ordered.jobs]
        finite = {job.uid for job in jobs if job.evaluation is None or job.evaluation.finite}
        turns += self.gpus.by_need([uid for uid in others if uid in finite])
        if self.setting.accelerators == "Raise":
            turns.sort(key=self.gpus.needs.__contains__)
        return [*turns, *(uid for uid in others if uid not in turns)]

    def _needs(self, jobs: Sequence[Job], cores: Mapping[str, float], total: float) -> dict[str, float]:
        """The cores that deadlines and objectives take, earliest deadline first, as far as the node goes."""
        wanted = []
        for job in jobs:
            asked, claim, need = job.objectives, self.found.get(job.uid), 0.0
            deadline = math.inf if asked.deadline_at_seconds is None else asked.deadline_at_seconds
            left = deadline - self.snapshot.taken_at_seconds
            if claim is not None and claim.planned and 0 < left < math.inf:
                need = DEADLINE_MARGIN * claim.left / left
            if asked.qoe_seconds is not None and (speed := measured_speed(self.memory.jobs[job.uid])) is not None:
                need = max(need, speed.limit_for(asked.qoe_seconds) or 0.0)
            if need > 0:
                wanted.append((deadline, job.uid, min(need, cores[job.uid])))
        needs, room = {}, total
        for _, uid, need in sorted(wanted):
            needs[uid] = min(need, room)
            room -= needs[uid]
        return needs

    def _floors(self, cores: Mapping[str, float], needs: Mapping[str, float], total: float) -> dict[str, float]:
        """What each job gets at least; what objectives take is never scaled down with the rest."""
        even = total / max(1, len(cores))
        least = self.parameters.floor_ratio * even
        if self.setting.control == "limits":
            least = min(least, LIMITS_FLOOR_CORES)
        found, due, reserve = self.found, self.due, self._reserve_seconds
        last = {uid for uid in cores if uid in found and found[uid].sure_left / cores[uid] > due[uid] - reserve}
        floors = {uid: min(even if uid in last else least, most) for uid, most in cores.items()}
        beside = math.fsum(floor for uid, floor in floors.items() if uid not in needs)
        room = max(0.0, total - math.fsum(max(need, floors[uid]) for uid, need in needs.items()))
        scale = room / beside if beside > room else 1.0
        return {uid: max(needs[uid], floor) if uid in needs else floor * scale for uid, floor in floors.items()}

    def _until_next_evaluation(self, first: Sequence[Forecast], given: Mapping[str, float]) -> float:
        """Until the first in the order reaches its next milestone, but at least once an interval."""
        least, most = max(MIN_EVALUATION_SECONDS, self.snapshot.scrape_interval_seconds), self.setting.interval_seconds
        for each in first:
            if (cores := given[each.job.uid]) > 0 and (work := each.next_milestone()[1]) > 0:
                return min(most, max(least, work / cores))
        return most


def _silence(snapshot: ClusterSnapshot) -> Silence:
    """A job is silent that reports no loss, unless its objective can be served without one."""
    no_loss = without_a_loss(snapshot)

    def silence(job: Job, known: JobMemory) -> str | None:
        asked, speed = job.objectives.qoe_seconds, measured_speed(known)
        served = asked is not None and speed is not None and speed.limit_for(asked) is not None
        return None if served else no_loss(job, known)

    return silence


def _claims(job: Job, known: JobMemory, silence: Silence) -> bool:
    """Whether it has a loss to go by."""
    levels, now = known.levels, job.evaluation
    # Without an anchor another process has begun since, and has reported nothing yet.
    finite = now.finite if now is not None else levels.finite or levels.anchor is None
    return finite and levels.first is not None and silence(job, known) is None


def _reason(each: Forecast, place: int, ordered: Order, due_seconds: float, cores: float | None) -> tuple[str, str]:
    """Its class and why; `cores`: what it has beyond its floor; None: no more than that."""
    name, work = each.next_milestone()
    away = f"{name} is {duration(work / cores) if cores else f'{work:.3g} core-s'} away"
    ahead = away if each.planned else f"{away}, without a plan"
    if not cores:
        slack = ordered.slack_seconds[each.job.uid]
        can_wait = f"it can wait {duration(slack)}" if slack >= 0 else f"it is {duration(-slack)} behind fair sharing"
        return WAITS, f"{place} in order, {ahead}, and {can_wait}"
    if each.job.uid in ordered.by_index:
        return FIRST, ahead
    return DUE, f"would end later than under fair sharing, {duration(max(0.0, due_seconds))} from now, if it waited"
