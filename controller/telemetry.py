"""What the controller says of itself: one structured log line a pass, and the metrics of docs/metrics.md.

Comes after a pass: `loop.py` hands every PassReport to `Telemetry.record`. The figures of jobs and nodes are made in
`job_metrics.py`, what is in the line in `pass_line.py`.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from typing import get_args

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controller import __version__, move_guards
from controller.errors import SlopewiseError
from controller.job_metrics import LastPasses
from controller.log_lines import configure_logging
from controller.model import CpuControl, Job, MoveNews, MoveStage, OutcomeResult, PassReport
from controller.pass_line import PassLines, kind_of, withheld_by_guard

__all__ = ["Instruments", "Telemetry", "configure_logging"]

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
        self.last = LastPasses()
        self.registry.register(self.last)
        build = Gauge("slopewise_build_info", "Version of the controller.", ["version"], registry=self.registry)
        build.labels(__version__).set(1)
        self.passes = Counter("slopewise_passes", "Passes by result.", ["result"], registry=self.registry)
        self.durations = Histogram(
            "slopewise_pass_duration_seconds",
            "Time of each verb of a pass.",
            ["verb"],
            buckets=_PASS_BUCKETS,
            registry=self.registry,
        )
        self.last_pass = Gauge(
            "slopewise_last_pass_timestamp_seconds", "End of the last pass that observed.", registry=self.registry
        )
        self.interval = Gauge(
            "slopewise_interval_seconds", "Time from the last pass to the next planned one.", registry=self.registry
        )
        self.resizes = Counter("slopewise_resizes", "Resizes by outcome.", ["outcome"], registry=self.registry)
        self.moves = Counter(
            "slopewise_moves", "Placements and migrations by outcome.", ["kind", "outcome"], registry=self.registry
        )
        self.migrations = Counter(
            "slopewise_migrations", "Migrations by how far they have come.", ["stage"], registry=self.registry
        )
        self.pauses = Histogram(
            "slopewise_move_pause_seconds",
            "From the begin of a move to the job's first step elsewhere.",
            buckets=_PAUSE_BUCKETS,
            registry=self.registry,
        )
        self.steps_lost = Counter(
            "slopewise_move_steps_lost", "Steps that moved jobs had to repeat.", registry=self.registry
        )
        self.withheld = Counter(
            "slopewise_withheld", "Resizes and moves that a guard withheld.", ["guard"], registry=self.registry
        )
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        """A counter that appears with its first event hides that event from `increase` and from alerts."""
        for result in ("ok", "held", "failed"):
            self.passes.labels(result)
        for verb in VERBS:
            self.durations.labels(verb)
        for outcome in OUTCOMES:
            self.resizes.labels(outcome)
            for kind in MOVE_KINDS:
                self.moves.labels(kind, outcome)
        for stage in MOVE_STAGES:
            self.migrations.labels(stage)
        for guard in move_guards.guard_names():
            self.withheld.labels(guard)


class Telemetry:
    """What is told of one policy's passes."""

    def __init__(
        self,
        *,
        control: CpuControl,
        interval_seconds: float,
        document: str = "default",
        instruments: Instruments | None = None,
    ) -> None:
        """`document`: the name of the policy document; `instruments`: where other policies are counted, too."""
        self._control = control
        self._document = document
        self._metrics = instruments or Instruments()
        self._metrics.interval.set(interval_seconds)
        self._log = structlog.get_logger("slopewise")
        self._lines = PassLines(interval_seconds)
        self._warned: set[tuple[str, str]] = set()

    @property
    def registry(self) -> CollectorRegistry:
        """What is served as /metrics."""
        return self._metrics.registry

    def forget(self) -> None:
        """The policy is gone: its jobs are told no more."""
        self._metrics.last.forget(self._document)

    def record(self, report: PassReport) -> None:
        """Take in one pass: metrics and the log line."""
        self._metrics.last.keep(self._document, report, self._control)
        self._metrics.passes.labels("held" if report.held else "ok").inc()
        for verb, seconds in report.seconds_by_verb.items():
            self._metrics.durations.labels(verb).observe(seconds)
        for result, times in Tally(outcome.result for outcome in report.outcomes).items():
            self._metrics.resizes.labels(result).inc(times)
        for moved in report.moves:
            self._metrics.moves.labels(kind_of(moved.move), moved.result).inc()
        for news in report.moves_told:
            self._count_move(news)
        for guard, times in withheld_by_guard(report).items():
            self._metrics.withheld.labels(guard).inc(times)
        if not report.held:
            self._metrics.last_pass.set(report.taken_at_seconds + sum(report.seconds_by_verb.values()))
        self._metrics.interval.set(max(0.0, report.next_look_at_seconds - report.taken_at_seconds))
        self._log_pass(report)
        self._log_warnings(report.snapshot.jobs if report.snapshot else ())

    def _count_move(self, news: MoveNews) -> None:
        """How far a migration has come; one that came back to its own node has no pause."""
        pause = news.record.pause_seconds
        if news.stage == "resumed":
            if pause is not None:
                self._metrics.pauses.observe(pause)
            self._metrics.steps_lost.inc(news.record.steps_lost or 0.0)
        self._metrics.migrations.labels(news.stage).inc()

    def record_duration(self, verb: str, seconds: float) -> None:
        """The time that reporting itself took; it is over only after the report was handed on."""
        self._metrics.durations.labels(verb).observe(seconds)

    def record_failure(self, error: BaseException) -> None:
        """A pass that could not be finished: one sentence for what was to be expected, a mistake of ours in full."""
        self._metrics.passes.labels("failed").inc()
        if isinstance(error, SlopewiseError):
            self._log.error("pass failed", name=self._document, reason=str(error))
        else:
            self._log.error("pass failed", name=self._document, exc_info=error)

    def record_missed(self, event: str) -> None:
        """A run that the scheduler had to skip."""
        self._log.warning("pass skipped", name=self._document, reason=event)

    def _log_warnings(self, jobs: Sequence[Job]) -> None:
        """Each warning of a job once: it stays true for hours. What was said of jobs that are gone is forgotten."""
        here = {job.uid for job in jobs}
        self._warned = {(uid, warning) for uid, warning in self._warned if uid in here}
        for job in jobs:
            for warning in job.warnings:
                if (job.uid, warning) not in self._warned:
                    self._log.warning("job", job=f"{job.namespace}/{job.name}", warning=warning)
                    self._warned.add((job.uid, warning))

    def _log_pass(self, report: PassReport) -> None:
        facts = self._lines.facts(report)
        if facts is None:
            return
        about: dict[str, object] = {"name": self._document, "policy": report.policy}
        milliseconds = {f"{verb}_ms": round(1000 * s, 1) for verb, s in report.seconds_by_verb.items()}
        if report.held:
            self._log.warning("pass held", **about, **facts, **milliseconds)
            return
        next_look = round(report.next_look_at_seconds - report.taken_at_seconds, 1)
        self._log.info("pass", **about, **facts, next_look_s=next_look, **milliseconds)
