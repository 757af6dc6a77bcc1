"""Where each job of a node stands to its deadline, who is guaranteed what it needs, and how the CPU is handed out.

Comes before `deadline`, which turns it into limits and placements. The model of speed is seconds a step = a + b/c over
the CPU levels seen, so that the time left at c cores is (steps left)·(a + b/c).

Worked example: 1 CPU-second a step, 900 steps and 1000 s left, gamma 1: c_req = 0.9 cores; with 2 CPU-seconds a step
more than the one core that its thread can use, which is hopeless.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from controller.model import Job, JobMemory, Node
from controller.policies._reservations import Reservations
from controller.policies._shares import useful_cores
from controller.policies._speed import Speed, handed_out, speed

GUARANTEED, BEST_EFFORT, HOPELESS, PROFILING = "guaranteed", "best-effort", "hopeless", "profiling"

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Standing:
    """One job and its deadline. Without a deadline it is at infinity, and so is the slack."""

    job: Job
    known: JobMemory
    useful_cores: float
    usable_cores: float
    """What it seems able to use: less than `useful_cores` where it leaves part of its limit unused, or is new."""
    listed: str
    because: str
    deadline_at_seconds: float = math.inf
    slack_seconds: float = math.inf
    """Time to spare if it had all that it can use here from now on; below 0 it would be late."""
    needs_cores: float | None = None
    """c_req: with this it ends in time here. None: with nothing it does, or nothing is known."""
    work_cpu_seconds: float = 0.0
    has_cores: float=0.0
    young: bool = False
    """Not timed yet, and not for long: what is free goes to it first."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a standing depends on besides the job and its node."""

    now_seconds: float
    largest: Node
    """What is infeasible even here is hopeless."""
    gamma: float
    profiling_seconds: float


def standing(job: Job, known: JobMemory, node: Node, had_cores: float, at: Situation) -> Standing:
    """Whether the job can end in time, and what it needs for that; not yet what it is guaranteed."""
    useful = useful_cores(job, node)
    deadline = job.promises.deadline_at_seconds
    if deadline is None:
        return Standing(job, known, useful, useful, BEST_EFFORT, "no deadline stated")
    left_seconds = deadline - at.now_seconds
    one = Standing(job, known, useful, useful, BEST_EFFORT, "", deadline, left_seconds)
    if left_seconds <= 0:
        return replace(one, listed=HOPELESS, because=f"{job.name}'s deadline passed {-left_seconds:.0f} s ago")
    if job.steps_planned is None or job.steps_total is None:
        return replace(one, because=f"{left_seconds:.0f} s left for a number of steps that it does not tell")
    steps_left = job.steps_planned - job.steps_total
    left = f"{max(0.0, steps_left):.0f} steps and {left_seconds:.0f} s left"
    found = speed(known, had_cores)
    if steps_left <= 0 or found is None:
        wants = min(useful, newcomer_cores(job.useful_parallelism_cores, node))
        young = steps_left > 0 and at.now_seconds - job.started_at_seconds < at.profiling_seconds
        because = f"{left}, steps not timed yet" if steps_left > 0 else left
        return replace(one, listed=PROFILING, because=because, usable_cores=wants, young=young)
    if found.use_ratio < 1:
        one = replace(one, usable_cores=min(useful, had_cores * found.use_ratio))
    return _timed(replace(one, because=left), found, steps_left, left_seconds, at)


def newcomer_cores(parallelism_cores: float | None, node: Node) -> float:
    """What a job wants before its steps are timed: what it can use, or one core where it does not say."""
    return min(node.cpu_cores, parallelism_cores or 1.0)


def _timed(one: Standing, found: Speed, steps_left: float, left_seconds: float, at: Situation) -> Standing:
    """What the line says. The reserve that gamma keeps is given up where the job cannot use that much CPU."""
    here = steps_left * found.seconds_at(one.useful_cores)
    alone = steps_left * found.seconds_at(useful_cores(one.job, at.largest))
    in_time = left_seconds * (1 + _ROUNDING)
    one = replace(one, slack_seconds=left_seconds - here, work_cpu_seconds=here * one.useful_cores)
    if alone > in_time:
        because = f"{one.because}, {one.job.name} takes {alone:.0f} s even alone on the largest node"
        return replace(one, listed=HOPELESS, because=because)
    if here > in_time:
        return replace(one, because=f"{one.because}, takes {here:.0f} s with all that it can use here")
    needs = found.limit_for(at.gamma * left_seconds / steps_left)
    needs = one.useful_cores if needs is None else min(needs, one.useful_cores)
    return replace(one, needs_cores=needs, because=f"{one.because}, needs {needs:.3g} cores")


MH=False
EDF=False
def admit(standings, capacity_cores, floor_ratio, at):
    least = _least_cores(standings, capacity_cores, floor_ratio)
    free0 = capacity_cores - math.fsum(least)
    admitted = list(standings)
    order = sorted([i for i in range(len(standings)) if standings[i].needs_cores is not None], key=lambda i: (standings[i].deadline_at_seconds, standings[i].job.uid))
    def fill(idx):
        res = Reservations(free0)
        got = {}
        for i in idx:
            one = standings[i]
            left = one.deadline_at_seconds - at.now_seconds
            w = max(0.0, one.work_cpu_seconds - least[i]*left)
            r = res.reserve(w, max(0,one.useful_cores-least[i]), left*at.gamma)
            if r is None: r = res.reserve(w, max(0,one.useful_cores-least[i]), left)
            if r is None: return got, i
            got[i] = r
        return got, None
    if MH:
        chosen=[]
        for i in order:
            got, bad = fill([*chosen, i])
            chosen.append(i)
            if bad is not None:
                worst = max(chosen, key=lambda k: standings[k].work_cpu_seconds)
                chosen.remove(worst)
        got, bad = fill(chosen)
    else:
        res = Reservations(free0); got={}
        for i in order:
            one = standings[i]
            left = one.deadline_at_seconds - at.now_seconds
            w = max(0.0, one.work_cpu_seconds - least[i]*left)
            r = res.reserve(w, max(0,one.useful_cores-least[i]), left*at.gamma)
            if r is None: r = res.reserve(w, max(0,one.useful_cores-least[i]), left)
            if r is not None: got[i]=r
    for i in order:
        one=standings[i]
        if i in got:
            admitted[i]=replace(one, listed=GUARANTEED, has_cores=got[i]+least[i])
        else:
            admitted[i] = replace(one, because=f"{one.because} and earlier deadlines leave too little")
    return admitted


def _least_cores(standings: Sequence[Standing], capacity_cores: float, floor_ratio: float) -> list[float]:
    """What each job has whoever else is there: a small floor, or an even share while it is timed, shape (jobs,)."""
    even = capacity_cores / max(1, len(standings))
    floor = floor_ratio * even
    return [max(floor, min(even, one.useful_cores)) if one.listed == PROFILING else floor for one in standings]


def hand_out(standings: Sequence[Standing], capacity_cores: float, floor_ratio: float) -> list[float]:
    """Limits in cores of jobs that went through `admit`, shape (jobs,); all of the node's CPU if they can use it.

    Guarantees first. What is left goes to newcomers, then to best effort by least slack, then evenly to those without
    a deadline or a hope, then to everyone; to each what it seems able to use, and last, what it may be able to.
    """
    limits = [
        max(least, one.has_cores or 0.0) if one.listed == GUARANTEED else least
        for one, least in zip(standings, _least_cores(standings, capacity_cores, floor_ratio), strict=True)
    ]
    usable = [one.usable_cores for one in standings]
    everyone = range(len(standings))
    for place in sorted((i for i in everyone if standings[i].young), key=lambda i: _urgency(standings[i])):
        _top_up(limits, [place], usable, capacity_cores)
    if EDF:
        for place in sorted([i for i in everyone if standings[i].listed == GUARANTEED], key=lambda i: (standings[i].deadline_at_seconds, standings[i].job.uid)):
            _top_up(limits, [place], usable, capacity_cores)
    late = [i for i in everyone if standings[i].listed == BEST_EFFORT and standings[i].slack_seconds < math.inf]
    for place in sorted(late, key=lambda i: _urgency(standings[i])):
        _top_up(limits, [place], usable, capacity_cores)
    _top_up(limits, [i for i in everyone if standings[i].listed in (BEST_EFFORT, HOPELESS)], usable, capacity_cores)
    _top_up(limits, everyone, usable, capacity_cores)
    _top_up(limits, everyone, [one.useful_cores for one in standings], capacity_cores)
    return limits


def _urgency(one: Standing) -> tuple[float, str]:
    """Least slack first; before a job is timed that is the time until its deadline."""
    return one.slack_seconds, one.job.uid


def _top_up(limits: list[float], places: Sequence[int], most: Sequence[float], capacity_cores: float) -> None:
    """Hand what is left to these jobs, evenly, each up to `most`; changes `limits`."""
    rooms = [max(0.0, most[i] - limits[i]) for i in places]
    for i, more in zip(places, handed_out(rooms, capacity_cores - math.fsum(limits)), strict=True):
        limits[i] += more
