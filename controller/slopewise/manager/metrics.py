"""Metrics of the process beside its passes: leadership, API requests, watches, statuses, restores, moves, freezes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slopewise.adapters.http.alert_webhook import CallOutcome
from slopewise.adapters.kube.state.freezes import Stored
from slopewise.feedback.restore import RestoreReport
from slopewise.model import FreezeEffect, FreezeScope

_API_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ClusterMetrics:
    """Counters of one process, in the registry that is served as /metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.leader = Gauge("slopewise_leader", "1 while this replica leads.", registry=registry)
        self.policies = Gauge(
            "slopewise_policies", "TrainingPolicies by what they are.", ["condition"], registry=registry
        )
        self.tick_failures = Counter(
            "slopewise_manager_errors",
            "Evaluations of the policies that failed with a controller error.",
            registry=registry,
        )
        self._requests = Counter(
            "slopewise_api_requests", "Requests to the API server.", ["verb", "resource", "code"], registry=registry
        )
        self._request_seconds = Histogram(
            "slopewise_api_request_duration_seconds",
            "Time of each request to the API server, without watches.",
            ["verb"],
            buckets=_API_BUCKETS,
            registry=registry,
        )
        self.restores = Counter(
            "slopewise_restores", "Restores of original resources, by outcome.", ["outcome"],
            registry=registry,
        )  # fmt: skip
        for outcome in ("restored", "waiting", "gone", "failed"):
            self.restores.labels(outcome)
        self.restore_pending_pods = Gauge(
            "slopewise_restore_pending_pods", "Pods whose original resources are not restored yet.", ["name"],
            registry=registry,
        )  # fmt: skip
        self._status_writes = Counter(
            "slopewise_status_writes", "Writes of the status of custom resources.", ["outcome"], registry=registry
        )
        for outcome in ("written", "unchanged", "failed"):
            self._status_writes.labels(outcome)
        self._alert_calls = Counter(
            "slopewise_alert_calls", "Calls of the webhook for alerts, by outcome.", ["outcome"], registry=registry
        )
        for outcome in get_args(CallOutcome):
            self._alert_calls.labels(outcome)
        self._alerts = Counter(
            "slopewise_alerts", "Alerts in those calls, by what became of their Freeze.", ["result"], registry=registry
        )
        for result in (*get_args(Stored), "ignored", "refused"):
            self._alerts.labels(result)
        self.leader.set(0)

    def on_alert_call(self, outcome: CallOutcome) -> None:
        """One call of the webhook."""
        self._alert_calls.labels(outcome).inc()

    def on_alert(self, result: str) -> None:
        """One alert of a call."""
        self._alerts.labels(result).inc()

    def on_request(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """One answered (or failed, code 0) request."""
        self._requests.labels(verb, resource, str(code)).inc()
        if verb != "watch":
            self._request_seconds.labels(verb).observe(seconds)

    def on_status_write(self, outcome: str) -> None:
        """One write of a status."""
        self._status_writes.labels(outcome).inc()

    def on_restored(self, given_back: RestoreReport) -> None:
        """The outcomes of restores."""
        for outcome, jobs in (
            ("restored", given_back.restored),
            ("waiting", given_back.waiting),
            ("gone", given_back.gone),
            ("failed", {**given_back.failed, **given_back.impossible}),
        ):
            self.restores.labels(outcome).inc(len(jobs))

    def forget_policy(self, name: str) -> None:
        """Remove the metrics of a deleted policy."""
        with suppress(KeyError):
            self.restore_pending_pods.remove(name)

    def follow(self, read: Callable[[], Iterator[Metric]]) -> None:
        """Read these families at each scrape."""
        self._registry.register(_AtScrape(read))


class _AtScrape(Collector):
    """Reads its figures when Prometheus scrapes, also those of a standby replica: it reports a leader that is stuck."""

    def __init__(self, read: Callable[[], Iterator[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        return self._read()


def of_freezes(freezes: Mapping[tuple[str, str], int]) -> Iterator[Metric]:
    """`freezes`: how many are in force, by scope and effect."""
    in_force = GaugeMetricFamily("slopewise_freezes", "Freezes in force.", labels=["scope", "effect"])
    for scope in get_args(FreezeScope):
        for effect in get_args(FreezeEffect):
            in_force.add_metric([scope, effect], freezes.get((scope, effect), 0))
    yield in_force


def of_watches(watches: Mapping[str, tuple[float, int]]) -> Iterator[Metric]:
    """`watches`: seconds since the API server's last answer, and restarts, by resource."""
    silent = GaugeMetricFamily(
        "slopewise_watch_silent_seconds", "Time since the last answer of the API server.", labels=["resource"]
    )
    restarts = CounterMetricFamily(
        "slopewise_watch_restarts", "Watches that broke and were begun again.", labels=["resource"]
    )
    for resource, (seconds, count) in watches.items():
        silent.add_metric([resource], seconds)
        restarts.add_metric([resource], count)
    yield from (silent, restarts)


def of_resizes(waited: Mapping[str, Sequence[float]]) -> Iterator[Metric]:
    """`waited`: for how many seconds each pod's kubelet has not carried out what was accepted, by node."""
    pods = GaugeMetricFamily(
        "slopewise_unconfirmed_pods",
        "Pods whose kubelet has not carried out CPU that the API server has accepted.",
        labels=["job_node"],
    )
    oldest = GaugeMetricFamily(
        "slopewise_oldest_unconfirmed_seconds",
        "Since the API server accepted it for the first of them.",
        labels=["job_node"],
    )
    for node, seconds in waited.items():
        pods.add_metric([node], len(seconds))
        oldest.add_metric([node], max(seconds))
    yield from (pods, oldest)


def _counted(count: tuple[str, str], oldest: tuple[str, str], waited: Sequence[float]) -> Iterator[Metric]:
    """How many there are, and the seconds of the oldest; 0: there is none."""
    yield GaugeMetricFamily(*count, len(waited))
    yield GaugeMetricFamily(*oldest, max(waited, default=0))


def of_moves(gated: Sequence[float], moving: Sequence[float]) -> Iterator[Metric]:
    """How many seconds each pod has waited behind our gate, and each move has taken."""
    yield from _counted(
        ("slopewise_gated_pods", "Pods that wait behind our gate."),
        ("slopewise_oldest_gate_seconds", "Since the oldest of them was made; 0: there is none."),
        gated,
    )
    yield from _counted(
        ("slopewise_moves_under_way", "Workloads on their way to another node."),
        ("slopewise_oldest_move_seconds", "Since the oldest of them began; 0: there is none."),
        moving,
    )


def of_suspended(waited: Sequence[float]) -> Iterator[Metric]:
    """`waited`: for how many seconds each Job that a move has suspended has had no pod."""
    yield from _counted(
        ("slopewise_suspended_jobs", "Jobs that a move has suspended and that have no pod left."),
        ("slopewise_oldest_suspended_seconds", "Since the first of them had no pod left; 0: there is none."),
        waited,
    )
