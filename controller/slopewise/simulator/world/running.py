"""The state of one simulated job from its arrival to its end: work, CPU, and the past within the scrape window.

`world.py` moves it along: rates change at its events only, and between two of them everything here is a straight line.
`observer.py` asks what a scrape saw a moment ago, `outcomes.py` what it came to.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from slopewise.simulator.world.model import MoveKind, SimJob, Stay
from slopewise.simulator.world.sharing import IDLE, Demand, Rate
from slopewise.simulator.world.tallies import AllocatedCpu, CpuIntervals
from slopewise.simulator.world.threads import RunningThreads

ROUNDING_RATIO = 1e-9
"""Work this near to a stop, as a part of all work, has reached it: 100 core-seconds are met within 0.1 microseconds."""

AT_90, AT_99, TARGET, DELIVERABLE = "at_90", "at_99", "target", "deliverable"


class Moment(NamedTuple):
    """A job's counters at one time; between two moments they grow evenly."""

    at_seconds: float
    work: float
    cpu_seconds: float
    active_seconds: float
    """For how long its process was at work: not paused by a move or a restart."""
    waited_seconds: float = 0.0
    """For how long its accelerator waited for batches."""
    short_seconds: float = 0.0
    """For how long its loader had less CPU than it could use."""

    def towards(self, later: Moment, at_seconds: float) -> Moment:
        """The counters at a time between this moment and a later one."""
        ratio = (at_seconds - self.at_seconds) / (later.at_seconds - self.at_seconds)
        return Moment(
            at_seconds,
            self.work + ratio * (later.work - self.work),
            self.cpu_seconds + ratio * (later.cpu_seconds - self.cpu_seconds),
            self.active_seconds + ratio * (later.active_seconds - self.active_seconds),
            self.waited_seconds + ratio * (later.waited_seconds - self.waited_seconds),
            self.short_seconds + ratio * (later.short_seconds - self.short_seconds),
        )


@dataclass(frozen=True, slots=True)
class Pause:
    """A time in which the job's process was not there: being moved, or restarted."""

    from_seconds: float
    to_seconds: float


class RunningJob:
    """What changes of one job. `node` is None while it waits; `allocation` is what was written last."""

    def __init__(self, job: SimJob, index: int) -> None:
        self.job = job
        self.index = index
        self.node: int | None = None
        self.node_name = ""
        self.allocation = job.allocation
        self.in_effect = self.allocation
        """A resize takes a moment: until then the kernel still goes by the one before."""
        self.rate: Rate = IDLE
        self.threads: RunningThreads | None = None
        self.now = Moment(job.arrive_seconds, 0.0, 0.0, 0.0)
        self.past: deque[Moment] = deque()
        """Earlier moments, oldest first, as far back as a scrape may still be looked at."""
        self.incarnation = 0
        self.process_started_seconds = job.arrive_seconds
        self.started_seconds: float | None = None
        self.finished_seconds: float | None = None
        self.is_stopped = False
        """It was ended at its target, before its work was done."""
        self.pauses: list[Pause] = []
        self.stays: list[Stay] = []
        self.intervals = CpuIntervals()
        self.allocated = AllocatedCpu()
        self.half_time: Moment | None = None
        """The counters halfway through a run of a fixed duration: response times are measured from there on."""
        self.reached_seconds: dict[str, float] = {}
        self.revision = 0
        """Goes up whenever something other than the counters changes."""
        self._milestones = _milestones(job)
        self._stops = _crashes(job)
        self._came: MoveKind = "placed"
        self._came_seconds = 0.0

    @property
    def paused(self) -> bool:
        """True while it is being moved or restarted."""
        return bool(self.pauses) and self.now.at_seconds < self.pauses[-1].to_seconds

    @property
    def moved_from(self) -> str | None:
        """The node it has left, while the pause of that move lasts; None at any other time."""
        moving = self.paused and self._came != "placed" and self.pauses[-1].from_seconds == self._came_seconds
        return self.stays[-1].node if moving else None

    @property
    def demand(self) -> Demand:
        """What it could use and may."""
        cores = self.job.parallelism_cores if self.threads is None else float(self.threads.number)
        return Demand(cores, self.in_effect, self.threads, self.job.accelerator)

    @property
    def useful_threads(self) -> int | None:
        """What the exporter reports of a number that follows the CPU; None: it does not."""
        return self.threads.useful if self.threads is not None and self.threads.follows else None

    @property
    def _allocated_cores(self) -> float:
        """Its limit, or its request where it has none."""
        limit = self.in_effect.limit_millicores
        return (self.in_effect.request_millicores if limit is None else limit) / 1000

    @property
    def done_ratio(self) -> float:
        """The fraction of its work that is done; 0 for a served model, whose work has no end."""
        return self.now.work / self.job.work_cpu_seconds

    @property
    def remaining_work(self) -> float:
        """Core-seconds at speed 1 until its end."""
        return self.job.work_cpu_seconds - self.now.work

    @property
    def next_stop_seconds(self) -> float:
        """When it ends or crashes next if nothing changes; infinite while it does no work."""
        if self.rate.speed <= 0:
            return math.inf
        return self.now.at_seconds + max(0.0, self._next_stop - self.now.work) / self.rate.speed

    @property
    def _next_stop(self) -> float:
        return min(self._stops[0], self.job.work_cpu_seconds)

    def start(self, node: int, node_name: str, came: MoveKind, now_seconds: float) -> None:
        """Put the job on a node with its original allocation; at its first start its process starts at once."""
        if self.started_seconds is None:
            self.started_seconds = self.process_started_seconds = now_seconds
            self.now = Moment(now_seconds, 0.0, 0.0, 0.0)
            self._pass_milestones(self.now, 0.0)
        self.node, self.node_name, self._came, self._came_seconds = node, node_name, came, now_seconds
        self.allocation = self.in_effect = self.job.allocation
        self.revision += 1

    def begin_threads(self, limit_cores: float) -> None:
        """A process begins, which may use so many cores."""
        self.threads = None if self.job.threads is None else RunningThreads(self.job.threads, limit_cores)

    def leave(self, now_seconds: float) -> None:
        """Take the job off its node."""
        self.stays.append(self.present_stay(now_seconds))
        self.node, self.rate = None, IDLE
        self.revision += 1

    def present_stay(self, until_seconds: float) -> Stay:
        """Its time on the node where it is, up to a moment."""
        return Stay(self.node_name, self._came_seconds, until_seconds, self._came)

    def pause(self, seconds: float) -> float:
        """Its process ends and another one goes on with the work after so long; returns when that is.

        The new process starts under what was written last: a resize that was under way is in effect with it.
        """
        now = self.now.at_seconds
        if self.paused:  # moved again before it was back: the former pause ends where the new one begins
            self.pauses[-1] = Pause(self.pauses[-1].from_seconds, now)
        self.pauses.append(Pause(now, now + seconds))
        self.incarnation += 1
        self.process_started_seconds, self.rate = now, IDLE
        self.in_effect = self.allocation
        self.revision += 1
        return now + seconds

    def advance(self, to_seconds: float, keep_from_seconds: float) -> None:
        """Go on at the present rate; moments that ended before `keep_from_seconds` are forgotten."""
        elapsed = to_seconds - self.now.at_seconds
        if elapsed <= 0:
            return
        before, rate = self.now, self.rate
        self.now = self._onwards(to_seconds)
        self.past.append(before)
        while len(self.past) > 1 and self.past[1].at_seconds <= keep_from_seconds:
            self.past.popleft()
        self.intervals.add(elapsed, rate.cores)
        self.allocated.add(elapsed, self._allocated_cores, rate.cores)
        self._pass_milestones(before, rate.speed)

    def at_stop(self) -> bool:
        """True when it has come to its next crash or to its end; its work is then exactly that.

        Also when the time that is left is less than a float can add to the time it is: at 3.3 million seconds, 16 cores
        do 4e-9 core-seconds from one number to the next, and a job of one core-second would never be near enough.
        """
        stop = self._next_stop
        near = self.now.work >= stop - ROUNDING_RATIO * self.job.work_cpu_seconds
        if not math.isfinite(stop) or not (near or self.next_stop_seconds <= self.now.at_seconds):
            return False
        self.now = self.now._replace(work=stop)
        return True

    def crashes(self) -> bool:
        """At a stop: True when it is a crash, which is then behind it; False when all work is done."""
        if self._stops[0] >= self.job.work_cpu_seconds:
            return False
        self._stops.pop(0)
        return True

    def finish(self) -> None:
        """All work is done; what its curve reaches with the last of it is reached now."""
        self.finished_seconds = self.now.at_seconds
        for work, name in self._milestones:
            if work <= self.job.work_cpu_seconds * (1 + ROUNDING_RATIO):
                self.reached_seconds[name] = self.now.at_seconds
        self._milestones = []

    def stop(self) -> None:
        """It ends before its work is done: what its curve has not reached by now it never reaches."""
        self.finished_seconds = self.now.at_seconds
        self.is_stopped = True
        self._milestones = []

    def at(self, at_seconds: float) -> Moment:
        """The counters at a time since the oldest that is kept, up to the world's own time; it must have been up."""
        if at_seconds > self.now.at_seconds:
            return self._onwards(at_seconds)
        later = self.now
        for moment in reversed(self.past):
            if at_seconds >= later.at_seconds:
                break
            if at_seconds >= moment.at_seconds:
                return moment.towards(later, at_seconds)
            later = moment
        return later

    def _onwards(self, to_seconds: float) -> Moment:
        """The counters at a time after `now`, up to which nothing happens."""
        now, elapsed = self.now, to_seconds - self.now.at_seconds
        work = min(now.work + self.rate.speed * elapsed, self.job.work_cpu_seconds)
        active = 0.0 if self.paused else elapsed
        return Moment(
            to_seconds,
            work,
            now.cpu_seconds + self.rate.cores * elapsed,
            now.active_seconds + active,
            now.waited_seconds + self.rate.starved_ratio * elapsed,
            now.short_seconds + (elapsed if self.rate.short else 0.0),
        )

    def was_up(self, at_seconds: float) -> bool:
        """True when its process was there to be scraped."""
        if self.started_seconds is None or at_seconds < self.started_seconds:
            return False
        return not any(pause.from_seconds <= at_seconds < pause.to_seconds for pause in self.pauses)

    def _pass_milestones(self, before: Moment, speed: float) -> None:
        """Note when, since `before`, the work came to what 90 % of the improvement, say, takes."""
        while self._milestones and self._milestones[0][0] <= self.now.work:
            work, name = self._milestones.pop(0)
            reached = before.at_seconds + ((work - before.work) / speed if speed > 0 else 0.0)
            self.reached_seconds[name] = min(max(reached, before.at_seconds), self.now.at_seconds)


def _milestones(job: SimJob) -> list[tuple[float, str]]:
    """(work, name) of all that this job's curve ever reaches, in order of work."""
    if job.curve is None:
        return []
    improvements = {AT_90: 0.9, AT_99: 0.99}
    for name, level in ((TARGET, job.target_level), (DELIVERABLE, job.deliverable_level)):
        if level is not None:
            improvements[name] = max(0.0, 1.0 - level)  # curves fall from 1 to 0
    done = {name: job.curve.reached(ratio) for name, ratio in improvements.items() if ratio <= 1.0}
    return sorted((ratio * job.work_cpu_seconds, name) for name, ratio in done.items() if ratio is not None)


def _crashes(job: SimJob) -> list[float]:
    """The work at which it crashes, ascending, with a last one that it never comes to."""
    if not math.isfinite(job.work_cpu_seconds):
        return [math.inf]
    return [*(ratio * job.work_cpu_seconds for ratio in sorted(job.crashes_at_done_ratio)), math.inf]
