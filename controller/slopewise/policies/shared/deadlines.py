"""Computes the CPU that each job of a node needs to meet its deadline, admits jobs, and hands out the CPU.

The model of speed is seconds a step = a + b/c over
the CPU levels seen, so that the time left at c cores is (steps left)·(a + b/c).

Worked example: 1 CPU-second a step, 900 steps and 1000 s left, gamma 1: c_req = 0.9 cores; with 2 CPU-seconds a step
more than the one core that its thread can use, which is hopeless.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slopewise.allocation import water_filling
from slopewise.estimators.speed import steps_left
from slopewise.model import Arrival, Job, JobMemory, Node
from slopewise.policies.shared.pace_models import Speed, speed
from slopewise.policies.shared.reservations import Reservations
from slopewise.policies.shared.shares import useful_cores
from slopewise.text import duration

GUARANTEED, BEST_EFFORT, HOPELESS, PROFILING = "guaranteed", "best-effort", "hopeless", "profiling"

MORE_THAN_SEEN_RATIO = 1.25
"""A job that does not say what it can use may use a quarter more than it ever did: it shows at the next evaluation."""

_NO_TURN = 4

_ROUNDING = 1e-9


@dataclass(slots=True)
class DeadlineCase:
    """One job and its deadline. Without one, deadline and slack are infinite.

    `assess` makes it and `admit` completes it. It is not frozen, because four copies of each would be
    half the time of a decision for 10,000 jobs.
    """

    job: Job
    known: JobMemory
    useful_cores: float
    usable_cores: float
    """What it seems able to use; less than `useful_cores` only where the job itself does not say."""
    listed: str = BEST_EFFORT
    because: str = "no deadline stated"
    left_seconds: float = math.inf
    """Until its deadline."""
    within_seconds: float = math.inf
    """In which it is to end: what is left, less the reserves."""
    slack_seconds: float = math.inf
    """Time to spare if it had all that it can use here from now on; below 0 it would be late."""
    needs_cores: float | None = None
    """c_req: with this from now on it ends in time here. None: with nothing it does, or nothing is known."""
    work_cpu_seconds: float = 0.0
    """What it takes to its end with all that it can use here."""
    reserved_cores: float = 0.0
    """What it is guaranteed now: c_req, or less where more of it lies later."""
    tight: bool = False
    """It ends in time only if nothing goes wrong: what is kept in reserve is not to be had."""
    young: bool = False
    """Not timed yet, and not for long: what is free goes to it first."""


@dataclass(frozen=True, slots=True)
class DeadlineContext:
    """The inputs of `assess` besides the job and its node."""

    now_seconds: float
    largest: Node
    """What is infeasible even here is hopeless."""
    gamma: float
    ending_seconds: float
    """How long before its deadline a job is to do its last step."""
    profiling_seconds: float


def assess(job: Job, known: JobMemory, node: Node, had_cores: float, at: DeadlineContext) -> DeadlineCase:
    """Whether the job can end in time, and what it needs for that; not yet what it is guaranteed."""
    useful = useful_cores(job, node)
    one = DeadlineCase(job, known, useful, _usable_cores(job, known, useful))
    if job.objectives.deadline_at_seconds is None:
        return one
    left = one.left_seconds = one.slack_seconds = job.objectives.deadline_at_seconds - at.now_seconds
    todo = steps_left(job)
    young = at.now_seconds - job.started_at_seconds < at.profiling_seconds
    found = speed(known, had_cores)
    if left <= 0:
        one.listed, one.because = HOPELESS, f"{job.name}'s deadline passed {duration(abs(left))} ago"
    elif todo is None and not young:
        one.because = f"{duration(left)} left for a number of steps that it does not report"
    elif todo is None or found is None:
        one.listed, one.because, one.young = PROFILING, f"{duration(left)} left, steps not timed yet", young
    elif todo <= 0:
        one.listed, one.because = PROFILING, f"{duration(left)} left, all planned steps are done"
    else:
        _time(one, found, todo, at)
    return one


def _usable_cores(job: Job, known: JobMemory, useful: float) -> float:
    if job.useful_parallelism_cores is not None:
        return useful
    most = max((each.cores for each in known.paces if each.cores is not None), default=0.0)
    return min(useful, max(1.0, MORE_THAN_SEEN_RATIO * most))


def arrival_needs_cores(arrival: Arrival, known: JobMemory, had_cores: float, at: DeadlineContext) -> float | None:
    """c_req of a waiting job that has run before; None: its pace or its steps are not known, or no CPU is enough."""
    found, deadline = speed(known, had_cores), arrival.objectives.deadline_at_seconds
    if found is None or deadline is None or arrival.steps_planned is None or known.pace_anchor is None:
        return None
    steps_left = arrival.steps_planned - known.pace_anchor.done_total
    within = within_seconds(deadline - at.now_seconds, at)
    return found.limit_for(within / steps_left) if steps_left > 0 and within > 0 else None


def within_seconds(left_seconds: float, at: DeadlineContext) -> float:
    """What is left until a deadline, less the reserves."""
    return max(0.0, min(at.gamma * left_seconds, left_seconds - at.ending_seconds))


def _time(one: DeadlineCase, found: Speed, todo: float, at: DeadlineContext) -> None:
    """What the line says. The reserves are given up where the job cannot use that much CPU."""
    left, in_time = one.left_seconds, one.left_seconds * (1 + _ROUNDING)
    here = todo * found.seconds_at(one.useful_cores)
    alone = todo * found.seconds_at(useful_cores(one.job, at.largest))
    one.slack_seconds, one.work_cpu_seconds = left - here, here * one.useful_cores
    one.within_seconds = within_seconds(left, at)
    one.because = f"{todo:.0f} steps and {duration(left)} left"
    if alone > in_time:
        one.listed = HOPELESS
        one.because += f", {one.job.name} takes {duration(alone)} even alone on the largest node"
    elif here > in_time:
        one.because += f", takes {duration(here)} with all that it can use here"
    else:
        needs = found.limit_for(one.within_seconds / todo)
        one.needs_cores = one.useful_cores if needs is None else min(needs, one.useful_cores)
        one.because += f", needs {one.needs_cores:.3g} cores"


def admit(cases: Sequence[DeadlineCase], capacity_cores: float, floor_ratio: float) -> None:
    """Guarantee, earliest deadline first, the needs that fit beside those before, in the time there is."""
    least = _least_cores(cases, capacity_cores, floor_ratio)
    reservations = Reservations(max(0.0, capacity_cores - math.fsum(least)))
    for index in sorted(range(len(cases)), key=lambda i: (cases[i].left_seconds, cases[i].job.uid)):
        one = cases[index]
        if one.needs_cores is None:
            continue
        if not _is_reserved(one, one.needs_cores, least[index], reservations):
            one.because += " and earlier deadlines leave too little"


def _is_reserved(one: DeadlineCase, needs_cores: float, least_cores: float, reservations: Reservations) -> bool:
    """Reserve what the job needs beyond `least_cores`, which it has anyway; False: it does not fit.

    First c_req all the time; else the work as it fits, before the reserves or, last, within all of the time left.
    """
    within, most = one.within_seconds, max(0.0, one.useful_cores - least_cores)
    needs = max(0.0, needs_cores - least_cores)
    for work, cores, seconds in (
        (needs * within, needs, within),
        (one.work_cpu_seconds - least_cores * within, most, within),
        (one.work_cpu_seconds - least_cores * one.left_seconds, most, one.left_seconds),
    ):
        reserved = reservations.reserve(max(0.0, work), cores, seconds)
        if reserved is not None:
            one.listed, one.reserved_cores, one.tight = GUARANTEED, least_cores + reserved, seconds > within
            return True
    return False


def _least_cores(cases: Sequence[DeadlineCase], capacity_cores: float, floor_ratio: float) -> list[float]:
    """What each job has, whatever the others: a small floor, or an even share while it is timed, shape (jobs,)."""
    even = capacity_cores / max(1, len(cases))
    floor = floor_ratio * even
    return [max(floor, min(even, one.useful_cores)) if one.listed == PROFILING else floor for one in cases]


def hand_out(cases: Sequence[DeadlineCase], capacity_cores: float, floor_ratio: float) -> list[float]:
    """Limits in cores of jobs that went through `admit`, shape (jobs,); all of the node's CPU if they can use it.

    Guarantees first. What is left goes to those whose guarantee is tight, to best effort that could still end in time,
    to newcomers and to other best effort, each group by least slack; then evenly to those without a deadline or a
    hope, and to everyone. Each has what it seems able to use, and last, what it may be able to.
    """
    least = _least_cores(cases, capacity_cores, floor_ratio)
    limits = [max(cores, one.reserved_cores) for cores, one in zip(least, cases, strict=True)]
    usable = [one.usable_cores for one in cases]
    everyone = range(len(cases))
    for place in sorted((i for i in everyone if _turn(cases[i]) < _NO_TURN), key=lambda i: _order(cases[i])):
        _top_up(limits, [place], usable, capacity_cores)
    _top_up(limits, [i for i in everyone if cases[i].listed in (BEST_EFFORT, HOPELESS)], usable, capacity_cores)
    _top_up(limits, everyone, usable, capacity_cores)
    _top_up(limits, everyone, [one.useful_cores for one in cases], capacity_cores)
    return limits


def _turn(one: DeadlineCase) -> int:
    """Which group's turn it is in, smaller before larger."""
    if one.tight:
        return 0
    if one.listed == BEST_EFFORT and one.needs_cores is not None:
        return 1
    if one.young:
        return 2
    return 3 if one.listed == BEST_EFFORT and one.left_seconds < math.inf else _NO_TURN


def _order(one: DeadlineCase) -> tuple[int, float, str]:
    return _turn(one), one.slack_seconds, one.job.uid


def _top_up(limits: list[float], places: Sequence[int], most: Sequence[float], capacity_cores: float) -> None:
    """Hand what is left to these jobs, evenly, each up to `most`; changes `limits`."""
    rooms = [max(0.0, most[i] - limits[i]) for i in places]
    for i, more in zip(places, water_filling(rooms, capacity_cores - math.fsum(limits)), strict=True):
        limits[i] += more
