"""Deadline: CPU and nodes so that as many trainings as possible end before their deadlines.

Source: Xing et al., "A QoS-oriented Scheduling and Autoscaling Framework for Deep Learning" (IJCNN 2019), of which
only the abstract is at hand: this is a reconstruction, not the paper's own text. Users state a deadline and nothing
else; steps left and seconds a step are measured, and tell the CPU c_req with which a job ends in time, within `gamma`
of the time it has left. Two parts, each of which can be switched off:

- placement: arriving jobs, least time left first, go to the node with the least free CPU that still fits them. Free is
  what the needs of its jobs leave.
- autoscaling, per node: jobs are admitted in order of deadline, as ElasticFlow does. Those whose c_req fits beside the
  ones before are `guaranteed` it. The others are `best-effort`, least slack first. Those that would be late even alone
  on the largest node are `hopeless`: told at once, with what nobody else can use and a small floor.

All CPU is handed out, as far as jobs can use it: what guarantees leave goes to newcomers, then to best effort.

Worked example, gamma 1, one thread: 900 steps of 1 CPU-second in 1000 s need 0.9 cores; of 2 CPU-seconds: hopeless.

Our readings, where nothing is said:

- Before its steps are timed a newcomer wants what it can use (one core where it does not say) where that is free, for
  `profilingSeconds`, and an even share C/n at least, until it is timed: it is `profiling`.
- Jobs without a deadline are best effort after those with one. On arrival they go where most is left for them.
- A job that is feasible at all, but not within `gamma`, needs all that it can use.
- Limits change at once when the set of jobs changes, a newcomer is timed, or a guaranteed job needs more than it has,
  beyond the hysteresis; otherwise only when two looks in a row want a change beyond it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.model import Arrival, ClusterSnapshot, Decisions, Job, MemoryState, Node, NodeMemory, Place
from controller.policies import PolicyParameters, Setting, parameter
from controller.policies._deadlines import (
    GUARANTEED,
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
from controller.policies._speed import had_cores

LOOKS_IN_A_ROW = 2
"""The cool-down: one look alone may be noise."""

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


class Policy:
    """Placement by need, and limits by deadline."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._parameters = parameters
        self._setting = setting

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Place what arrives, then look at every node that is due."""
        if not snapshot.nodes:
            return Decisions("deadline", (), {}, MemoryState(memory.jobs))
        largest = max(snapshot.nodes, key=lambda node: node.cpu_cores)
        parameters = self._parameters
        at = Situation(snapshot.taken_at_seconds, largest, parameters.gamma, parameters.profiling_seconds)

        def standings_of(node: Node, jobs: Sequence[Job]) -> list[Standing]:
            jobs = sorted(jobs, key=lambda job: job.uid)
            had = had_cores(jobs, node, self._setting.control)
            found = [standing(job, memory.jobs[job.uid], node, cores, at) for job, cores in zip(jobs, had, strict=True)]
            return admit(found, node.cpu_cores, parameters.floor_ratio, at)

        def look_at(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> Look:
            return self._look(node, standings_of(node, jobs), last)

        moves: Sequence[Place] = ()
        if parameters.placement and snapshot.waiting:
            jobs_on = snapshot.jobs_by_node()
            loads = {node.name: _load(standings_of(node, jobs_on[node.name]), node) for node in snapshot.nodes}
            moves = _places(snapshot, memory, loads)
        return decide_by_node("deadline", snapshot, memory, self._setting.control, look_at, moves)

    def _look(self, node: Node, standings: Sequence[Standing], last: NodeMemory | None) -> Look:
        if not self._parameters.autoscaling:
            verdicts = {
                one.job.uid: Verdict(None, one.listed, f"{one.listed}: {one.because}; left alone") for one in standings
            }
            return Look(verdicts, self._setting.interval_seconds)
        limits = hand_out(standings, node.cpu_cores, self._parameters.floor_ratio)
        streaks = [self._streak(one, limit) for one, limit in zip(standings, limits, strict=True)]
        if max(streaks, default=0) >= LOOKS_IN_A_ROW or self._at_once(standings, last):
            streaks = [0] * len(standings)
        else:
            limits = [one.known.wanted_cores or limit for one, limit in zip(standings, limits, strict=True)]
        verdicts = {}
        for one, limit, streak in zip(standings, limits, streaks, strict=True):
            reason = f"{one.listed}: {one.because}, limit {limit:.3g} of {node.cpu_cores:.3g} cores"
            verdicts[one.job.uid] = Verdict(limit, one.listed, reason, streak=streak)
        return Look(verdicts, self._setting.interval_seconds)

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
        too_little = (one.needs_cores or 0.0) > had * (1 + self._parameters.hysteresis_ratio)
        return one.listed == GUARANTEED and too_little


@dataclass(slots=True)
class _Load:
    """What is taken of a node, jobs placed in this pass among it."""

    free_cores: float
    """What the needs of its jobs leave; below 0 where they do not fit."""
    sharing: int
    """Jobs without a guarantee, which share what is free."""

    def add(self, needed_cores: float) -> None:
        """Count a job that needs so much; 0: it shares what is left."""
        self.free_cores -= needed_cores
        self.sharing += needed_cores == 0

    @property
    def share_cores(self) -> float:
        """What one more job without a deadline would have."""
        return max(0.0, self.free_cores) / (self.sharing + 1)


def _load(standings: Sequence[Standing], node: Node) -> _Load:
    load = _Load(node.cpu_cores, 0)
    for one in standings:
        untimed = one.usable_cores if one.listed == PROFILING else 0.0
        load.add(untimed if one.needs_cores is None else one.needs_cores)
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
        load = loads[node.name]
        free = load.free_cores
        if arrival.promises.deadline_at_seconds is None:
            load.add(0.0)
            return f"no deadline stated: most is left for it, of {free:.3g} cores that others do not need"
        wants = newcomer_cores(arrival.useful_parallelism_cores, node)
        load.add(wants)
        how = "least free CPU that fits it" if wants <= free else "fits nowhere, and most is free here"
        return f"not timed yet, wants {wants:.3g} cores: {how} ({max(0.0, free):.3g} cores)"

    return place_each(snapshot, memory, cost, placed, order=_time_left_until)


def _time_left_until(arrival: Arrival) -> float:
    """Least slack first: before its steps are timed, all that is known of it is when it must have ended."""
    deadline = arrival.promises.deadline_at_seconds
    return math.inf if deadline is None else deadline
