"""Deadline: CPU and nodes so that as many trainings as possible end before their deadlines.

Source: Xing et al., "A QoS-oriented Scheduling and Autoscaling Framework for Deep Learning" (IJCNN 2019), of which
only the abstract is at hand: this is a reconstruction, not the paper's own text. Users state a deadline and nothing
else; steps left and seconds a step are measured, and tell the CPU c_req with which a job ends in time, within `gamma`
of the time it has left and `endingScrapes` before its deadline. Two parts, each of which can be switched off:

- placement: arriving jobs, least time left first, go to the node with the least free CPU that still fits them. Free is
  what the needs of its jobs leave.
- autoscaling, per node: jobs are admitted in order of deadline, as ElasticFlow does (`_reservations`). Those whose
  needs fit beside the ones before are `guaranteed` them. The others are `best-effort`, least slack first. Those that
  would be late even alone on the largest node are `hopeless`: told at once, with what the others leave, above a floor.

All CPU is handed out, as far as jobs can use it: what guarantees leave goes to best effort and to newcomers first.

Worked example, without reserves (gamma 1, no scrapes), one thread: 900 steps of 1 CPU-second in 1000 s need 0.9 cores;
of 2 CPU-seconds: hopeless.

Our readings, where nothing is said:

- Before its steps are timed a newcomer wants what it can use (one core where it does not say) where that is free, for
  `profilingSeconds`, and an even share C/n at least, until it is timed: it is `profiling`.
- Jobs without a deadline are best effort after those with one. On arrival they go where most is left for them.
- A job that reports nothing, neither steps nor a loss, keeps what it came with; the others have what that leaves.
- Needs that do not fit all at once still fit where they can wait for earlier jobs to end: 50 CPU-seconds due in 100 s
  and 100 due in 150 s are both guaranteed on one core. A job that is feasible, but not within `gamma`, is so as well.
- Limits change at once when the set of jobs changes, a newcomer is timed, or a guaranteed job needs more than it has,
  beyond the hysteresis; otherwise only when two looks in a row want a change beyond it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.model import Arrival, ClusterSnapshot, CpuControl, Decisions, Job, MemoryState, Node, NodeMemory, Place
from controller.policies import PolicyParameters, Setting, parameter
from controller.policies._deadlines import (
    PROFILING,
    Situation,
    Standing,
    admit,
    hand_out,
    newcomer_cores,
    standing,
)
from controller.policies._looks import Look, Verdict, decide_by_node
from controller.policies._placement import place_each
from controller.policies._silence import Silence, node_without, silent_jobs, without_a_report
from controller.policies._speed import had_cores

PURPOSE = "trainings that must be done by a stated time"
DECIDES_ON = "reports"

LOOKS_IN_A_ROW = 2
"""The cool-down: one look alone may be noise."""

_ROUNDING = 1e-9

_NO_FIT_CORES = 1e9
"""More than any node has: nodes that do not fit come after all that do."""


class Parameters(PolicyParameters):
    """Which parts run, and how careful they are."""

    placement: bool = parameter(
        True, unit="true or false", source="IJCNN 2019", description="choose the node of arriving jobs"
    )
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
        description="smaller changes of limits are not made, nor is one that a single look wants",
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


class _Standings:
    """The standings of a node's jobs, in order of uid; worked out when first asked for, as placing and looking do."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        memory: MemoryState,
        parameters: Parameters,
        control: CpuControl,
        silence: Silence,
    ) -> None:
        largest = max(snapshot.nodes, key=lambda node: node.cpu_cores)
        ending = parameters.ending_scrapes * snapshot.scrape_interval_seconds
        now = snapshot.taken_at_seconds
        self._at = Situation(now, largest, parameters.gamma, ending, parameters.profiling_seconds)
        self._floor_ratio = parameters.floor_ratio
        self._control = control
        self._jobs_on = snapshot.jobs_by_node()
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._memory = memory
        self._silence = silence
        self._known: dict[str, tuple[Node, list[Standing]]] = {}

    def on(self, name: str) -> tuple[Node, list[Standing]]:
        """A node without what its silent jobs keep; all others there, and who of them is guaranteed what."""
        if name not in self._known:
            everyone = sorted(self._jobs_on[name], key=lambda job: job.uid)
            silent = silent_jobs(everyone, self._memory.jobs, self._silence)
            jobs = [job for job in everyone if job.uid not in silent]
            left = node_without(silent, everyone, self._memory.jobs, self._nodes[name], self._control, reserves=True)
            had = had_cores(jobs, left, self._control)
            standings = [
                standing(job, self._memory.jobs[job.uid], left, cores, self._at)
                for job, cores in zip(jobs, had, strict=True)
            ]
            admit(standings, left.cpu_cores, self._floor_ratio)
            self._known[name] = (left, standings)
        return self._known[name]


class Policy:
    """Placement by need, and limits by deadline."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._parameters = parameters
        self._setting = setting

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Place what arrives, then look at every node that is due."""
        if not snapshot.nodes:
            return Decisions("deadline", (), {}, MemoryState(memory.jobs))
        silence = without_a_report(snapshot)
        standings = _Standings(snapshot, memory, self._parameters, self._setting.control, silence)

        def look_at(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> Look:
            return self._look(*standings.on(node.name), last)

        moves: Sequence[Place] = ()
        if self._parameters.placement and snapshot.waiting:
            evenly = not self._parameters.autoscaling
            loads = {node.name: _load(*standings.on(node.name), evenly) for node in snapshot.nodes}
            moves = _places(snapshot, memory, loads)
        return decide_by_node(
            "deadline", snapshot, memory, self._setting.control, look_at, moves, silence=silence, reserves=True
        )

    def _look(self, node: Node, standings: Sequence[Standing], last: NodeMemory | None) -> Look:
        if self._parameters.autoscaling:
            limits, streaks = self._limits(node, standings, last)
        else:
            limits, streaks = [None] * len(standings), [0] * len(standings)
        verdicts = {}
        for one, limit, streak in zip(standings, limits, streaks, strict=True):
            alone = ", left alone" if limit is None else ""
            verdicts[one.job.uid] = Verdict(limit, one.listed, f"{one.listed}: {one.because}{alone}", streak=streak)
        return Look(verdicts, self._setting.interval_seconds)

    def _limits(
        self, node: Node, standings: Sequence[Standing], last: NodeMemory | None
    ) -> tuple[Sequence[float | None], Sequence[int]]:
        """Limits in cores and streaks: those that are due now, or those that the jobs have, and what speaks against."""
        due = hand_out(standings, node.cpu_cores, self._parameters.floor_ratio)
        kept = [one.known.wanted_cores or limit for one, limit in zip(standings, due, strict=True)]
        streaks = [self._streak(one, limit) for one, limit in zip(standings, due, strict=True)]
        fit = math.fsum(kept) <= node.cpu_cores * (1 + _ROUNDING)
        if not fit or max(streaks, default=0) >= LOOKS_IN_A_ROW or self._at_once(standings, last):
            return due, [0] * len(standings)
        return kept, streaks

    def _streak(self, one: Standing, limit: float) -> int:
        """How many looks in a row, with this one, wanted a change of the job's limit beyond the hysteresis."""
        had = one.known.wanted_cores or 0.0
        differs = abs(limit - had) > self._parameters.hysteresis_ratio * had
        return max(0, one.known.streak) + 1 if differs else 0

    def _at_once(self, standings: Sequence[Standing], last: NodeMemory | None) -> bool:
        """True when the limits must change now: other jobs, a newcomer that was timed, or a guarantee not kept."""
        if last is None or {one.job.uid for one in standings} != last.job_uids:
            return True
        return any(self._is_urgent(one) for one in standings)

    def _is_urgent(self, one: Standing) -> bool:
        had = one.known.wanted_cores
        if had is None or (one.known.job_class == PROFILING and one.listed != PROFILING):
            return True
        return one.reserved_cores > had * (1 + self._parameters.hysteresis_ratio)


@dataclass(slots=True)
class _Load:
    """How much of a node is taken, jobs placed in this pass included."""

    node_cores: float
    evenly: bool
    """Nobody changes anybody's CPU: every job takes what it can use, and where that is too much they share evenly."""
    taken_cores: float = 0.0
    """What its jobs need to keep their deadlines, or can use where they share evenly."""
    jobs: int = 0
    sharing: int = 0
    """Jobs that share what the others do not need."""

    def add(self, needed_cores: float | None) -> None:
        """Count a job that needs so much; None: it shares what is left."""
        self.jobs += 1
        self.sharing += needed_cores is None
        self.taken_cores += needed_cores or 0.0

    @property
    def free_cores(self) -> float:
        """What a newcomer with a deadline would find; below 0 where the needs do not fit."""
        free = self.node_cores - self.taken_cores
        return max(free, self.node_cores / (self.jobs + 1)) if self.evenly else free

    @property
    def share_cores(self) -> float:
        """What one more job without a deadline would have."""
        return max(0.0, self.free_cores) / (self.sharing + 1)


def _load(node: Node, standings: Sequence[Standing], evenly: bool) -> _Load:
    load = _Load(node.cpu_cores, evenly)
    for one in standings:
        load.add(one.usable_cores if evenly or one.listed == PROFILING else one.needs_cores)
    return load


def _places(snapshot: ClusterSnapshot, memory: MemoryState, loads: Mapping[str, _Load]) -> tuple[Place, ...]:
    """The node of each waiting job; with a deadline the fullest that fits it, else the one that leaves it most."""

    def cost(arrival: Arrival, node: Node) -> float:
        load = loads[node.name]
        if arrival.promises.deadline_at_seconds is None:
            return -load.share_cores
        fits = newcomer_cores(arrival.useful_parallelism_cores, node) <= load.free_cores
        return load.free_cores if fits else _NO_FIT_CORES - load.free_cores

    def placed(arrival: Arrival, node: Node) -> str:
        load, wants = loads[node.name], newcomer_cores(arrival.useful_parallelism_cores, node)
        free, share = max(0.0, load.free_cores), load.share_cores
        has_deadline = arrival.promises.deadline_at_seconds is not None
        load.add(wants if has_deadline or load.evenly else None)
        if not has_deadline:
            return f"no deadline stated: {node.name} leaves it most ({share:.3g} cores)"
        how = "least free CPU that fits it" if wants <= free else "fits nowhere, and most is free here"
        return f"not timed yet, wants {wants:.3g} cores: {how} ({free:.3g} cores)"

    return place_each(snapshot, memory, cost, placed, order=_time_left_until)


def _time_left_until(arrival: Arrival) -> float:
    """Least slack first: before its steps are timed, all that is known of it is when it must have ended."""
    deadline = arrival.promises.deadline_at_seconds
    return math.inf if deadline is None else deadline
