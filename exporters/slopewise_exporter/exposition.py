"""From a snapshot to Prometheus metric families, when somebody scrapes and only then.

The names, kinds and labels are the contract of docs/metrics.md in the Slopewise repository: dashboards, alerts and the
controller's queries rely on them. Imported by the first scrape, since `import prometheus_client` takes some 60 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, MetricsHandler, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from slopewise_exporter.endpoint import CLIENT_TIMEOUT_SECONDS, LOADED_AT_SECONDS, MetricsEndpoint
from slopewise_exporter.record import STATES, STEP_DURATION_BUCKETS_SECONDS, Facts, Snapshot, TrainingRecord
from slopewise_exporter.threads.following import following

_COUNTERS = {
    "training_steps": ("steps", "Steps done."),
    "training_samples": ("samples", "Samples trained on."),
    "training_epochs": ("epochs", "Passes over the data done."),
    "training_wait_seconds": ("waited_seconds", "Time in which steps waited for their batches."),
    "training_nonfinite_loss": ("nonfinite_losses", "Losses that were NaN or infinite."),
    "training_outlier_loss": ("outlier_losses", "Finite losses that the moving average leaves out."),
}
"""Name: field of `Snapshot`, help."""

_GAUGES = {
    "training_unsaved_steps": ("unsaved_steps", "Steps that an interruption now would lose."),
    "training_steps_planned": ("steps_planned", "Steps that the whole training will take."),
    "training_steps_planned_is_upper_bound": ("plan_is_upper_bound", "1 when early stopping may end it before these."),
    "training_first_step_timestamp_seconds": ("first_step_at_seconds", "When the first step of this process ended."),
    "training_last_step_timestamp_seconds": ("last_step_at_seconds", "When the last step ended."),
    "training_checkpoint_timestamp_seconds": ("checkpoint_at_seconds", "When the last checkpoint was saved."),
    "training_checkpoint_duration_seconds": ("checkpoint_duration_seconds", "How long saving it took."),
    "training_checkpoint_on_sigterm": ("checkpoint_on_sigterm", "1: it saves on SIGTERM; 0: just now it could not."),
    "training_threads": ("threads", "The most threads that one of its libraries has."),
    "training_threads_wanted": ("threads_wanted", "The number of threads for the CPU in effect."),
    "training_threads_useful": ("threads_useful", "The most threads with which steps are faster."),
    "training_cpu_in_effect_cores": ("cores", "The CPU that it gets, in cores."),
}
"""Name: field of `Snapshot`, or of what `collect` adds to it; help."""


class TrainingCollector:
    """Builds every family again at each scrape; one without a value yet has its HELP and TYPE only."""

    def __init__(self, record: TrainingRecord, facts: Facts) -> None:
        self._record = record
        self._facts = facts

    def collect(self) -> Iterator[Metric]:
        """All `training_*` families, of one moment."""
        now = self._record.snapshot()
        yield _losses(now)
        for name, (field, help_text) in _COUNTERS.items():
            yield CounterMetricFamily(name, help_text, value=getattr(now, field))
        values: dict[str, float | None] = {
            **now._asdict(),
            "plan_is_upper_bound": None if now.steps_planned is None else float(now.plan_is_upper_bound),
            "threads": following.threads,
            "threads_wanted": following.wanted if following.follows else None,
            "threads_useful": following.useful,
            "cores": following.cores,
        }
        for name, (field, help_text) in _GAUGES.items():
            yield _gauge(name, help_text, values[field])
        yield _step_durations(now)
        yield from _info(self._facts)
        yield _state(now)


class ProcessFacts(Collector):
    """`process_*`, of which `process_start_time_seconds` distinguishes a restart from a loss that jumped.

    prometheus_client reads them from /proc, which exists on Linux only; elsewhere the start is taken to be
    the moment at which the endpoint opened.
    """

    def __init__(self, pid: int | None = None) -> None:
        """`pid`: of another process, whose facts these are."""
        self._from_proc = ProcessCollector(registry=None, pid=lambda: "self" if pid is None else pid)

    def collect(self) -> Iterable[Metric]:
        """Start, CPU time, memory and open files of the process, as far as the system has them."""
        help_text = "Start time of the process since unix epoch in seconds."
        fallback = _gauge("process_start_time_seconds", help_text, LOADED_AT_SECONDS)
        return list(self._from_proc.collect()) or [fallback]


class ScrapeHandler(MetricsHandler):
    """prometheus_client's handler, with a time limit and a report of success."""

    timeout = CLIENT_TIMEOUT_SECONDS
    server: MetricsEndpoint

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        """Send all metrics, then say so; looked at first, since the end may come while they are collected."""
        after_end = self.server.training_ended
        self.registry = self.server.registry
        super().do_GET()
        self.server.scraped = True
        if after_end:
            self.server.scraped_after_end.set()


def build_registry(record: TrainingRecord, facts: Facts, process: Collector | None = None) -> CollectorRegistry:
    """A registry of our own: the training's metrics in the default one are not ours to publish.

    `process`: what describes the training's process, where that is another than this one.
    """
    registry = CollectorRegistry(auto_describe=True)
    registry.register(TrainingCollector(record, facts))
    registry.register(process or ProcessFacts())
    return registry


def _losses(now: Snapshot) -> Metric:
    help_text = "Evaluation value: last step (train), its moving average (train_ema), last evaluation (eval)."
    family = GaugeMetricFamily("training_loss", help_text, labels=["stage"])
    for stage, value in now.losses.items():
        family.add_metric([stage], value)
    return family


def _step_durations(now: Snapshot) -> Metric:
    bounds = [*map(str, STEP_DURATION_BUCKETS_SECONDS), "+Inf"]
    return HistogramMetricFamily(
        "training_step_duration_seconds",
        "From the end of one step to the end of the next, without evaluations and checkpoints between them.",
        buckets=list(zip(bounds, accumulate(now.step_duration_counts))),
        sum_value=now.step_duration_sum_seconds,
    )


def _info(facts: Facts) -> Iterator[Metric]:
    # Gauges of 1 and no OpenMetrics Info: the names are then the same in both formats.
    info = GaugeMetricFamily("training_info", "Facts about the training.", labels=facts._fields[:-1])
    info.add_metric(facts[:-1], 1)
    study = GaugeMetricFamily("training_study", "The study of which it is a trial.", labels=["study"])
    if facts.study:
        study.add_metric([facts.study], 1)
    yield from (info, study)


def _state(now: Snapshot) -> Metric:
    # Not an OpenMetrics StateSet, whose label would have to be called training_state.
    family = GaugeMetricFamily("training_state", "1 for the state that it is in.", labels=["state"])
    for state in STATES:
        family.add_metric([state], float(state == now.state))
    return family


def _gauge(name: str, help_text: str, value: float | None) -> Metric:
    return GaugeMetricFamily(name, help_text, value=value)
