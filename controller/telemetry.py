"""What the controller says of itself: one structured log line a pass, and the metrics of docs/metrics.md.

Comes after a pass: `loop.py` hands every PassReport to `Telemetry.record`. Figures of jobs are not kept but made
from the last report when Prometheus scrapes, so a job that is gone leaves no ghost behind.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from typing import TextIO, get_args

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller import __version__, growth, guards
from controller.control import allotted_cores
from controller.errors import SlopewiseError
from controller.model import (
    ClusterSnapshot,
    CpuControl,
    Decisions,
    Job,
    JobMemory,
    JobState,
    Move,
    OutcomeResult,
    PassReport,
    Place,
    Resize,
)

VERBS = ("observe", "decide", "guard", "act", "report")
MOVE_KINDS = ("place", "migrate")
OUTCOMES: tuple[OutcomeResult, ...] = get_args(OutcomeResult)
_JOB_LABELS = ("job_namespace", "job_name", "job_node")
_PASS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def configure_logging(*, stream: TextIO | None = None, as_json: bool = False, level: int = logging.INFO) -> None:
    """Log to stderr (data goes to stdout): readable lines, or one JSON object a line for log collectors."""
    renderer = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(stream or sys.stderr),
    )
    # Libraries log a retry or a missed run as warnings of their own; what matters of it is in our line.
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)


class Telemetry:
    """The controller's metrics, in a registry of their own."""

    def __init__(self, *, control: CpuControl, interval_seconds: float) -> None:
        self.registry = CollectorRegistry()
        self._log = structlog.get_logger("slopewise")
        self._warned: set[tuple[str, str]] = set()
        self._last = _LastPass(control)
        self.registry.register(self._last)
        build = Gauge("slopewise_build_info", "Version of the controller.", ["version"], registry=self.registry)
        build.labels(__version__).set(1)
        self._passes = Counter("slopewise_passes", "Passes by result.", ["result"], registry=self.registry)
        self._durations = Histogram(
            "slopewise_pass_duration_seconds",
            "Time of each verb of a pass.",
            ["verb"],
            buckets=_PASS_BUCKETS,
            registry=self.registry,
        )
        self._last_pass = Gauge(
            "slopewise_last_pass_timestamp_seconds", "End of the last pass that observed.", registry=self.registry
        )
        self._interval = Gauge(
            "slopewise_interval_seconds", "Time from the last pass to the next planned one.", registry=self.registry
        )
        self._resizes = Counter("slopewise_resizes", "Resizes by outcome.", ["outcome"], registry=self.registry)
        self._moves = Counter(
            "slopewise_moves", "Placements and migrations by outcome.", ["kind", "outcome"], registry=self.registry
        )
        self._withheld = Counter(
            "slopewise_withheld", "Resizes and moves that a guard withheld.", ["guard"], registry=self.registry
        )
        self._start_at_zero(interval_seconds)

    def _start_at_zero(self, interval_seconds: float) -> None:
        """A counter that appears with its first event hides that event from `increase` and from alerts."""
        for result in ("ok", "held", "failed"):
            self._passes.labels(result)
        for verb in VERBS:
            self._durations.labels(verb)
        for outcome in OUTCOMES:
            self._resizes.labels(outcome)
            for kind in MOVE_KINDS:
                self._moves.labels(kind, outcome)
        for guard in guards.guard_names():
            self._withheld.labels(guard)
        self._interval.set(interval_seconds)

    def record(self, report: PassReport) -> None:
        """Take in one pass: metrics and the log line."""
        self._last.report = report
        self._passes.labels("held" if report.held else "ok").inc()
        for verb, seconds in report.seconds_by_verb.items():
            self._durations.labels(verb).observe(seconds)
        for outcome in report.outcomes:
            self._resizes.labels(outcome.result).inc()
        for moved in report.moves:
            self._moves.labels(_kind(moved.move), moved.result).inc()
        for guard, times in _withheld_by_guard(report).items():
            self._withheld.labels(guard).inc(times)
        if not report.held:
            self._last_pass.set(report.taken_at_seconds + sum(report.seconds_by_verb.values()))
        self._interval.set(max(0.0, report.next_look_at_seconds - report.taken_at_seconds))
        self._log_pass(report)
        self._log_warnings(report.snapshot.jobs if report.snapshot else ())

    def record_duration(self, verb: str, seconds: float) -> None:
        """The time that reporting itself took; it is over only after the report was handed on."""
        self._durations.labels(verb).observe(seconds)

    def record_failure(self, error: BaseException) -> None:
        """A pass that could not be finished: one sentence for what was to be expected, a mistake of ours in full."""
        self._passes.labels("failed").inc()
        if isinstance(error, SlopewiseError):
            self._log.error("pass failed", reason=str(error))
        else:
            self._log.error("pass failed", exc_info=error)

    def record_missed(self, event: str) -> None:
        """A run that the scheduler had to skip."""
        self._log.warning("pass skipped", reason=event)

    def _log_warnings(self, jobs: Sequence[Job]) -> None:
        """Each warning of a job once: it stays true for hours."""
        for job in jobs:
            for warning in job.warnings:
                if (job.uid, warning) not in self._warned:
                    self._log.warning("job", name=job.name, warning=warning)
                    self._warned.add((job.uid, warning))

    def _log_pass(self, report: PassReport) -> None:
        milliseconds = {f"{verb}_ms": round(1000 * s, 1) for verb, s in report.seconds_by_verb.items()}
        if report.held:
            self._log.warning("pass held", policy=report.policy, reason=report.held, **milliseconds)
            return
        self._log.info(
            "pass",
            policy=report.policy,
            jobs=len(report.snapshot.jobs) if report.snapshot else 0,
            wanted=len(report.decisions.resizes) if report.decisions else 0,
            applied=report.count("applied"),
            deferred=report.count("deferred"),
            failed=report.count("failed") + report.count("infeasible"),
            withheld=_withheld_by_guard(report),
            changes=_changes(report),
            moves=_moves(report),
            next_look_s=round(report.next_look_at_seconds - report.taken_at_seconds, 1),
            **milliseconds,
        )


def _withheld_by_guard(report: PassReport) -> dict[str, int]:
    """How often each guard said no, to resizes and to moves."""
    guards_of_moves = [each.guard for each in report.moves_withheld]
    return dict(Tally([*(each.guard for each in report.withheld), *guards_of_moves]))


def _changes(report: PassReport) -> list[str]:
    """Every change that was wanted: which, what became of it, and why."""
    done: list[tuple[Resize, str, str]]
    done = [(each.resize, each.result, each.detail or each.resize.reason) for each in report.outcomes]
    done += [(each.resize, "withheld", each.reason) for each in report.withheld]
    return [
        f"{resize.job_uid} {resize.from_millicores}m to {resize.to_millicores}m {became}: {why}"
        for resize, became, why in done
    ]


def _moves(report: PassReport) -> list[str]:
    """Every placement and migration that was wanted: which, what became of it, and why."""
    done: list[tuple[Move, str, str]]
    done = [(each.move, each.result, each.detail or each.move.reason) for each in report.moves]
    done += [(each.move, "withheld", each.reason) for each in report.moves_withheld]
    return [f"{_kind(move)} {move.job_uid} on {move.node} {became}: {why}" for move, became, why in done]


def _kind(move: Move) -> str:
    return "place" if isinstance(move, Place) else "migrate"


class _LastPass(Collector):
    """Makes the figures of jobs and nodes out of the last report that observed anything."""

    def __init__(self, control: CpuControl) -> None:
        self._control = control
        self._report: PassReport | None = None

    @property
    def report(self) -> PassReport | None:
        return self._report

    @report.setter
    def report(self, report: PassReport) -> None:
        if not report.held:
            self._report = report

    def collect(self) -> Iterator[Metric]:
        report = self._report
        if report is None or report.snapshot is None or report.decisions is None:
            return
        yield _jobs_by_state(report.snapshot.jobs)
        yield _growth_sum(report.snapshot, report.decisions)
        yield from _job_families(report.snapshot, report.decisions, self._control)


def _jobs_by_state(jobs: Sequence[Job]) -> Metric:
    family = GaugeMetricFamily("slopewise_jobs", "Managed jobs by state.", labels=["state"])
    tally = Tally(job.state for job in jobs)
    for state in JobState:
        family.add_metric([str(state)], tally[state])
    return family


def _growth_sum(snapshot: ClusterSnapshot, decisions: Decisions) -> Metric:
    family = GaugeMetricFamily(
        "slopewise_growth_efficiency_sum", "Sum of growth efficiencies (Eq. 4.3).", labels=["job_node"]
    )
    for node in snapshot.nodes:
        known = [decisions.memory.jobs[job.uid].growth for job in snapshot.jobs if job.node == node.name]
        family.add_metric([node.name], sum(each.cpu_efficiency or 0.0 for each in known if each))
    return family


def _family(name: str, help_text: str, *more_labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"slopewise_job_{name}", help_text, labels=[*_JOB_LABELS, *more_labels])


class _JobFamilies:
    """One gauge family per figure of a job; `add` fills them from one job."""

    def __init__(self) -> None:
        self.efficiency = _family("growth_efficiency", "Growth efficiency (Eq. 4.2).", "resource")
        self.progress = _family("progress_per_second", "Progress per second (Eq. 4.1).")
        self.evaluation = _family("evaluation", "The level that was decided on.")
        self.age = _family("evaluation_age_seconds", "Age of the newest sample.")
        self.available = _family("metrics_available", "1 when a fresh, finite evaluation was seen.")
        self.diverged = _family("diverged", "1 when the loss is not finite.")
        self.usage = _family("cpu_usage_cores", "Average CPU use over the last measured interval.")
        self.allocated = _family("cpu_allocated_cores", "Its limit, or its share of the node when all want CPU.")
        self.wanted = _family("cpu_wanted_cores", "The limit that the policy decided on.")
        self.job_class = _family("class", "1 for the class the policy put the job in.", "class")

    def add(self, job: Job, known: JobMemory, snapshot: ClusterSnapshot, allocated_cores: float) -> None:
        labels = [job.namespace, job.name, job.node]
        self.allocated.add_metric(labels, allocated_cores)
        self.available.add_metric(labels, float(growth.is_usable(job, snapshot)))
        self.diverged.add_metric(labels, float(job.evaluation is not None and not job.evaluation.finite))
        if job.evaluation is not None:
            self.evaluation.add_metric(labels, job.evaluation.level)
            self.age.add_metric(labels, growth.age_seconds(job.evaluation, snapshot))
        if known.growth is not None:
            self.progress.add_metric(labels, known.growth.progress_per_second)
            for resource, efficiency in known.growth.efficiency.items():
                self.efficiency.add_metric([*labels, resource], efficiency)
            if known.growth.cpu_cores is not None:
                self.usage.add_metric(labels, known.growth.cpu_cores)
        if known.wanted_cores is not None:
            self.wanted.add_metric(labels, known.wanted_cores)
        if known.job_class is not None:
            self.job_class.add_metric([*labels, known.job_class], 1.0)


def _job_families(snapshot: ClusterSnapshot, decisions: Decisions, control: CpuControl) -> Iterator[Metric]:
    families = _JobFamilies()
    allotted = allotted_cores(snapshot, control)
    for job in snapshot.jobs:
        families.add(job, decisions.memory.jobs[job.uid], snapshot, allotted[job.uid])
    yield from vars(families).values()
