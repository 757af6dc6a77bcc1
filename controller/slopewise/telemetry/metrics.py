"""Records each pass: one structured log line, and the metrics of docs/metrics.md."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, get_args

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from slopewise import __version__
from slopewise.errors import SlopewiseError
from slopewise.guards.review import guard_names
from slopewise.model import (
    CpuControl,
    Migrate,
    MoveBounds,
    MoveEvent,
    MoveStage,
    OutcomeResult,
    PassReport,
    Place,
    Stop,
)
from slopewise.telemetry.benefit import MovedCpu
from slopewise.telemetry.job_metrics import LastPasses
from slopewise.telemetry.log_line import PassLines, kind_of, withheld_by_guard, without_figures
from slopewise.telemetry.log_lines import configure_logging
from slopewise.telemetry.move_bounds import MoveBoundMetrics
from slopewise.text import equal_messages

__all__ = ["Instruments", "Telemetry", "configure_logging"]

QUERY_OUTCOMES = ("answered", "failed")
VERBS = ("observe", "decide", "guard", "act", "report")
MOVE_KINDS = ("place", "migrate")
MOVE_STAGES: tuple[MoveStage, ...] = get_args(MoveStage)
OUTCOMES: tuple[OutcomeResult, ...] = get_args(OutcomeResult)
_PAUSE_BUCKETS = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
_PASS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Instruments:
    """The counters and gauges of one process, in a registry of their own; all policies share them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.last = LastPasses()
        self.moved_cpu = MovedCpu(self.registry)
        self.registry.register(self.last)
        gauge("slopewise_build_info", "Version of the controller.", ["version"]).labels(__version__).set(1)
        self.passes = counter("slopewise_passes", "Passes by result.", ["result"])
        self.durations = histogram(
            "slopewise_pass_duration_seconds", "Time of each verb of a pass.", ["verb"], buckets=_PASS_BUCKETS
        )
        self.queries = histogram(
            "slopewise_query_duration_seconds", "Time of each query to Prometheus.", ["outcome"], buckets=_PASS_BUCKETS
        )
        self.outage = gauge(
            "slopewise_outage",
            "1 once no pass has observed for three intervals, so that original resources are restored.",
            ["name"],
        )
        self.left_out = gauge(
            "slopewise_left_out_series",
            "Series of a pod that is left out of readings because it has too many.",
            ["name", "job_namespace", "job_name"],
        )
        self.last_pass = gauge("slopewise_last_pass_timestamp_seconds", "End of the last pass that observed.")
        self.interval = gauge("slopewise_interval_seconds", "Time from the last pass to the next planned one.")
        self.resizes = counter("slopewise_resizes", "Resizes by outcome.", ["outcome"])
        self.moves = counter("slopewise_moves", "Placements and migrations by outcome.", ["kind", "outcome"])
        self.migrations = counter("slopewise_migrations", "Migrations by how far they have come.", ["stage"])
        self.pauses = histogram(
            "slopewise_move_pause_seconds",
            "From the begin of a move to the job's first step elsewhere.",
            buckets=_PAUSE_BUCKETS,
        )
        self.steps_lost = counter("slopewise_move_steps_lost", "Steps that moved jobs had to repeat.")
        self.stops = counter("slopewise_stops", "Stops of jobs at their target, by outcome.", ["outcome"])
        self.withheld = counter("slopewise_withheld", "Resizes, moves and stops that a guard withheld.", ["guard"])
        self.move_bounds = MoveBoundMetrics(self.registry)
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        """A counter that appears with its first event hides that event from `increase` and from alerts."""
        for result in ("ok", "held", "failed"):
            self.passes.labels(result)
        for verb in VERBS:
            self.durations.labels(verb)
        for outcome in QUERY_OUTCOMES:
            self.queries.labels(outcome)
        for outcome in OUTCOMES:
            self.resizes.labels(outcome)
            self.stops.labels(outcome)
            for kind in MOVE_KINDS:
                self.moves.labels(kind, outcome)
        for stage in MOVE_STAGES:
            self.migrations.labels(stage)
        for guard in guard_names():
            self.withheld.labels(guard)


class Telemetry:
    """Metrics and log lines of one policy's passes."""

    def __init__(
        self,
        *,
        control: CpuControl,
        interval_seconds: float,
        document: str = "default",
        instruments: Instruments | None = None,
        moving: MoveBounds | None = None,
    ) -> None:
        """`document`: the name of the policy document; `instruments`: where other policies are counted, too.

        `moving`: what bounds its moves; None: nothing does.
        """
        self._document = document
        self._metrics = instruments or Instruments()
        self._log = structlog.get_logger("slopewise")
        self.describe(control, interval_seconds, moving)
        self._warned: set[tuple[str, str]] = set()
        self._left_out: frozenset[tuple[str, str]] = frozenset()
        """Pods by namespace and name."""

    def describe(self, control: CpuControl, interval_seconds: float, moving: MoveBounds | None) -> None:
        """What the document says from now on."""
        self._control = control
        self._metrics.interval.set(interval_seconds)
        self._metrics.move_bounds.show(self._document, moving)
        self._lines = PassLines(interval_seconds)

    @property
    def registry(self) -> CollectorRegistry:
        """The registry of /metrics."""
        return self._metrics.registry

    def forget(self) -> None:
        """Remove a deleted policy's jobs from the metrics."""
        self._metrics.last.forget(self._document)
        self._metrics.move_bounds.forget(self._document)
        self.record_left_out({})
        with suppress(KeyError):
            self._metrics.outage.remove(self._document)
        self._metrics.moved_cpu.forget(self._document)

    def record(self, report: PassReport) -> None:
        """Record one pass: metrics and the log line."""
        self._metrics.last.replace_pass(self._document, report, self._control)
        self._metrics.moved_cpu.replace_pass(self._document, report, self._control)
        self._metrics.passes.labels("held" if report.held else "ok").inc()
        for verb, seconds in report.seconds_by_verb.items():
            self._metrics.durations.labels(verb).observe(seconds)
        for outcome in OUTCOMES:
            self._metrics.resizes.labels(outcome).inc(report.count(outcome))
        for moved in report.results.of(Place, Migrate):
            self._metrics.moves.labels(kind_of(moved.decision), moved.result).inc()
        for stop in report.results.of(Stop):
            self._metrics.stops.labels(stop.result).inc()
        for event in report.results.events:
            self._count_move(event)
        self._metrics.move_bounds.count(self._document, report)
        for guard, times in withheld_by_guard(report).items():
            self._metrics.withheld.labels(guard).inc(times)
        if not report.held:
            self._metrics.last_pass.set(report.taken_at_seconds + sum(report.seconds_by_verb.values()))
        self._metrics.interval.set(max(0.0, report.requeue_at_seconds - report.taken_at_seconds))
        self._log_pass(report)
        self._log_warnings(report)

    def _count_move(self, event: MoveEvent) -> None:
        """Count a stage of a migration; one that resumed on its own node has no pause."""
        pause = event.record.pause_seconds
        if event.stage == "resumed":
            if pause is not None:
                self._metrics.pauses.observe(pause)
            self._metrics.steps_lost.inc(event.record.steps_lost or 0.0)
        self._metrics.migrations.labels(event.stage).inc()

    def record_duration(self, verb: str, seconds: float) -> None:
        """Record the duration of `report`, which ends after `record`."""
        self._metrics.durations.labels(verb).observe(seconds)

    def record_query(self, outcome: str, seconds: float) -> None:
        """Record one query to Prometheus, which is one of `observe`."""
        self._metrics.queries.labels(outcome).observe(seconds)

    def record_outage(self, *, lasts: bool) -> None:
        """Record whether original resources are restored because no pass observes."""
        self._metrics.outage.labels(self._document).set(lasts)
        if lasts:
            self._metrics.moved_cpu.note_restored(self._document)

    def record_left_out(self, series: Mapping[Any, int]) -> None:
        """Record the pods, by namespace and name, that the reading leaves out, and how many series each has."""
        for pod in self._left_out - series.keys():
            self._metrics.left_out.remove(self._document, *pod)
        for pod, count in series.items():
            self._metrics.left_out.labels(self._document, *pod).set(count)
        self._left_out = frozenset(series)

    def record_failure(self, error: BaseException) -> None:
        """Record a pass that raised: the message of an expected error, the traceback of a bug."""
        self._metrics.passes.labels("failed").inc()
        if isinstance(error, SlopewiseError):
            self._log.error("pass failed", name=self._document, reason=str(error))
        else:
            self._log.error("pass failed", name=self._document, exc_info=error)

    def record_missed(self, event: str) -> None:
        """Record a run that the scheduler skipped."""
        self._log.warning("pass skipped", name=self._document, reason=event)

    def _log_warnings(self, report: PassReport) -> None:
        """Log each warning of a job once, whatever its figures, equal ones of a pass as one; forget deleted jobs'."""
        jobs = report.snapshot.jobs if report.snapshot else ()
        here = {job.uid for job in jobs}
        self._warned = {(uid, warning) for uid, warning in self._warned if uid in here}
        raised = [
            (job, each)
            for job in jobs
            for each in dict.fromkeys(job.warnings)
            if (job.uid, without_figures(each)) not in self._warned
        ]
        self._warned.update((job.uid, without_figures(warning)) for job, warning in raised)
        for warning, names in equal_messages((f"{job.namespace}/{job.name}", each) for job, each in raised).items():
            others = {"others": names[1:]} if names[1:] else {}
            self._log.warning("job warning raised", job=names[0], warning=warning, **others)

    def _log_pass(self, report: PassReport) -> None:
        facts = self._lines.facts(report)
        if facts is None:
            return
        about: dict[str, object] = {"name": self._document, "policy": report.policy}
        milliseconds = {f"{verb}_ms": round(1000 * s, 1) for verb, s in report.seconds_by_verb.items()}
        if report.held:
            self._log.warning("pass held", **about, **facts, **milliseconds)
            return
        requeue_after = round(report.requeue_at_seconds - report.taken_at_seconds, 1)
        self._log.info("pass completed", **about, **facts, requeue_after_s=requeue_after, **milliseconds)
