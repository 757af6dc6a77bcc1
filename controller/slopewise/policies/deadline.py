"""Deadline: CPU and nodes so that as many trainings as possible end before their deadlines.

Source: Xing et al., "A QoS-oriented Scheduling and Autoscaling Framework for Deep Learning" (IJCNN 2019), of which
only the abstract is at hand: this is a reconstruction, not the paper's own text. Users state a deadline and nothing
else; steps left and seconds a step are measured, and give the CPU c_req with which a job ends in time, within `gamma`
of the time it has left and `endingScrapes` before its deadline. Three parts, each of which can be switched off:

- placement: arriving jobs, least time left first, go to the node with the least free CPU that still fits them. Free is
  what the needs of its jobs leave. What fits nowhere goes where most is free (`shared/need_placement.py`).
- moves (ours): a job that was neither guaranteed nor hopeless at `missedEvaluations` in a row goes to a node where its
  need fits, the time of the move counted (`shared/promise_moves.py`).
- autoscaling, per node: jobs are admitted in order of deadline, as ElasticFlow does (`shared/reservations.py`). Those
  whose needs fit beside the ones before are `guaranteed` them. The others are `best-effort`, least slack first. Those
  that would be late even alone on the largest node are `hopeless`: reported at once, with what the others leave, above
  a floor.

All CPU is handed out, as far as jobs can use it: what guarantees leave goes to best effort and to newcomers first.

Worked example, without reserves (gamma 1, no scrapes), one thread: 900 steps of 1 CPU-second in 1000 s need 0.9 cores;
of 2 CPU-seconds: hopeless.

Our readings, where nothing is said:

- Before its steps are timed a newcomer wants what it can use (one core where it does not say) where that is free, for
  `profilingSeconds`, and an even share C/n at least, until it is timed: it is `profiling`.
- Jobs without a deadline are best effort after those with one. On arrival they go where most is left for them.
- A job that reports nothing, neither steps nor a loss, keeps its original CPU; the others have what that leaves.
- Needs that do not fit all at once still fit where they can wait for earlier jobs to end: 50 CPU-seconds due in 100 s
  and 100 due in 150 s are both guaranteed on one core. A job that is feasible, but not within `gamma`, is so as well.
- Limits change at once when the set of jobs changes, a newcomer is timed, or a guaranteed job needs more than it has,
  beyond the hysteresis; otherwise only when two evaluations in a row want a change beyond it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

from slopewise.allocation import capacity_cores, promisable
from slopewise.model import (
    Arrival,
    ClusterSnapshot,
    CpuControl,
    Decisions,
    Job,
    JobMemory,
    MemoryState,
    Migrate,
    Node,
    NodeMemory,
    Place,
)
from slopewise.policies import PolicyParameters, Setting, parameter
from slopewise.policies.shared.deadlines import (
    BEST_EFFORT,
    PROFILING,
    DeadlineCase,
    DeadlineContext,
    admit,
    arrival_needs_cores,
    assess,
    hand_out,
)
from slopewise.policies.shared.need_placement import Need, NodeRoom, Rooms, need_on, place_by_need
from slopewise.policies.shared.node_passes import NodeDecision, Verdict, decide_by_node
from slopewise.policies.shared.pace_models import had_cores
from slopewise.policies.shared.promise_moves import moves_for_promises
from slopewise.policies.shared.promise_parameters import (
    missed_evaluations_parameter,
    moves_parameter,
    placement_parameter,
)
from slopewise.policies.shared.silence import JobsOfNode, Silence, without_a_report

PURPOSE = "trainings that must be done by a stated time"
ACTIONS = ("resize", "place", "migrate")
DECIDES_ON = "reports"

EVALUATIONS_IN_A_ROW = 2
"""The cool-down: a single evaluation may be noise."""

_ROUNDING = 1e-9


class Parameters(PolicyParameters):
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
        description="a job is given so much CPU that it ends within this part of the time it has left",
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
    hysteresis_ratio: float = parameter(
        0.1,
        ge=0,
        lt=1,
        unit="ratio of a limit",
        source="reconstruction",
        description="smaller changes of limits are not made, nor is one that a single evaluation wants",
    )
    profiling_seconds: float = parameter(
        30.0,
        ge=0,
        le=86_400,
        unit="s",
        source="reconstruction",
        description="for how long a newcomer that is not timed yet comes first for what is free",
    )
    floor_ratio: float = parameter(
        0.05,
        gt=0,
        le=1,
        unit="ratio of an even share, node / jobs",
        source="ours",
        description="what every job has at least",
    )


class _Cases:
    """The standings of a node's jobs, in order of uid; worked out when first asked for, as placing and looking do."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        memory: MemoryState,
        parameters: Parameters,
        control: CpuControl,
        silence: Silence,
    ) -> None:
        largest = max(map(promisable, snapshot.nodes), key=lambda node: node.cpu_cores)
        ending = parameters.ending_scrapes * snapshot.scrape_interval_seconds
        now = snapshot.taken_at_seconds
        self.at = DeadlineContext(now, largest, parameters.gamma, ending, parameters.profiling_seconds)
        self._floor_ratio = parameters.floor_ratio
        self._control = control
        self._jobs_on = snapshot.jobs_by_node()
        self.nodes = {node.name: node for node in snapshot.nodes}
        self._memory = memory
        self._silence = silence
        self._known: dict[str, tuple[Node, list[DeadlineCase]]] = {}

    def on(self, name: str) -> tuple[Node, list[DeadlineCase]]:
        """A node without what its silent jobs keep; all others there, and who of them is guaranteed what."""
        if name not in self._known:
            here = JobsOfNode.of(self._jobs_on[name], self._memory.jobs, self._silence)
            left = here.left_on(self.nodes[name], self._memory.jobs, self._control, reserves=True)
            jobs = here.reporting
            had = had_cores(jobs, left, self._control)
            cases = [
                assess(job, self._memory.jobs[job.uid], left, cores, self.at)
                for job, cores in zip(jobs, had, strict=True)
            ]
            admit(cases, left.cpu_cores, self._floor_ratio)
            self._known[name] = (left, cases)
        return self._known[name]


class Policy:
    """Placement by need, and limits by deadline."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._parameters = parameters
        self._setting = setting

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Place what arrives, then decide on every node that is due."""
        if not snapshot.nodes:
            return Decisions("deadline", (), {}, MemoryState(memory.jobs))
        silence = without_a_report(snapshot)
        cases = _Cases(snapshot, memory, self._parameters, self._setting.control, silence)

        def decide_node(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> NodeDecision:
            return self._decide_node(*cases.on(node.name), last)

        rooms = cache(partial(self._rooms, cases))
        placed = self._placed(snapshot, memory, rooms, cases.at)
        decisions = decide_by_node(
            "deadline",
            snapshot,
            memory,
            self._setting.control,
            decide_node,
            placed,
            silence=silence,
            reserves=True,
        )
        moves = self._moves(snapshot, decisions.memory, rooms, cases)
        return replace(decisions, moves=(*decisions.moves, *moves))

    def _rooms(self, cases: _Cases) -> dict[str, NodeRoom]:
        evenly = not self._parameters.autoscaling
        return {name: _room(*cases.on(name), evenly=evenly) for name in cases.nodes}

    def _placed(
        self, snapshot: ClusterSnapshot, memory: MemoryState, rooms: Rooms, at: DeadlineContext
    ) -> tuple[Place, ...]:
        """The nodes of arriving jobs."""
        if not (self._parameters.placement and snapshot.waiting):
            return ()

        def need_of(arrival: Arrival, node: Node) -> Need | None:
            if arrival.objectives.deadline_at_seconds is None:
                return None

            def measured_cores(known: JobMemory, wanted: float) -> float | None:
                return arrival_needs_cores(arrival, known, wanted, at)

            return need_on(node, arrival, memory, measured_cores)

        return place_by_need(snapshot, memory, rooms(), need_of, _time_left_until, promise="deadline")

    def _moves(
        self, snapshot: ClusterSnapshot, memory: MemoryState, rooms: Rooms, cases: _Cases
    ) -> tuple[Migrate, ...]:
        """The jobs that leave nodes on which they would be late."""
        if not self._parameters.moves:
            return ()

        def need_there(job: Job, known: JobMemory, node: Node, away_seconds: float) -> float | None:
            had = min(capacity_cores(node), known.wanted_cores or node.cpu_cores)
            later = replace(cases.at, now_seconds=cases.at.now_seconds + away_seconds)
            return assess(job, known, promisable(node), had, later).needs_cores

        evaluations = self._parameters.missed_evaluations
        return moves_for_promises(snapshot, memory, rooms, need_there, promise="deadline", evaluations=evaluations)

    def _decide_node(self, node: Node, cases: Sequence[DeadlineCase], last: NodeMemory | None) -> NodeDecision:
        if self._parameters.autoscaling:
            limits, streaks = self._limits(node, cases, last)
        else:
            limits, streaks = [None] * len(cases), [0] * len(cases)
        verdicts = {}
        for one, limit, streak in zip(cases, limits, streaks, strict=True):
            alone = ", unchanged" if limit is None else ""
            reason = f"{one.listed}: {one.because}{alone}"
            verdicts[one.job.uid] = Verdict(limit, one.listed, reason, streak=streak, unmet=_is_unmet(one))
        return NodeDecision(verdicts, self._setting.interval_seconds)

    def _limits(
        self, node: Node, cases: Sequence[DeadlineCase], last: NodeMemory | None
    ) -> tuple[Sequence[float | None], Sequence[int]]:
        """Limits in cores and streaks: those that are due now, or those that the jobs have, and what speaks against."""
        due = hand_out(cases, node.cpu_cores, self._parameters.floor_ratio)
        kept = [one.known.wanted_cores or limit for one, limit in zip(cases, due, strict=True)]
        streaks = [self._streak(one, limit) for one, limit in zip(cases, due, strict=True)]
        fit = math.fsum(kept) <= node.cpu_cores * (1 + _ROUNDING)
        if not fit or max(streaks, default=0) >= EVALUATIONS_IN_A_ROW or self._at_once(cases, last):
            return due, [0] * len(cases)
        return kept, streaks

    def _streak(self, one: DeadlineCase, limit: float) -> int:
        """How many looks in a row, with this one, wanted a change of the job's limit beyond the hysteresis."""
        had = one.known.wanted_cores or 0.0
        differs = abs(limit - had) > self._parameters.hysteresis_ratio * had
        return max(0, one.known.streak) + 1 if differs else 0

    def _at_once(self, cases: Sequence[DeadlineCase], last: NodeMemory | None) -> bool:
        """True when the limits must change now: other jobs, a newcomer that was timed, or a guarantee not kept."""
        if last is None or {one.job.uid for one in cases} != last.job_uids:
            return True
        return any(self._is_urgent(one) for one in cases)

    def _is_urgent(self, one: DeadlineCase) -> bool:
        had = one.known.wanted_cores
        if had is None or (one.known.job_class == PROFILING and one.listed != PROFILING):
            return True
        return one.reserved_cores > had * (1 + self._parameters.hysteresis_ratio)


def _room(node: Node, cases: Sequence[DeadlineCase], *, evenly: bool) -> NodeRoom:
    room = NodeRoom(node.cpu_cores, evenly)
    for one in cases:
        untimed = one.listed == PROFILING
        room.add(one.usable_cores if evenly or untimed else one.needs_cores)
    return room


def _is_unmet(one: DeadlineCase) -> bool:
    """Its deadline is still to be met, but not here: not even with all of this node, or beside earlier deadlines."""
    return one.listed == BEST_EFFORT and one.work_cpu_seconds > 0


def _time_left_until(arrival: Arrival) -> float:
    """Least slack first: before its steps are timed, all that is known of it is when it must have ended."""
    deadline = arrival.objectives.deadline_at_seconds
    return math.inf if deadline is None else deadline
