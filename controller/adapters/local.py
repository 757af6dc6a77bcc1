"""The ports of this machine: Prometheus and cgroups in, cgroups out. FlowCon's own test-bed, without Docker.

`session.py` plugs these into passes. A job is a process group that `supervisor.py` started; its name is its uid and
its `pod` label, and the namespace is the run it belongs to. `nodes.py` says which nodes this machine is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from controller.adapters.limiters.base import UNLIMITED, Limiter
from controller.adapters.missing_evaluations import MissingEvaluations, unheard, with_missing
from controller.adapters.nodes import ONLY_NODE
from controller.adapters.prometheus import JobSeries, PrometheusReader, PrometheusReading
from controller.adapters.prometheus_series import JobKey
from controller.errors import ActuationError
from controller.model import (
    NO_PROMISES,
    Arrival,
    ClusterSnapshot,
    CpuAllocation,
    Job,
    JobState,
    Migrate,
    MissingEvaluation,
    Mobility,
    Move,
    MoveOutcome,
    MoveUnderWay,
    Node,
    Outcome,
    Promises,
    Resize,
    Restored,
)
from controller.ports import Clock

_NO_SERIES = JobSeries()


@dataclass(frozen=True, slots=True)
class LocalJob:
    """A job whose process runs on this machine."""

    name: str
    namespace: str
    started_at_seconds: float
    useful_parallelism_cores: float | None = None
    node: str = ONLY_NODE
    promises: Promises = NO_PROMISES
    migratable: bool = False
    mobility: Mobility | None = None
    ended: JobState | None = None
    """How it ended, if it was moved when it did: no process of it is left, and the pass must learn of it."""


class LocalObserver:
    """Joins what Prometheus knows of the jobs with what the limiter measures of them."""

    def __init__(
        self,
        reader: PrometheusReader,
        limiter: Limiter,
        running: Callable[[], Sequence[LocalJob]],
        clock: Clock,
        nodes: Sequence[Node],
        waiting: Callable[[], Sequence[Arrival]] = tuple,
        moving: Callable[[], Sequence[MoveUnderWay]] = tuple,
        missing: MissingEvaluations | None = None,
    ) -> None:
        """`running`: the jobs that run, and those that a move has just ended; `waiting`: those that have no node yet;
        `moving`: those on their way; `missing`: finds out why jobs report no evaluation.
        """
        self._reader = reader
        self._limiter = limiter
        self._running = running
        self._clock = clock
        self._nodes = tuple(nodes)
        self._waiting = waiting
        self._moving = moving
        self._missing = missing
        self.reading: PrometheusReading | None = None
        """What Prometheus knew in the last observation, also of jobs that have ended meanwhile; None: nothing."""

    def observe(self) -> ClusterSnapshot:
        """All jobs that run, wait or move now; ObservationError when Prometheus cannot be read."""
        now = self._clock.now()
        self.reading = None
        self.reading = reading = self._reader.read(now)
        moving = tuple(self._moving())  # before `running`: a job that arrives in between is then seen twice, not never
        running = self._running()
        causes = self._causes(running, reading, now)
        jobs = []
        for local in running:
            key = JobKey(local.namespace, local.name)
            job = self._job(local, reading.jobs.get(key, _NO_SERIES), causes.get(key))
            if job is not None:
                jobs.append(job)
        waiting = tuple(self._waiting())
        interval = self._reader.scrape_interval_seconds
        return ClusterSnapshot(now, self._nodes, tuple(jobs), interval, waiting, moving=moving)

    def _causes(
        self, running: Sequence[LocalJob], reading: PrometheusReading, now_seconds: float
    ) -> Mapping[JobKey, MissingEvaluation]:
        """Why jobs that should by now report no evaluation."""
        if self._missing is None:
            return {}
        keys = {JobKey(local.namespace, local.name): local for local in running if local.ended is None}
        silent = (
            unheard(key, reading.jobs.get(key, _NO_SERIES), now_seconds - local.started_at_seconds)
            for key, local in keys.items()
        )
        return self._missing.of((job for job in silent if job is not None), now_seconds)

    def _job(self, local: LocalJob, series: JobSeries, missing: MissingEvaluation | None) -> Job | None:
        """The job as the pass sees it; None when its process ended while we looked."""
        if local.ended is not None:
            allocation, usage = UNLIMITED, None
        else:
            try:
                allocation = self._limiter.read(local.name)
                usage = self._limiter.usage(local.name)
            except ActuationError:
                return None
        return Job(
            uid=local.name,
            name=local.name,
            namespace=local.namespace,
            node=local.node,
            state=local.ended or series.reported_state,
            started_at_seconds=local.started_at_seconds,
            allocation=allocation,
            evaluation=series.evaluation,
            usage=usage,
            steps_total=series.steps_total,
            steps_planned=series.steps_planned,
            useful_parallelism_cores=local.useful_parallelism_cores,
            restarted=series.restarted,
            life_started_at_seconds=series.life_started_at_seconds,
            first_step_at_seconds=series.first_step_at_seconds,
            warnings=with_missing(series.warnings, missing),
            responses=series.responses,
            promises=local.promises,
            migratable=local.migratable,
            checkpoint=series.checkpoint,
            mobility=local.mobility,
            missing_evaluation=missing,
        )


class LocalActuator:
    """Writes limits or weights of process groups, and says where jobs start and where they go."""

    def __init__(
        self, limiter: Limiter, place: Callable[[str, str], None], migrate: Callable[[Migrate], MoveOutcome]
    ) -> None:
        """`place`: starts a waiting job, by uid, on a node, by name; ActuationError when that cannot be.

        `migrate`: begins the move of a running one, and says what becomes of it.
        """
        self._limiter = limiter
        self._place = place
        self._migrate = migrate

    def resize(self, resize: Resize) -> Outcome:
        """Applied, or `ActuationError`; this machine defers nothing."""
        if resize.control == "requests":
            self._limiter.set_request(resize.job_uid, resize.to_millicores)
        else:
            self._limiter.set_limit(resize.job_uid, resize.to_millicores)
        return Outcome(resize, "applied")

    def move(self, move: Move) -> MoveOutcome:
        """Start a waiting job on its node, or begin to move a running one, within a tenth of a second."""
        if isinstance(move, Migrate):
            return self._migrate(move)
        self._place(move.job_uid, move.node)
        return MoveOutcome(move, "applied")

    def restore(self, job_uid: str, original: CpuAllocation) -> Restored:
        """Give the job back what it had; one that is gone needs nothing."""
        self._limiter.restore(job_uid, original)
        return Restored("applied")


class DryRunActuator:
    """Carries nothing out: what `--dry-run` plugs in instead."""

    def resize(self, resize: Resize) -> Outcome:
        """What would have been done."""
        return Outcome(resize, "deferred", "dry run: nothing was changed")

    def move(self, move: Move) -> MoveOutcome:
        """What would have been done."""
        return MoveOutcome(move, "deferred", "dry run: nothing was changed")

    def restore(self, job_uid: str, original: CpuAllocation) -> Restored:
        """Nothing was changed, so nothing comes back."""
        return Restored("applied", "dry run: nothing was changed")
