"""The controller's own parts in this process, wired as `slopewise run` wires them, with a stopwatch on each.

For what cannot be seen from outside: which part of a pass takes the time. The stopwatch counts CPU seconds of the
pass's own thread, so that other work on the machine does not blur it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from slopewise.adapters.clock import SystemClock
from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.connection import Connection
from slopewise.adapters.kube.state.training_policies import PolicyRecord
from slopewise.adapters.kube.watches import make_watches
from slopewise.adapters.prometheus.container_usage import Machine
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.reader import EVERYTHING, PrometheusReader, PrometheusReading, Scope
from slopewise.config.training_policy import TrainingPolicy
from slopewise.manager.metrics import ClusterMetrics
from slopewise.manager.policy_runner import PolicyRunner
from slopewise.manager.shared import ClusterOptions, Rates, SharedState, make_shared_state
from slopewise.model import PassReport
from slopewise.policies import PolicyProtocol
from slopewise.telemetry.metrics import Instruments

PARTS = ("claim", "query", "join", "decide", "guard", "act", "report")
"""`claim`: whose pods they are, and what is to be given back. `query`: Prometheus, with reading its answers. `join`:
what else observing takes. `report`: metrics, log, events, and which statuses are to be written."""

_SYNC_SECONDS = 60.0


class CpuClock(SystemClock):
    """A clock whose stopwatch runs only while the thread that reads it does."""

    def monotonic(self) -> float:
        """CPU seconds of this thread."""
        return time.thread_time()


@contextmanager
def running_world(
    prometheus_url: str, scrape_seconds: float, policy: Mapping[str, object], clock: SystemClock, rates: Rates
) -> Iterator[SharedState]:
    """Everything but the passes, with the one policy, from entry to exit."""
    instruments = Instruments()
    metrics = ClusterMetrics(instruments.registry)
    api = KubeApi.connect(on_request=metrics.on_request)
    document = TrainingPolicy.model_validate(policy)
    record = PolicyRecord("", document.metadata.name, "", 1, 0.0, document, None)
    options = ClusterOptions(Connection(), prometheus_url, scrape_interval_seconds=scrape_seconds, rates=rates)
    watches = make_watches(api, None, lambda old, new: None)
    shared = replace(make_shared_state(options, api, watches, lambda: True, instruments, metrics, record), clock=clock)
    watches.start()
    shared.start()
    try:
        deadline = time.monotonic() + _SYNC_SECONDS
        while (waits_for := watches.waits_for()) is not None:
            if time.monotonic() > deadline:
                raise RuntimeError(waits_for)
            time.sleep(0.01)
        yield shared
    finally:
        shared.stop()
        watches.stop()
        api.close()


def requests_of(shared: SharedState, **labels: str) -> float:
    """How many requests to the API server had these labels so far, e.g. `verb="list"`."""
    return sum(
        sample.value
        for family in shared.instruments.registry.collect()
        if family.name == "slopewise_api_requests"
        for sample in family.samples
        if sample.name.endswith("_total") and labels.items() <= sample.labels.items()
    )


class TimedReader:
    """A PrometheusReader with a stopwatch, and a count of queries."""

    def __init__(self, reader: PrometheusReader, clock: SystemClock) -> None:
        self._reader = reader
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Count from 0."""
        self.seconds = 0.0
        self.queries = 0

    def wait_for_answers(self, seconds: float) -> None:
        """Let a whole reading take so long, in the place of the bound that the interval gives."""
        self._reader._http._timeout_seconds = seconds  # noqa: SLF001 - no setting: only a benchmark has time

    def __getattr__(self, name: str) -> Any:
        """Whatever else an observer asks for, as the reader has it."""
        return getattr(self._reader, name)

    def read(self, at_seconds: float, scope: Scope = EVERYTHING) -> PrometheusReading:
        """As the reader does it."""
        with self._timed():
            reading = self._reader.read(at_seconds, scope)
        self.queries += reading.queries
        return reading

    def machines(self, at_seconds: float) -> Mapping[str, Machine]:
        """As the reader does it; one query."""
        self.queries += 1
        with self._timed():
            return self._reader.machines(at_seconds)

    def use_of_others(
        self, at_seconds: float, namespaces: Collection[str], ours: Container[JobKey]
    ) -> Mapping[str, float]:
        """As the reader does it; one query."""
        self.queries += 1
        with self._timed():
            return self._reader.use_of_others(at_seconds, namespaces, ours)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = self._clock.monotonic()
        try:
            yield
        finally:
            self.seconds += self._clock.monotonic() - start


@dataclass(frozen=True, slots=True)
class Measured:
    """One pass: its report, the seconds of each part, and how many queries it took."""

    report: PassReport
    seconds: Mapping[str, float]
    queries: int

    @property
    def whole_seconds(self) -> float:
        """All parts together."""
        return sum(self.seconds.values())


class MeasuredRunner(PolicyRunner):
    """A policy's runner that records the duration of each part of a pass, by the world's clock."""

    def __init__(self, shared: SharedState, policy: PolicyProtocol | None = None) -> None:
        """`policy`: instead of the one that the document names."""
        record = shared.claims.policies()[0]
        if record.document is None:
            raise RuntimeError(f"{record.invalid}")
        self._clock = shared.clock
        super().__init__(shared, record, record.document, None)
        self._policy = policy or self._policy

    def _prometheus(self) -> PrometheusReader:
        self.reader = TimedReader(super()._prometheus(), self._clock)
        return cast("PrometheusReader", self.reader)

    def measured_pass(self) -> Measured:
        """One pass and its report, as the loop runs them; RuntimeError when it could not observe."""
        self.reader.begin()
        start = self._clock.monotonic()
        report = self.one_pass()
        passed = self._clock.monotonic()
        self.publish(report)
        reported = self._clock.monotonic()
        if report.held is not None:
            raise RuntimeError(report.held)
        verbs = report.seconds_by_verb
        query = self.reader.seconds
        seconds = {
            "claim": passed - start - sum(verbs.values()),
            "query": query,
            "join": verbs["observe"] - query,
            **{verb: verbs[verb] for verb in ("decide", "guard", "act")},
            "report": reported - passed,
        }
        return Measured(report, seconds, self.reader.queries)
