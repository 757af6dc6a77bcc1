"""Sends what a training reports to a receiver, from a thread of its own, at fixed times and once more at the end.

The surroundings ask for receivers (`trainjob_status`, `otlp`) by variables, and each module is loaded where its
variable is set: OpenTelemetry and TLS cost tens of megabytes that a scraped training does not need. The training never
waits for one: a push takes a snapshot of the record as a scrape does, nothing is queued, and a receiver that is slow or
gone costs the newest values until it answers again. The log has one line when pushes begin to fail, with the reason,
and one when they work again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Callable, Protocol

from slopewise_exporter.record import Facts, TrainingRecord
from slopewise_exporter.values import Checker, parse_flag

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

FLUSH_SECONDS = 5.0
"""Longest wait for the last push of a training that ended: a receiver that answers takes some milliseconds."""

HURRIED_FLUSH_SECONDS = 1.0
"""The same where the process was asked to end: after Ctrl-C, SIGTERM or `sys.exit()`."""


class NotSentError(Exception):
    """A push failed; the message is the reason, without a full stop."""


class Receiver(Protocol):
    """Where values go to."""

    name: str
    """What is sent, as the subject of a log line, e.g. `metrics by OTLP`."""
    every_seconds: float

    def open(self) -> None:
        """Called once, on the thread. Whatever it raises ends the pushes for good."""

    def send(self) -> None:
        """Send the values of now. Whatever it raises is tried again `every_seconds` later."""


class Push:
    """The thread of one receiver."""

    def __init__(self, receiver: Receiver, check: Checker) -> None:
        self._receiver = receiver
        self._check = check
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"slopewise {receiver.name}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Send the values of now for the last time; returns at once."""
        self._ended.set()

    def wait(self, *, hurried: bool) -> None:
        """Wait until the last push is done, or too slow."""
        seconds = HURRIED_FLUSH_SECONDS if hurried else FLUSH_SECONDS
        self._thread.join(seconds)
        if self._thread.is_alive():
            name = self._receiver.name
            self._check.warn(name, f"the last {name} are given up: no answer within {seconds:g} s")

    def _run(self) -> None:
        try:
            self._receiver.open()
        except Exception as error:
            self._check.warn(self._receiver.name, f"{self._receiver.name} cannot be sent: {_reason(error)}")
            return
        while True:
            # Read before the push: values that change while it is under way are not yet the last ones.
            last = self._ended.is_set()
            self._send()
            if last:
                return
            self._ended.wait(self._receiver.every_seconds)

    def _send(self) -> None:
        name, seconds = self._receiver.name, self._receiver.every_seconds
        try:
            self._receiver.send()
        except Exception as error:
            retry = "" if self._ended.is_set() else f"; it is tried every {seconds:g} s, and the training goes on"
            self._check.warn(name, f"{name} are not sent: {_reason(error)}{retry}")
        else:
            if self._check.warned(name):
                self._check.forget(name)
                self._check.inform(f"{name} are sent again")


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, NotSentError) else f"{type(error).__name__}: {error}"[:300]


# --- which receivers there are ----------------------------------------------------------------------------------


def pushes(
    environ: Mapping[str, str],
    check: Checker,
    record: TrainingRecord,
    facts: Facts,
    process: Callable[[], Collector | None],
) -> Iterator[Push]:
    """Those of one reporter; most trainings have none. `process`: what describes the process, where it is another."""
    if environ.get("KUBEFLOW_TRAINER_SERVER_URL"):
        from slopewise_exporter.trainjob_status import TrainJobStatus

        yield Push(TrainJobStatus(environ, record.snapshot, facts.objective), check)
    if _wants_otlp(environ, check):
        from slopewise_exporter.exposition import build_registry
        from slopewise_exporter.otlp import Otlp

        yield Push(Otlp(environ, check, build_registry(record, facts, process()).collect), check)


def _wants_otlp(environ: Mapping[str, str], check: Checker) -> bool:
    """OpenTelemetry's own variables: an address, and neither of its switches."""
    if not (environ.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")):
        return False
    if check.read("OTEL_SDK_DISABLED", environ.get("OTEL_SDK_DISABLED") or "0", parse_flag, False, "true or false"):
        return False
    exporters = environ.get("OTEL_METRICS_EXPORTER") or "otlp"
    return "otlp" in (name.strip() for name in exporters.split(","))
