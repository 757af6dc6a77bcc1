"""The Observer of the simulated world: returns what scrapes recorded, with their delay, noise and gaps.

The Observer port of `engine.py`'s passes. Every number is one that a scrape had before `now - scrape delay`; what a
sample's noise is depends on the seed, the job and the number of the scrape alone, so that it is the same under every
policy and whenever it is asked for. Only policies that declare themselves oracles get perfect knowledge.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from slopewise.estimators.growth import SCRAPES_PER_WINDOW
from slopewise.estimators.speed import stated_cores
from slopewise.model import (
    Absence,
    Arrival,
    Checkpoint,
    ClusterSnapshot,
    ContainerHealth,
    Evaluation,
    Job,
    JobState,
    Movability,
    MoveUnderWay,
    Node,
    Objectives,
    Observation,
    RawPoint,
    Responses,
    Usage,
)
from slopewise.simulator.world.model import Curve, Physics, SimJob
from slopewise.simulator.world.randomness import ScrapeLuck
from slopewise.simulator.world.running import Moment, RunningJob
from slopewise.simulator.world.world import World

EPOCH_SECONDS = 1_700_000_000.0
"""When simulated runs begin, in Unix time, so that times look like times."""

NAMESPACE = "simulated"
SERIES = 'training_loss{stage="eval"}'


MAX_POINT_SCRAPES = 120
"""Scrapes of a job that are read as raw points at once, at most."""


class Watch:
    """The scrapes of one job, computed at their first use and kept while they are in the window."""

    def __init__(self, running: RunningJob, physics: Physics, seed: int, *, points: bool = False) -> None:
        self._reads_points = points
        self._read_until = -1
        self._points: tuple[RawPoint, ...] = ()
        self._running = running
        self._physics = physics
        self._luck = ScrapeLuck(seed, running.index)
        self._phase_seconds = self._luck.phase_ratio * physics.scrape_seconds
        self._scrapes: dict[int, tuple[Moment, float] | None] = {}
        self._objectives = objectives(running.job)
        self._checkpoint = Checkpoint(None, running.job.checkpoint_seconds, on_sigterm=True)
        self._movability = Movability("restart", restart_seconds=running.job.restart_seconds)
        self._seen: Job | None = None
        self._seen_at = (-1, -1, False)

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped at its target."""
        return self._running.is_stopped

    def observe_at(self, now_seconds: float) -> Job:
        """The job as a query at this time returns it; the same object while nothing new was scraped or written."""
        visible_seconds = now_seconds - self._physics.scrape_delay_seconds
        newest = math.floor((visible_seconds - self._phase_seconds) / self._physics.scrape_seconds)
        since = visible_seconds - SCRAPES_PER_WINDOW * self._physics.scrape_seconds
        restarted = self._running.incarnation > 0 and self._running.process_started_seconds > since
        version = (newest, self._running.revision, restarted)
        if self._seen is None or version != self._seen_at:
            self._points = self._points_until(newest) if self._reads_points else ()
            self._seen, self._seen_at = self._job(self._window(newest), restarted=restarted), version
        return self._seen

    def _window(self, newest: int) -> list[tuple[Moment, float]]:
        """(counters, level) of the scrapes that count now and did not fail, oldest first."""
        wanted = range(newest - SCRAPES_PER_WINDOW + 1, newest + 1)
        known = self._scrapes
        self._scrapes = {number: known[number] if number in known else self._scrape(number) for number in wanted}
        return [scrape for scrape in self._scrapes.values() if scrape is not None]

    def _points_until(self, newest: int) -> tuple[RawPoint, ...]:
        """The scrapes since the last observation; with the same ones again, those of that observation."""
        if newest <= self._read_until or not self._running.job.reports:
            return self._points
        first, self._read_until = max(self._read_until + 1, newest + 1 - MAX_POINT_SCRAPES, 0), newest
        known = ((number, self._scrapes.get(number)) for number in range(first, newest + 1))
        scrapes = (scrape or self._scrape(number) for number, scrape in known)
        return tuple(
            RawPoint(EPOCH_SECONDS + moment.at_seconds, level, _steps(moment, self._running.job))
            for moment, level in (scrape for scrape in scrapes if scrape is not None)
        )

    def _scrape(self, number: int) -> tuple[Moment, float] | None:
        """The counters and the evaluation of one scrape; None when it failed or the job was not running."""
        at_seconds = number * self._physics.scrape_seconds + self._phase_seconds
        running, job = self._running, self._running.job
        if not running.was_up(at_seconds):
            return None
        noise, luck = self._luck.of(number)
        if luck < self._physics.missing_ratio:
            return None
        moment = running.at(at_seconds)
        curve = job.reported_curve or job.curve
        return moment, 0.0 if curve is None else self._level(curve, moment, noise)

    def _level(self, curve: Curve, moment: Moment, noise: float) -> float:
        """What the job's gauge shows: while a spiked step is the last one, that step's loss and no other."""
        job = self._running.job
        done = min(1.0, moment.work / job.work_cpu_seconds)
        for spike in job.spikes:
            if spike.from_ratio <= done < spike.to_ratio:
                return job.loss_at(curve.at(spike.from_ratio) + spike.size)
        return job.loss_at(curve.at(done)) + noise * job.noise * job.losses[0]

    def _job(self, scrapes: Sequence[tuple[Moment, float]], *, restarted: bool) -> Job:
        running, job = self._running, self._running.job
        newest = scrapes[-1][0] if scrapes else None
        reported = newest if job.reports else None
        waited = _wait_ratio(scrapes, job)
        return Job(
            uid=job.name,
            name=job.name,
            namespace=NAMESPACE,
            node=running.node_name,
            state=JobState.STARTING if running.paused else JobState.TRAINING,
            started_at_seconds=EPOCH_SECONDS + (running.started_seconds or 0.0),
            allocation=running.allocation,
            evaluation=None if job.curve is None or reported is None else evaluation(scrapes),
            usage=None if newest is None else _usage(newest, job),
            steps_total=None if reported is None else _steps(reported, job),
            steps_planned=job.steps_planned if job.reports else None,
            useful_parallelism_cores=stated_cores(_stated_cores(job), running.useful_threads),
            restarted=restarted,
            process_started_at_seconds=EPOCH_SECONDS + running.process_started_seconds,
            responses=None if reported is None else responses(reported, job),
            objectives=self._objectives,
            memory_request_bytes=job.memory_bytes,
            migratable=job.migratable,
            checkpoint=self._checkpoint if job.reports else None,
            movability=self._movability,
            workload_class=job.class_name,
            points=() if job.curve is None else self._points,
            accelerators=_devices(job),
            wait_ratio=waited if job.reports else None,
            waited_seconds_total=None if reported is None or job.accelerator is None else reported.waited_seconds,
            gpu_use=None if waited is None else 1.0 - waited,
            container_health=_pressure(newest, job),
        )


class SimObserver:
    """The Observer port over a `World`."""

    def __init__(self, world: World, *, oracle: bool, points: bool = False) -> None:
        """`oracle`: report the remaining work, for a policy that declares that it needs it; `points`: raw points."""
        self._points = points
        if points:
            world.keep_scrapes(MAX_POINT_SCRAPES)
        self._world = world
        self._oracle = oracle
        self._nodes = tuple(
            Node(node.name, node.cpu_cores, node.memory_bytes, node.requests_max_millicores) for node in world.nodes
        )
        self._watches: dict[str, Watch] = {}

    def observe(self) -> Observation:
        """All jobs that run or wait now."""
        now, physics = self._world.now_seconds, self._world.physics
        snapshot = ClusterSnapshot(
            EPOCH_SECONDS + now,
            self._nodes,
            tuple(self._watch(running).observe_at(now) for running in self._world.present.values()),
            physics.scrape_seconds,
            tuple(self._arrivals()),
            self._remaining() if self._oracle else {},
            tuple(_moving(running, left) for running in self._world.present.values() if (left := running.moved_from)),
            tuple(self._newly_ended()),
        )
        return Observation(snapshot)

    def _arrivals(self) -> Iterator[Arrival]:
        """The jobs that wait, with the nodes that have not the accelerators that they request."""
        world, refused = self._world, dict[float, dict[str, str]]({0.0: {}})
        for running in world.waiting.values():
            wanted = _devices(running.job)
            if wanted not in refused:
                free = {node.name: world.free_accelerators(number) for number, node in enumerate(world.nodes)}
                short = {name: left for name, left in free.items() if left < wanted}
                refused[wanted] = {name: f"{left} accelerators free, {wanted:g} wanted" for name, left in short.items()}
            yield _arrival(running.job, refused[wanted])

    def _newly_ended(self) -> Iterator[Absence]:
        """Jobs that have ended since the last observation."""
        for uid in [uid for uid in self._watches if uid not in self._world.present]:
            stopped = self._watches.pop(uid).is_stopped
            yield Absence(uid, "stopped" if stopped else "finished", "it has ended")

    def _watch(self, running: RunningJob) -> Watch:
        uid = running.job.name
        if uid not in self._watches:
            self._watches[uid] = Watch(running, self._world.physics, self._world.instance.seed, points=self._points)
        return self._watches[uid]

    def _remaining(self) -> dict[str, float]:
        everyone = {**self._world.present, **self._world.waiting}
        for running in self._world.present.values():
            self._world.bring_up_to_date(running)
        return {uid: running.remaining_work for uid, running in everyone.items()}


def evaluation(scrapes: Sequence[tuple[Moment, float]]) -> Evaluation | None:
    """The level, the median of the scrapes of the window; not finite as soon as one of them is not.

    Then the lowest finite one is shown, as the Prometheus adapter shows it, and NaN once there is none.
    """
    if not scrapes:
        return None
    levels = [level for _, level in scrapes]
    finite = all(map(math.isfinite, levels))
    shown = statistics.median(levels) if finite else min(filter(math.isfinite, levels), default=math.nan)
    return Evaluation(shown, len(levels), EPOCH_SECONDS + scrapes[-1][0].at_seconds, SERIES, "min", finite)


def responses(seen: Moment, job: SimJob) -> Responses | None:
    """What a served model has answered, fractions of requests included: it is always busy, on each useful core.

    Worked example: 2 core-seconds a request, one stream, half a core for 8 s: 2 requests, 8 s, so 4 s each.
    """
    if job.request_cpu_seconds is None:
        return None
    return Responses(seen.work / job.request_cpu_seconds, seen.active_seconds * max(1.0, job.parallelism_cores))


def objectives(job: SimJob) -> Objectives:
    """The owner's objectives, in the observed Unix time."""
    deadline = None if job.deadline_seconds is None else EPOCH_SECONDS + job.deadline_seconds
    target, deliverable = (
        None if level is None else job.loss_at(level) for level in (job.target_level, job.deliverable_level)
    )
    return Objectives(job.qoe_seconds, deadline, target, deliverable, job.weight, job.stops_at_target, job.study)


def _usage(seen: Moment, job: SimJob) -> Usage:
    return Usage(EPOCH_SECONDS + seen.at_seconds, seen.cpu_seconds, job.memory_bytes)


def _stated_cores(job: SimJob) -> float | None:
    """The cores that its owner states; None for a job with an accelerator, whose owner has not measured its input."""
    return job.parallelism_cores if job.accelerator is None else None


def _devices(job: SimJob) -> float:
    return 0.0 if job.accelerator is None else float(job.accelerator.count)


def _pressure(seen: Moment | None, job: SimJob) -> ContainerHealth | None:
    """The kernel counts the time in which a loader has less CPU than it could use; of other jobs nothing is shown."""
    if seen is None or job.accelerator is None:
        return None
    return ContainerHealth(cpu_waiting_seconds_total=seen.short_seconds)


def _wait_ratio(scrapes: Sequence[tuple[Moment, float]], job: SimJob) -> float | None:
    """The part of the window in which its accelerator waited; None without one, and where it was seen only once."""
    if job.accelerator is None or len(scrapes) < 2:
        return None
    first, last = scrapes[0][0], scrapes[-1][0]
    active = last.active_seconds - first.active_seconds
    return (last.waited_seconds - first.waited_seconds) / active if active > 0 else None


def _steps(seen: Moment, job: SimJob) -> float | None:
    if job.steps_planned is None:
        return None
    return float(math.floor(job.steps_planned / job.plan_ratio * seen.work / job.work_cpu_seconds))


def _moving(running: RunningJob, left: str) -> MoveUnderWay:
    since = EPOCH_SECONDS + running.pauses[-1].from_seconds
    return MoveUnderWay(running.job.name, left, running.node_name, since, f"starting on {running.node_name}")


def _arrival(job: SimJob, refused_nodes: Mapping[str, str]) -> Arrival:
    return Arrival(
        uid=job.name,
        name=job.name,
        namespace=NAMESPACE,
        arrived_at_seconds=EPOCH_SECONDS + job.arrive_seconds,
        request_millicores=job.allocation.request_millicores,
        memory_request_bytes=job.memory_bytes,
        useful_parallelism_cores=_stated_cores(job),
        steps_planned=job.steps_planned,
        accelerators=_devices(job),
        objectives=objectives(job),
        workload_class=job.class_name,
        refused_nodes=refused_nodes,
    )
