"""The ports of this machine: Prometheus and cgroups in, cgroups out. FlowCon's own test-bed, without Docker.

`session.py` plugs these into passes. A job is a process group that `supervisor.py` started; its name is its uid and
its `pod` label, and the namespace is the run it belongs to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from controller.adapters.limiters.base import Limiter
from controller.adapters.limiters.mounts import own_quota_cores
from controller.adapters.prometheus import JobSeries, PrometheusReader
from controller.adapters.prometheus_series import JobKey
from controller.errors import ActuationError
from controller.model import ClusterSnapshot, CpuAllocation, Job, JobState, Move, MoveOutcome, Node, Outcome, Resize
from controller.ports import Clock

NODE_NAME = "local"
_NO_SERIES = JobSeries()


@dataclass(frozen=True, slots=True)
class LocalJob:
    """A job whose process runs on this machine."""

    name: str
    namespace: str
    started_at_seconds: float
    useful_parallelism_cores: float | None = None


def this_node() -> Node:
    """This machine as one node: the cores this process may use (affinity and quota), and all of the memory."""
    cores = min(float(len(os.sched_getaffinity(0))), own_quota_cores())
    return Node(NODE_NAME, cores, psutil.virtual_memory().total)


class LocalObserver:
    """Joins what Prometheus knows of the jobs with what the limiter measures of them."""

    def __init__(
        self,
        reader: PrometheusReader,
        limiter: Limiter,
        running: Callable[[], Sequence[LocalJob]],
        clock: Clock,
        node: Node,
    ) -> None:
        self._reader = reader
        self._limiter = limiter
        self._running = running
        self._clock = clock
        self._node = node

    def observe(self) -> ClusterSnapshot:
        """All jobs that run now; ObservationError when Prometheus cannot be read."""
        now = self._clock.now()
        reading = self._reader.read(now)
        jobs = []
        for local in self._running():
            series = reading.jobs.get(JobKey(local.namespace, local.name), _NO_SERIES)
            job = self._job(local, series)
            if job is not None:
                jobs.append(job)
        return ClusterSnapshot(now, (self._node,), tuple(jobs), self._reader.scrape_interval_seconds)

    def _job(self, local: LocalJob, series: JobSeries) -> Job | None:
        """The job as the pass sees it; None when its process ended while we looked."""
        try:
            allocation = self._limiter.read(local.name)
            usage = self._limiter.usage(local.name)
        except ActuationError:
            return None
        return Job(
            uid=local.name,
            name=local.name,
            namespace=local.namespace,
            node=self._node.name,
            state=series.state or JobState.STARTING,
            started_at_seconds=local.started_at_seconds,
            allocation=allocation,
            evaluation=series.evaluation,
            usage=usage,
            steps_total=series.steps_total,
            steps_planned=series.steps_planned,
            useful_parallelism_cores=local.useful_parallelism_cores,
            restarted=series.restarted,
            life_started_at_seconds=series.life_started_at_seconds,
            warnings=series.warnings,
        )


class LocalActuator:
    """Writes limits or weights of process groups."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    def resize(self, resize: Resize) -> Outcome:
        """Applied, or `ActuationError`; this machine defers nothing."""
        if resize.control == "requests":
            self._limiter.set_request(resize.job_uid, resize.to_millicores)
        else:
            self._limiter.set_limit(resize.job_uid, resize.to_millicores)
        return Outcome(resize, "applied")

    def move(self, move: Move) -> MoveOutcome:
        """This machine is one node so far: nothing can be placed or moved."""
        return MoveOutcome(move, "infeasible", "this machine has no other node")

    def restore(self, job_uid: str, original: CpuAllocation) -> None:
        """Give the job back what it had; one that is gone needs nothing."""
        self._limiter.restore(job_uid, original)


class DryRunActuator:
    """Carries nothing out: what `--dry-run` plugs in instead."""

    def resize(self, resize: Resize) -> Outcome:
        """What would have been done."""
        return Outcome(resize, "deferred", "dry run: nothing was changed")

    def move(self, move: Move) -> MoveOutcome:
        """What would have been done."""
        return MoveOutcome(move, "deferred", "dry run: nothing was changed")

    def restore(self, job_uid: str, original: CpuAllocation) -> None:
        """Nothing was changed, so nothing comes back."""
