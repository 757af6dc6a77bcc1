"""Deadline: CPU and nodes so that as many trainings as possible end before their deadlines.

Source: the aim is that of Xing et al., "A QoS-oriented Scheduling and Autoscaling Framework for Deep Learning" (IJCNN
2019), of which only the abstract is at hand; the rule is earliest deadline first, and of what does not fit the longest
is late (Moore and Hodgson). Users state a deadline and nothing else; steps left and seconds a step are measured. Three
parts, each of which can be switched off:

- placement: arriving jobs, least time left first, go to the node with the least free CPU that still fits the CPU with
  which they end in time, within `gamma` of the time left and `endingScrapes` before the deadline. Free is what the
  needs of its jobs leave. What fits nowhere goes where most is free (`shared/need_placement.py`).
- moves (ours): a job that was neither guaranteed nor hopeless at `missedEvaluations` in a row goes to a node where its
  need fits, the time of the move counted (`shared/need_policy.py`).
- autoscaling, per node: jobs whose work, and that of all due before them, fits before their deadlines are `guaranteed`
  that. Where it does not fit, the one with most work is `best-effort`. Jobs that would be late even alone on the
  largest node are `hopeless`, which is reported at once. CPU goes down the order of deadlines, late jobs last.

Worked example: on one core 50 CPU-seconds due in 100 s, 120 in 150 s and 90 in 160 s. The first two need 170 by 150 s:
the second is late. The third ends after 140 s.

Our readings, where nothing is said:

- Before its steps are timed a newcomer has an even share C/n: it is `profiling`.
- Jobs without a deadline share what the needs of the guaranteed ones leave, up to an even share; and what nobody else
  can use. On arrival they go where most is left for them.
- A job that reports nothing, neither steps nor a loss, keeps its original CPU; the others have what that leaves.
- A job that is feasible, but not within `gamma`, is served as if it were; so its work counts until its deadline.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slopewise.allocation import down_an_order
from slopewise.estimators.speed import steps_left
from slopewise.model import (
    Arrival,
    ClusterSnapshot,
    Decisions,
    Job,
    JobMemory,
    MemoryState,
    Node,
    NodeMemory,
    Objectives,
)
from slopewise.policies import parameter
from slopewise.policies.shared.need_placement import Need, NodeRoom
from slopewise.policies.shared.need_policy import (
    ROUNDING,
    At,
    NeedCase,
    NeedParameters,
    NeedPolicy,
    missed_evaluations_parameter,
    moves_parameter,
    placement_parameter,
)
from slopewise.policies.shared.node_passes import NodeDecision, Verdict
from slopewise.policies.shared.shares import floor_ratio_parameter, speed, useful_cores
from slopewise.text import duration

PURPOSE = "trainings that must be done by a stated time"
ACTIONS = ("resize", "place", "migrate")
DECIDES_ON = "reports"

GUARANTEED, BEST_EFFORT, HOPELESS, PROFILING = "guaranteed", "best-effort", "hopeless", "profiling"

MORE_THAN_SEEN_RATIO = 1.25
"""A job that does not say what it can use may use a quarter more than it ever did: it shows at the next evaluation."""


class Parameters(NeedParameters):
    """Which parts run, and how careful they are."""

    placement: bool = placement_parameter(source="IJCNN 2019")
    moves: bool = moves_parameter("deadline")
    missed_evaluations: int = missed_evaluations_parameter("deadline")
    autoscaling: bool = parameter(
        True, unit="true or false", source="IJCNN 2019", description="change the CPU of running jobs"
    )
    gamma: float = parameter(
        0.9,
        gt=0,
        le=1,
        unit="ratio of the time left",
        source="reconstruction",
        description="a job is to end within this part of the time it has left",
    )
    ending_scrapes: float = parameter(
        2.0,
        ge=0,
        le=100,
        unit="scrapes",
        source="ours",
        description="a job's last step is to be done so long before its deadline: its steps are known a scrape late, "
        "and it goes on being scraped after the last",
    )
    floor_ratio: float = floor_ratio_parameter(description="what every job has at least")


@dataclass(slots=True)
class _Case(NeedCase):
    """One job and its deadline; without one its time is infinite."""

    because: str = "no deadline stated"
    usable_cores: float = 0.0
    """What it seems able to use; less than `useful_cores` only where the job itself does not say."""
    left_seconds: float = math.inf
    within_seconds: float = math.inf
    """In which it is to end: what is left, less the reserves."""
    work_cpu_seconds: float = 0.0
    """What it takes to its end with all that it can use here."""

    @property
    def is_free(self) -> bool:
        """Whether it has no deadline."""
        return self.left_seconds == math.inf

    @property
    def time_seconds(self) -> float:
        """The time for its work: all that is left where it cannot end within the reserves."""
        fits = self.work_cpu_seconds <= self.useful_cores * self.within_seconds
        return self.within_seconds if fits else self.left_seconds


class Policy(NeedPolicy[Parameters, _Case]):
    """Placement by need, and CPU by deadline."""

    NAME, OBJECTIVE = "deadline", "deadline"

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """As the class says; without autoscaling jobs that were resized before are restored."""
        if not self._parameters.autoscaling:
            resized = {uid: known for uid, known in memory.jobs.items() if known.decided.wanted_cores is not None}
            memory = memory.with_jobs({uid: known.with_decided(wanted_cores=None) for uid, known in resized.items()})
        return super().decide(snapshot, memory)

    def _assess(self, job: Job, known: JobMemory, node: Node, had_cores: float, at: At) -> _Case:
        useful, deadline = useful_cores(job, node), job.objectives.deadline_at_seconds
        one = _Case(job, known, useful, BEST_EFFORT, usable_cores=_usable_cores(job, known, useful))
        if deadline is None:
            return one
        left = one.left_seconds = deadline - at.now_seconds
        todo, found = steps_left(job), speed(known, had_cores)
        if left <= 0:
            one.listed, one.because = HOPELESS, f"{job.name}'s deadline passed {duration(abs(left))} ago"
        elif todo is None or found is None:
            one.listed, one.because = PROFILING, f"{duration(left)} left, steps not timed yet"
        elif todo <= 0:
            one.listed, one.because = PROFILING, f"{duration(left)} left, all planned steps are done"
        else:
            here, alone = (todo * found.seconds_at(cores) for cores in (useful, useful_cores(job, at.largest)))
            one.within_seconds, one.work_cpu_seconds = self._within_seconds(left, at), here * useful
            one.because = f"{todo:.0f} steps and {duration(left)} left"
            if alone > left * (1 + ROUNDING):
                one.listed = HOPELESS
                one.because += f", {job.name} takes {duration(alone)} even alone on the largest node"
            elif here > left * (1 + ROUNDING):
                one.because += f", takes {duration(here)} with all that it can use here"
            else:
                one.needs_cores = min(found.limit_for(one.within_seconds / todo) or useful, useful)
                one.because += f", needs {one.needs_cores:.3g} cores"
        return one

    def _within_seconds(self, left_seconds: float, at: At) -> float:
        """What is left until a deadline, less the reserves."""
        ending_seconds = self._parameters.ending_scrapes * at.scrape_interval_seconds
        return max(0.0, min(self._parameters.gamma * left_seconds, left_seconds - ending_seconds))

    def _divide(self, node: Node, cases: Sequence[_Case]) -> None:
        capacity, even = node.cpu_cores, node.cpu_cores / max(1, len(cases))
        floor = self._parameters.floor_ratio * even
        everyone = sorted(range(len(cases)), key=lambda i: (cases[i].left_seconds, cases[i].job.uid))
        useful = {i: cases[i].useful_cores for i in everyone}
        usable = {i: cases[i].usable_cores for i in everyone}
        limits = {i: min(floor, useful[i]) for i in everyone}
        kept, urgent = _in_time(cases, everyone, capacity - math.fsum(limits.values()) + floor)
        for i in everyone:
            cases[i].is_kept = i in kept
            if cases[i].is_kept:
                cases[i].listed = GUARANTEED
            elif cases[i].needs_cores is not None:
                cases[i].because += " and other deadlines leave too little"
        needs = {i: cases[i].needs_cores or 0.0 for i in kept}
        untimed = [i for i in everyone if cases[i].listed == PROFILING]
        free = [i for i in everyone if cases[i].is_free]
        hopeless = [i for i in everyone if cases[i].listed == HOPELESS]
        late = [i for i in everyone if i not in {*kept, *untimed, *free, *hopeless}]
        evenly = {i: min(even, useful[i]) for i in (*untimed, *free)}
        limits = down_an_order(limits, [untimed], evenly, capacity)
        limits = down_an_order(limits, [[i] for i in urgent], needs, capacity)
        reserved = math.fsum(max(0.0, cores - limits[i]) for i, cores in needs.items())
        limits = down_an_order(limits, [free], evenly, capacity - reserved)
        order = [*([i] for i in (*kept, *late)), [*untimed, *free, *hopeless], everyone]
        limits = down_an_order(limits, order, usable, capacity)
        for i, cores in down_an_order(limits, [everyone], useful, capacity).items():
            cases[i].limit_cores = cores

    def _verdicts(
        self, node: Node, cases: Sequence[_Case], last: NodeMemory | None, now_seconds: float
    ) -> NodeDecision:
        verdicts = {}
        for one in cases:
            limit, alone = (one.limit_cores, "") if self._parameters.autoscaling else (None, ", unchanged")
            unmet = one.listed == BEST_EFFORT and one.work_cpu_seconds > 0
            verdicts[one.job.uid] = Verdict(limit, one.listed, f"{one.listed}: {one.because}{alone}", unmet=unmet)
        return NodeDecision(verdicts, self._setting.interval_seconds)

    def _room(self, node: Node, cases: Iterable[_Case]) -> NodeRoom:
        room = NodeRoom(node.cpu_cores, evenly=not self._parameters.autoscaling)
        for one in cases:
            room.add(one.usable_cores if room.evenly or one.listed == PROFILING else one.needs_cores)
        return room

    def _is_asked(self, objectives: Objectives) -> bool:
        return objectives.deadline_at_seconds is not None

    def _asked_seconds(self, arrival: Arrival, known: JobMemory, at: At) -> float | None:
        deadline, anchor = arrival.objectives.deadline_at_seconds, known.timing.anchor
        if deadline is None or arrival.steps_planned is None or anchor is None:
            return None
        todo = arrival.steps_planned - anchor.done_total
        within = self._within_seconds(deadline - at.now_seconds, at)
        return within / todo if todo > 0 and within > 0 else None

    def _turn(self, arrival: Arrival, need: Need | None) -> float:
        """Before its steps are timed, all that is known of it is when it must have ended."""
        deadline = arrival.objectives.deadline_at_seconds
        return math.inf if deadline is None else deadline


def _in_time(cases: Sequence[_Case], order: Sequence[int], capacity_cores: float) -> tuple[list[int], list[int]]:
    """As many as can all end in time, in order of deadline; and those of them that cannot wait for those before.

    One that can is in time after all that is due before. On many cores one of one thread may be late then, though its
    work fits; it is kept if its need fits beside the needs of those before. Of those that do not fit the longest is
    late.
    """
    kept: list[int] = []
    urgent: set[int] = set()
    for place in order:
        one, needs = cases[place], cases[place].needs_cores
        if needs is None:
            continue
        time = one.time_seconds * (1 + ROUNDING)
        waits = math.fsum(cases[i].work_cpu_seconds for i in kept) / capacity_cores
        beside = math.fsum(cases[i].needs_cores or 0.0 for i in kept)
        kept.append(place)
        if waits + one.work_cpu_seconds / min(one.useful_cores, capacity_cores) <= time:
            continue
        urgent.add(place)
        if beside + needs > capacity_cores * (1 + ROUNDING):
            kept.remove(max(kept, key=lambda i: (cases[i].work_cpu_seconds, i)))
    return kept, [i for i in kept if i in urgent]


def _usable_cores(job: Job, known: JobMemory, useful: float) -> float:
    if job.useful_parallelism_cores is not None:
        return useful
    most = max((each.cores for each in known.paces if each.cores is not None), default=0.0)
    return min(useful, max(1.0, MORE_THAN_SEEN_RATIO * most))
