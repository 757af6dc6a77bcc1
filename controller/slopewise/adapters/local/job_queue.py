"""Which waiting jobs are started now, and why the others wait: their order, places, jobs before them, memory.

Jobs are started in the order of the list. One for which no place or too little memory is left holds up those behind it,
so that smaller jobs do not keep a large one waiting; one that has not arrived, comes after others, or whose study has
all its places taken, holds up none.

Worked example: of four jobs on two cores with `maxRunning` 2 the first runs, the second comes after the first, the
third and the fourth have arrived: the third is started, and the fourth waits for a place.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import psutil

from slopewise.adapters.local.job_record import CANCELLED, CUT_OFF, SUCCEEDED, JobRecord
from slopewise.adapters.pauses import JOB_START
from slopewise.config.jobs_file import Queueing
from slopewise.errors import ActuationError
from slopewise.model import JobState, Usage
from slopewise.text import mebibytes

LEAST_BYTES = 256 * 2**20
"""What a job is expected to need of which nothing is known: a Python with its libraries."""

LOOK_SECONDS = 1.0
"""Between two looks at the memory of the jobs, which read all of their processes."""

REPORT_SECONDS = 15.0
"""How long after its end a job whose exit status is not known may be found to have reported how it ended: three
scrapes of 5 s."""

_REPORTING = "reporting"
"""State of a job that ended less long ago."""

_OVER = SUCCEEDED | {"ended"}
"""Once its controller was killed only a job itself can say how it ended; where it has not, it counts as over."""

_LOST = {"failed": "has failed", CUT_OFF: CUT_OFF, CANCELLED: "was cancelled"}


@dataclass(frozen=True, slots=True)
class Queued:
    """A job as the queue sees it."""

    name: str
    state: str
    """As of its record."""
    due: bool
    """It has arrived, as far as its own times say."""
    queueing: Queueing
    expected_bytes: int = LEAST_BYTES
    """What it needs at its most."""
    used_bytes: int = 0
    """What it has now."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose turn it is."""

    start: tuple[str, ...]
    waits: Mapping[str, str]
    """Why each of the others waits."""
    never: Mapping[str, str]
    """Jobs that can never be started, because one before them has failed."""


def turn(jobs: Iterable[Queued], max_running: int | None, available_bytes: float) -> Turn:
    """Decide about all jobs that wait; `available_bytes`: memory that the machine has left."""
    listed = list(jobs)
    running = [job for job in listed if job.state in ("running", "moving", "stopping")]
    free = available_bytes - sum(max(0, job.expected_bytes - job.used_bytes) for job in running)
    places, start, held = len(running), [], ""
    of_study = Counter(job.queueing.study for job in running)
    waits: dict[str, str] = {}
    never: dict[str, str] = {}
    for job in listed:
        if job.state != "waiting":
            continue
        after = job.queueing.after
        before = [each for each in listed if each is not job and _is_named(each, after)] if after else []
        lost = [each for each in before if each.state in _LOST]
        left = [each.name for each in before if each.state not in _OVER]
        if lost:
            never[job.name] = f"not started: {lost[0].name}, after which it comes, {_LOST[lost[0].state]}"
        elif left:
            waits[job.name] = f"waits for the end of {left[0]}{f' and {len(left) - 1} more' if left[1:] else ''}"
        elif not job.due:
            waits[job.name] = "starts later" if not job.queueing.attempt else "is started again after a pause"
        elif (most := job.queueing.max_running) is not None and of_study[study := job.queueing.study] >= most:
            waits[job.name] = f"waits for a place in {study}: {of_study[study]} of {most} run"
        elif held:
            waits[job.name] = held
        elif max_running is not None and places >= max_running:
            waits[job.name] = held = f"waits for a place: {places} of {max_running} run"
        elif job.expected_bytes > free and (places or job.queueing.memory_bytes is not None):
            waits[job.name] = (
                f"waits for memory: needs {mebibytes(job.expected_bytes)}, {mebibytes(max(0.0, free))} left"
            )
            held = f"waits behind {job.name}, which waits for memory"
        else:
            start.append(job.name)
            places, free = places + 1, free - job.expected_bytes
            of_study[job.queueing.study] += 1
    return Turn(tuple(start), waits, never)


def _is_named(job: Queued, names: tuple[str, ...]) -> bool:
    return job.name in names or (job.queueing.study != "" and job.queueing.study in names)


def again(record: JobRecord, after_seconds: float) -> JobRecord | None:
    """The next attempt of a job that has failed, `after_seconds` of the run; None: there is none."""
    spec, queueing = record.spec, record.spec.queueing
    if record.state != "failed" or record.started_at_seconds is None or queueing.attempt >= queueing.restarts:
        return None
    following = replace(queueing, attempt=queueing.attempt + 1)
    pause = JOB_START.after(following.attempt)
    spec = replace(spec, arrive_seconds=after_seconds + pause, queueing=following)
    return JobRecord(spec, record.port, earlier_cpu_seconds=record.cpu_seconds or 0.0)


@dataclass(slots=True)
class JobQueue:
    """The queue of one session, with what its jobs use."""

    usage: Callable[[str], Usage]
    """Of a running job, by its name; ActuationError when it has just ended."""
    max_running: int | None = None
    reported: Callable[[str], JobState | None] = lambda _: None
    """The last state that a job, by its name, has reported itself."""
    waits: Mapping[str, str] = field(init=False, default_factory=dict)
    """Why jobs wait, as of the last turn."""
    _used: dict[str, int] = field(init=False, default_factory=dict)
    _peaks: dict[str, int] = field(init=False, default_factory=dict)
    """By workload class; a job without one is a class of its own."""
    _looked_at: float = field(init=False, default=-LOOK_SECONDS)

    def turn(self, records: Mapping[str, JobRecord], now_seconds: float, begun_seconds: float) -> Turn:
        """Whose turn it is now, of these jobs of a run that began then."""
        if all(record.state != "waiting" or record.arrived_at_seconds is not None for record in records.values()):
            self.waits = {}
            return Turn((), {}, {})
        self._look(records)
        decided = turn(
            (self._queued(record, now_seconds, begun_seconds) for record in records.values()),
            self.max_running,
            float(psutil.virtual_memory().available),
        )
        self.waits = decided.waits
        return decided

    def _look(self, records: Mapping[str, JobRecord]) -> None:
        """Measure what the running jobs have, once a second."""
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at, self._used = time.monotonic(), {}
        for name, record in records.items():
            if record.state == "running":
                try:
                    used = round(self.usage(name).memory_bytes or 0)
                except ActuationError:
                    continue
                alike = _alike(record)
                self._used[name], self._peaks[alike] = used, max(used, self._peaks.get(alike, 0))

    def _queued(self, record: JobRecord, now_seconds: float, begun_seconds: float) -> Queued:
        queueing, name = record.spec.queueing, record.spec.name
        # One that has arrived and not begun has its place already.
        state = "running" if record.state == "waiting" and record.arrived_at_seconds is not None else record.state
        state = self._how_it_ended(record, now_seconds) if state == "ended" else state
        # What jobs like it have used; 0 where all are started that have arrived.
        expected = 0 if self.max_running is None else max(LEAST_BYTES, self._peaks.get(_alike(record), 0))
        return Queued(
            name,
            state,
            now_seconds - begun_seconds >= record.spec.arrive_seconds,
            queueing,
            queueing.memory_bytes or expected,
            self._used.get(name, 0),
        )

    def _how_it_ended(self, record: JobRecord, now_seconds: float) -> str:
        """The state of one whose exit status is not known."""
        if record.last_output_lines == CUT_OFF:
            return CUT_OFF
        reported = self.reported(record.spec.name)
        if reported is not None and reported.ended:
            return str(reported)
        just_ended = now_seconds - (record.finished_at_seconds or 0.0) < REPORT_SECONDS
        return _REPORTING if just_ended else "ended"


def _alike(record: JobRecord) -> str:
    return record.spec.workload_class or record.spec.name
