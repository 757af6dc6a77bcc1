"""Runs passes on ticks and on events, one at a time, on APScheduler.

A pass returns the time of the next one (FlowCon backs off); an event (a job started or ended) runs a pass at once.
APScheduler drops a run that is more than a second late, and a hung run stops its schedule without a message: hence
`coalesce`, `max_instances=1`, a grace of at least one interval, listeners for skipped runs, and `is_alive`, which fails
after three intervals without a pass. Each pass has a daemon thread, so that a hung read does not block the end of the
process.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobEvent
from apscheduler.executors.base import BaseExecutor, run_job
from apscheduler.job import Job
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from slopewise.model import PassReport
from slopewise.telemetry.metrics import Telemetry

ALIVE_INTERVALS = 3
"""Without a pass for this many intervals the loop counts as dead."""

SOON_SECONDS = 0.05

Sink = Callable[[PassReport], None]


def calm_garbage_collector() -> None:
    """Collect garbage less often: a pass over 10,000 jobs makes 100,000 small objects that all live to its end.

    Python collects every 700 new objects; that took a fifth of such a pass (0.23 s, and 0.19 s like this).
    Called once, when everything is imported.
    """
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)


class ControllerLoop:
    """Runs `run_pass` on ticks and events until it is stopped; hands each report to telemetry and the sinks."""

    def __init__(
        self,
        run_pass: Callable[[], PassReport | None],
        telemetry: Telemetry,
        interval_seconds: float,
        sinks: Sequence[Sink] = (),
    ) -> None:
        """`run_pass` returns None where there was nothing to do and nothing is to be reported."""
        self._run_pass = run_pass
        self._telemetry = telemetry
        self.interval_seconds = interval_seconds
        self._sinks = tuple(sinks)
        self._triggered = threading.Event()
        self._stopping = threading.Event()
        self._planning = threading.Lock()
        self._busy = threading.Lock()
        self._planned_seconds = interval_seconds
        self._last_end = time.monotonic()
        self.passes = 0
        self.passes_held = 0
        self.cpu_seconds = 0.0
        """CPU time that passes and their reporting took on the scheduler's thread."""
        self._job: Job | None = None
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": _DaemonThreads()},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": max(1, round(interval_seconds))},
        )
        self._scheduler.add_listener(self._on_skipped, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)

    def start(self) -> None:
        """Run the first pass now, and each next one when the last one requested it."""
        every = IntervalTrigger(seconds=self.interval_seconds, timezone=UTC)
        self._job = self._scheduler.add_job(self._tick, every, next_run_time=datetime.now(UTC), name="pass")
        self._scheduler.start()

    def trigger(self) -> None:
        """Run a pass at once.

        During a pass, another one follows it; before `start`, the first pass covers the event.
        """
        self._triggered.set()
        if not self._busy.locked():
            self._plan(0.0)

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Start no further pass and wait for the current one (None: without a timeout). True: no pass runs any more.

        May be called again, and before `start`.
        """
        with self._planning:
            self._stopping.set()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        idle = self._busy.acquire(timeout=-1 if timeout_seconds is None else timeout_seconds)
        if idle:
            self._busy.release()
        return idle

    @property
    def busy(self) -> bool:
        """True during a pass."""
        return self._busy.locked()

    @property
    def stopping(self) -> bool:
        """True after `stop` was called; a pass may still run."""
        return self._stopping.is_set()

    def is_alive(self) -> bool:
        """False once no pass has ended for three times as long as the last one planned to wait; true when stopped."""
        if self.stopping:
            return True
        bound = ALIVE_INTERVALS * max(self._planned_seconds, self.interval_seconds)
        return time.monotonic() - self._last_end <= bound

    def seconds_since_pass(self) -> float:
        """Since the last pass ended, or the loop was made."""
        return time.monotonic() - self._last_end

    def _tick(self) -> None:
        again = True
        while again and not self._stopping.is_set():
            self._triggered.clear()
            self._one_pass()
            again = self._triggered.is_set()

    def _one_pass(self) -> None:
        with self._busy:
            if not self._stopping.is_set():  # the caller of `stop` relies on it once `_busy` is free
                self._timed_pass()

    def _timed_pass(self) -> None:
        started = time.thread_time()
        planned = self.interval_seconds
        try:
            report = self._run_pass()
            if report is not None:
                planned = self._hand_on(report)
        except Exception as error:
            # A full disk or a bug must not end the loop: the next pass observes again.
            self._telemetry.record_failure(error)
        finally:
            self.passes += 1
            self.cpu_seconds += time.thread_time() - started
            self._last_end = time.monotonic()
        self._planned_seconds = planned
        self._plan(planned)

    def _plan(self, seconds: float) -> None:
        """Let the next pass start in so many seconds, unless the loop has stopped or not begun.

        Under the lock of `stop`: after a shutdown APScheduler has no jobs, and `modify` would raise JobLookupError at
        the end of the last pass.
        """
        with self._planning:
            if self._job is not None and not self._stopping.is_set():
                self._job.modify(next_run_time=datetime.fromtimestamp(time.time() + seconds, UTC))

    def _hand_on(self, report: PassReport) -> float:
        """Pass the report to telemetry and the sinks; returns the seconds until the next planned pass."""
        start = time.monotonic()
        self.passes_held += report.held is not None
        self._telemetry.record(report)
        for sink in self._sinks:
            sink(report)
        self._telemetry.record_duration("report", time.monotonic() - start)
        return max(0.0, report.requeue_at_seconds - time.time())

    def _on_skipped(self, event: JobEvent) -> None:
        if event.code == EVENT_JOB_MISSED:
            self._telemetry.record_missed("missed its time")
        elif self._triggered.is_set():  # an event between the end of a pass and APScheduler's noticing it
            self._plan(SOON_SECONDS)
        else:
            self._telemetry.record_missed("the one before is still running")


class _DaemonThreads(BaseExecutor):  # type: ignore[misc]  # the package has no types
    """A thread for each run. The pool that comes with APScheduler is waited for when the interpreter ends."""

    def _do_submit_job(self, job: Job, run_times: Sequence[datetime]) -> None:
        threading.Thread(target=self._run, args=(job, run_times), name="pass", daemon=True).start()

    def _run(self, job: Job, run_times: Sequence[datetime]) -> None:
        try:
            events = run_job(job, "default", run_times, self._logger.name)
        except BaseException as error:
            self._run_job_error(job.id, error, error.__traceback__)
        else:
            self._run_job_success(job.id, events)
