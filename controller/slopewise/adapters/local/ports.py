"""Observer, Actuator and Memory of this machine: read Prometheus and cgroups, write cgroups and one JSON file.

They are FlowCon's test-bed, without Docker.
A job is a process group that `supervisor.py` started. Its name is its uid and its `pod` label, and the namespace is
its run. `nodes.py` defines the nodes of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from slopewise.adapters.local.limiters.choose import Limiter
from slopewise.adapters.local.stored_files import replace_file
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.missing_evaluations import MissingEvaluations, unreachable, with_missing
from slopewise.adapters.prometheus.reader import JobSeries, PrometheusReader, PrometheusReading
from slopewise.errors import ActuationError, SlopewiseError
from slopewise.estimators.speed import stated_cores
from slopewise.model import (
    MEMORY_JSON,
    Arrival,
    Backoff,
    ClusterSnapshot,
    CpuAllocation,
    Decision,
    Job,
    JobMemory,
    JobState,
    MemoryAllocation,
    MemoryState,
    Migrate,
    MissingEvaluation,
    Move,
    MoveUnderWay,
    Node,
    Observation,
    Outcome,
    Place,
    Resize,
    ResizeMemory,
    Restored,
    Stop,
    read_memory_state,
)
from slopewise.own_policies.catalogue import favour_warnings
from slopewise.ports import Clock, Memory

_NO_SERIES = JobSeries()

_CLOCK_SECONDS = 2.0
"""The start of a process is known from that of the machine, which the system has in whole seconds."""


@dataclass(slots=True)
class LocalObserver:
    """Joins the jobs' series in Prometheus with the measurements of the limiter."""

    reader: PrometheusReader
    limiter: Limiter
    running: Callable[[], Sequence[Job]]
    """The jobs that run, and those that just ended during a move, of which no process is left."""
    clock: Clock
    nodes: Callable[[], Sequence[Node]]
    """With the CPU that other programs leave now."""
    waiting: Callable[[], Sequence[Arrival]] = tuple
    moving: Callable[[], Sequence[MoveUnderWay]] = tuple
    missing: MissingEvaluations | None = None
    """Finds out why jobs report no evaluation."""
    policy: str = ""
    """Its name, for warnings about what it does not do."""
    former_ends: Callable[[], Mapping[str, float]] = dict
    """When the jobs ended whose names others have now: what they have reported is read for some scrapes more."""
    _states: dict[str, tuple[float, JobState]] = field(init=False, default_factory=dict)
    """By job, when its process was started, and the last state that it has reported."""

    def observe(self) -> Observation:
        """All jobs that run, wait or move now; ObservationError when Prometheus cannot be read.

        The notes are the reading, also of jobs that have ended since.
        """
        now = self.clock.now()
        reading, ends = self.reader.read(now), self.former_ends()
        own = {key: _since(ends[key.pod], each) if key.pod in ends else each for key, each in reading.jobs.items()}
        reading = replace(reading, jobs=own)
        moving = tuple(self.moving())  # before `running`: a job arriving in between is observed twice, not missed
        running = {JobKey(job.namespace, job.name): job for job in self.running()}
        self._states = {job.name: self._states[job.name] for job in running.values() if job.name in self._states}
        causes = self._causes(running, reading, now)
        seen = (self._seen(job, reading.jobs.get(key, _NO_SERIES), causes.get(key)) for key, job in running.items())
        jobs, interval = tuple(job for job in seen if job is not None), self.reader.scrape_interval_seconds
        snapshot = ClusterSnapshot(now, tuple(self.nodes()), jobs, interval, tuple(self.waiting()), moving=moving)
        return Observation(snapshot, reading)

    def _causes(
        self, running: Mapping[JobKey, Job], reading: PrometheusReading, now_seconds: float
    ) -> Mapping[JobKey, MissingEvaluation]:
        """Why jobs that should report an evaluation by now do not."""
        if self.missing is None:
            return {}
        unheard = {key: job.missing_evaluation for key, job in running.items() if job.missing_evaluation is not None}
        silent = (
            unreachable(key, reading.jobs.get(key, _NO_SERIES), now_seconds - job.started_at_seconds)
            for key, job in running.items()
            if key not in unheard and not job.state.ended
        )
        return {**unheard, **self.missing.of((job for job in silent if job is not None), now_seconds)}

    def _seen(self, job: Job, series: JobSeries, missing: MissingEvaluation | None) -> Job | None:
        """The job of the snapshot; None when its process ended during the observation."""
        if not job.state.ended:
            try:
                allocation, usage = self.limiter.read(job.name), self.limiter.usage(job.name)
            except ActuationError:
                return None
            job = job.altered(state=self._state(job, series, missing), allocation=allocation, usage=usage)
        objectives = job.objectives.in_study(series.study)
        useless = favour_warnings(objectives, self.policy, reports=series.evaluation is not None)
        return job.altered(
            objectives=objectives,
            evaluation=series.evaluation,
            steps_total=series.steps_total,
            steps_planned=job.steps_planned if series.steps_planned is None else series.steps_planned,
            wait_ratio=series.wait_ratio,
            waited_seconds_total=series.waited_seconds_total,
            threads=series.threads,
            useful_parallelism_cores=stated_cores(job.useful_parallelism_cores, series.useful_threads),
            restarted=series.restarted,
            process_started_at_seconds=series.process_started_at_seconds,
            first_step_at_seconds=series.first_step_at_seconds,
            warnings=(*with_missing(series.warnings, missing), *useless),
            responses=series.responses,
            checkpoint=series.checkpoint,
            missing_evaluation=missing,
            points=series.points,
        )

    def _state(self, job: Job, series: JobSeries, missing: MissingEvaluation | None) -> JobState:
        """As it reports, or has reported last: one whose scrapes come late is not starting again.

        A silent job is training, whatever it did last: no guard waits for a checkpoint whose end is never reported.
        One that still accepts connections may be busy saving.
        """
        state, (started, last) = series.reported_state, self._states.get(job.name, (0.0, JobState.STARTING))
        if series.state is None and series.responses is None and started == job.started_at_seconds:
            is_silent = missing is not None and missing.reason != "ScrapeTimesOut"
            return JobState.TRAINING if is_silent and last is JobState.CHECKPOINTING else last
        self._states[job.name] = job.started_at_seconds, JobState.STARTING if state.ended else state
        return state


def _since(end_seconds: float, series: JobSeries) -> JobSeries:
    """What is newer than the end of the job that reported under this name before."""
    started, seen = series.process_started_at_seconds, series.evaluation
    if started is not None and started <= end_seconds - _CLOCK_SECONDS:
        return JobSeries(up=series.up, instances=series.instances)
    if seen is None or seen.sampled_at_seconds > end_seconds:
        return series
    return msgspec.structs.replace(series, evaluation=None, points=())


@dataclass(frozen=True, slots=True)
class LocalActuator:
    """Writes limits or weights of process groups, places jobs and moves them."""

    limiter: Limiter
    place: Callable[[str, str], None]
    """Starts a waiting job, by uid, on a node, by name; ActuationError when that cannot be."""
    migrate: Callable[[Migrate], Outcome[Move]]
    """Begins the move of a running job and returns the outcome."""
    stop: Callable[[Stop], Outcome[Stop]]
    """Has one save and end."""

    def carry_out(self, decision: Decision) -> Outcome[Decision]:
        """Applied, or `ActuationError`; this machine defers nothing. A move or a stop begins within 0.1 s."""
        match decision:
            case Resize(control="requests"):
                self.limiter.set_request(decision.job_uid, decision.to_millicores)
            case Resize():
                self.limiter.set_limit(decision.job_uid, decision.to_millicores)
            case ResizeMemory():
                return Outcome(decision, "infeasible", "memory is not changed on one machine")
            case Place():
                self.place(decision.job_uid, decision.node)
            case Migrate():
                return self.migrate(decision)
            case Stop():
                return self.stop(decision)
        return Outcome(decision, "applied")

    def restore(self, job_uid: str, original: CpuAllocation, memory: MemoryAllocation | None = None) -> Restored:
        """Restore the job's original allocation; a job that has ended needs nothing."""
        self.limiter.restore(job_uid, original)
        return Restored("applied")


class DryRunActuator:
    """The Actuator of `--dry-run`, which carries nothing out."""

    def carry_out(self, decision: Decision) -> Outcome[Decision]:
        """What would have been done."""
        why = f" ({decision.reason})" if isinstance(decision, Stop) else ""
        return Outcome(decision, "deferred", f"dry run: nothing was changed{why}")

    def restore(self, job_uid: str, original: CpuAllocation, memory: MemoryAllocation | None = None) -> Restored:
        """Nothing was changed, so there is nothing to restore."""
        return Restored("applied", "dry run: nothing was changed")


def _of_next_run(job: JobMemory) -> JobMemory:
    """Without the fields of one run and its cgroups: counters and resources restart."""
    return job.altered(
        levels=job.levels.altered(anchor=None),
        timing=job.timing.altered(anchor=None, answering=None),
        original=None,
        last_resized_at_seconds=None,
        change=None,
        backoff=Backoff(),
    )


def inherit(former: Path, path: Path) -> None:
    """Begin the memory at `path` with the measurements of a killed run, if they can be read."""
    with suppress(SlopewiseError, OSError):
        state = FileMemory(former).load()
        known = {uid: _of_next_run(job) for uid, job in state.jobs.items()}
        FileMemory(path).save(MemoryState(known, classes=state.classes))


def forget(memory: Memory, names: Collection[str]) -> None:
    """Remove what is known of jobs whose names others have from now on."""
    if names:
        known = memory.load()
        jobs = {uid: job for uid, job in known.jobs.items() if uid not in names}
        departed = tuple(each for each in known.departed if each.job_uid not in names)
        memory.save(replace(known, jobs=jobs, departed=departed))


class FileMemory:
    """Reads the file once, then caches the state; writes the whole file, and only when the state changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state: MemoryState | None = None

    def load(self) -> MemoryState:
        """The stored state, an empty one where there is no file; SlopewiseError when the file is damaged."""
        if self._state is None:
            self._state = self._read()
        return self._state

    def save(self, state: MemoryState) -> None:
        """Replace the file atomically: a crash leaves the former state."""
        if state == self._state:
            return
        replace_file(self._path, MEMORY_JSON.encode(state))
        self._state = state

    def _read(self) -> MemoryState:
        try:
            return read_memory_state(self._path.read_bytes())
        except FileNotFoundError:
            return MemoryState()
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise SlopewiseError(
                f"{self._path}: the controller's memory is damaged ({error}); "
                "restore it from a copy, or remove it to start with an empty one."
            ) from error
