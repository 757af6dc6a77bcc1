"""What the controller sees of the simulated world: what scrapes saw of it a moment ago, noise and gaps included.

The Observer port of `engine.py`'s passes. Every number is one that a scrape had before `now - scrape delay`; what a
sample's noise is depends on the seed, the job and the number of the scrape alone, so that it is the same under every
policy and whenever it is asked for. Perfect knowledge is for policies that say they are oracles.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from controller.growth import SCRAPES_PER_WINDOW
from controller.model import (
    Arrival,
    Checkpoint,
    ClusterSnapshot,
    Evaluation,
    Job,
    JobState,
    Mobility,
    MoveUnderWay,
    Node,
    Promises,
    Responses,
    Usage,
)
from controller.simulator.model import Curve, Physics, SimJob
from controller.simulator.randomness import ScrapeLuck
from controller.simulator.running import Moment, RunningJob
from controller.simulator.world import World

EPOCH_SECONDS = 1_700_000_000.0
"""When simulated runs begin, in Unix time, so that times look like times."""

NAMESPACE = "simulated"
SERIES = 'training_loss{stage="eval"}'


class Watch:
    """What is seen of one job. Scrapes are worked out when they are first asked for, and kept while they count."""

    def __init__(self, running: RunningJob, physics: Physics, seed: int) -> None:
        self._running = running
        self._physics = physics
        self._luck = ScrapeLuck(seed, running.index)
        self._phase_seconds = self._luck.phase_ratio * physics.scrape_seconds
        self._scrapes: dict[int, tuple[Moment, float] | None] = {}
        self._promises = promises(running.job)
        self._checkpoint = Checkpoint(None, running.job.checkpoint_seconds, on_sigterm=True)
        self._mobility = Mobility("restart", restart_seconds=running.job.restart_seconds)
        self._seen: Job | None = None
        self._seen_at = (-1, -1, False)

    def look(self, now_seconds: float) -> Job:
        """The job as a query at this time tells it; the same object while nothing new was scraped or written."""
        visible_seconds = now_seconds - self._physics.scrape_delay_seconds
        newest = math.floor((visible_seconds - self._phase_seconds) / self._physics.scrape_seconds)
        since = visible_seconds - SCRAPES_PER_WINDOW * self._physics.scrape_seconds
        restarted = self._running.life > 0 and self._running.life_started_seconds > since
        looked_at = (newest, self._running.revision, restarted)
        if self._seen is None or looked_at != self._seen_at:
            self._seen, self._seen_at = self._job(self._window(newest), restarted), looked_at
        return self._seen

    def _window(self, newest: int) -> list[tuple[Moment, float]]:
        """(counters, level) of the scrapes that count now and did not fail, oldest first."""
        wanted = range(newest - SCRAPES_PER_WINDOW + 1, newest + 1)
        known = self._scrapes
        self._scrapes = {number: known[number] if number in known else self._scrape(number) for number in wanted}
        return [scrape for scrape in self._scrapes.values() if scrape is not None]

    def _scrape(self, number: int) -> tuple[Moment, float] | None:
        """What this scrape saw: the counters and the evaluation; None when it failed or nobody was there."""
        at_seconds = number * self._physics.scrape_seconds + self._phase_seconds
        running, job = self._running, self._running.job
        if not running.was_up(at_seconds):
            return None
        noise, luck = self._luck.of(number)
        if luck < self._physics.missing_ratio:
            return None
        moment = running.at(at_seconds)
        return moment, 0.0 if job.curve is None else self._level(job.curve, moment, noise)

    def _level(self, curve: Curve, moment: Moment, noise: float) -> float:
        """What the job's gauge shows: while a spiked step is the last one, that step's loss and no other."""
        job = self._running.job
        done = min(1.0, moment.work / job.work_cpu_seconds)
        for spike in job.spikes:
            if spike.from_ratio <= done < spike.to_ratio:
                return curve.at(spike.from_ratio) + spike.size
        return curve.at(done) + noise * job.noise

    def _job(self, scrapes: Sequence[tuple[Moment, float]], restarted: bool) -> Job:
        running, job = self._running, self._running.job
        newest = scrapes[-1][0] if scrapes else None
        told = newest if job.reports else None
        return Job(
            uid=job.name,
            name=job.name,
            namespace=NAMESPACE,
            node=running.node_name,
            state=JobState.STARTING if running.paused else JobState.TRAINING,
            started_at_seconds=EPOCH_SECONDS + (running.started_seconds or 0.0),
            allocation=running.allocation,
            evaluation=None if job.curve is None or told is None else evaluation(scrapes),
            usage=None if newest is None else _usage(newest, job),
            steps_total=None if told is None else _steps(told, job),
            steps_planned=job.steps_planned if job.reports else None,
            useful_parallelism_cores=job.parallelism_cores,
            restarted=restarted,
            life_started_at_seconds=EPOCH_SECONDS + running.life_started_seconds,
            responses=None if told is None else responses(told, job),
            promises=self._promises,
            memory_request_bytes=job.memory_bytes,
            migratable=job.migratable,
            checkpoint=self._checkpoint if job.reports else None,
            mobility=self._mobility,
        )


class SimObserver:
    """The Observer port over a `World`."""

    def __init__(self, world: World, *, oracle: bool) -> None:
        """`oracle`: tell what work is left, for a policy that says it needs to know."""
        self._world = world
        self._oracle = oracle
        self._nodes = tuple(
            Node(node.name, node.cpu_cores, node.memory_bytes, node.requests_max_millicores) for node in world.nodes
        )
        self._watches: dict[str, Watch] = {}

    def observe(self) -> ClusterSnapshot:
        """All jobs that run or wait now."""
        now, physics = self._world.now_seconds, self._world.physics
        return ClusterSnapshot(
            EPOCH_SECONDS + now,
            self._nodes,
            tuple(self._watch(running).look(now) for running in self._world.present.values()),
            physics.scrape_seconds,
            tuple(_arrival(running.job) for running in self._world.waiting.values()),
            self._remaining() if self._oracle else {},
            tuple(_moving(running, left) for running in self._world.present.values() if (left := running.moved_from)),
        )

    def _watch(self, running: RunningJob) -> Watch:
        uid = running.job.name
        if uid not in self._watches:
            self._watches[uid] = Watch(running, self._world.physics, self._world.instance.seed)
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


def promises(job: SimJob) -> Promises:
    """What its owner asks for, on the clock that the controller sees."""
    deadline = None if job.deadline_seconds is None else EPOCH_SECONDS + job.deadline_seconds
    return Promises(job.qoe_seconds, deadline, job.target_level, job.deliverable_level, job.weight)


def _usage(seen: Moment, job: SimJob) -> Usage:
    return Usage(EPOCH_SECONDS + seen.at_seconds, seen.cpu_seconds, job.memory_bytes)


def _steps(seen: Moment, job: SimJob) -> float | None:
    if job.steps_planned is None:
        return None
    return float(math.floor(job.steps_planned * seen.work / job.work_cpu_seconds))


def _moving(running: RunningJob, left: str) -> MoveUnderWay:
    since = EPOCH_SECONDS + running.pauses[-1].from_seconds
    return MoveUnderWay(running.job.name, left, running.node_name, since, f"starting on {running.node_name}")


def _arrival(job: SimJob) -> Arrival:
    return Arrival(
        uid=job.name,
        name=job.name,
        namespace=NAMESPACE,
        arrived_at_seconds=EPOCH_SECONDS + job.arrive_seconds,
        request_millicores=job.request_millicores,
        memory_request_bytes=job.memory_bytes,
        useful_parallelism_cores=job.parallelism_cores,
        steps_planned=job.steps_planned,
        promises=promises(job),
    )
