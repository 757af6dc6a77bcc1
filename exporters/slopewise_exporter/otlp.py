"""Sends the metrics of a training by OTLP, with the exporter of the OpenTelemetry SDK (the extra `otlp`).

For trainings that nothing can scrape: short ones, and those of clusters that speak OpenTelemetry. The families are
those of a scrape (`exposition`), under the same names and with the labels `namespace` and `pod` that a scrape would
add, so that the controller's queries find them in a Prometheus with its OTLP receiver. The SDK's own variables hold:
address, headers, certificates, timeout, compression, resource attributes.
"""

from __future__ import annotations

# Imported by the SDK, which loads on a thread: in the last moments of a short training it could not register its
# own hook for the end of the process any more.
import concurrent.futures.thread  # noqa: F401
import logging
import os
import socket
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import time_ns
from typing import Any, Callable

from prometheus_client.core import Metric

from slopewise_exporter.push import NotSentError
from slopewise_exporter.values import Checker, parse_amount

ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"

EVERY_SECONDS = 15.0
"""As often as a usual scrape. With the SDK's own 60 s most of the controller's windows would hold one sample."""

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_MIN_SECONDS = 1.0
_SHOWN_CHARACTERS = 300


class Otlp:
    """A collector, or a Prometheus with its OTLP receiver. Shape: `push.Receiver`."""

    name = "metrics by OTLP"

    def __init__(self, environ: Mapping[str, str], check: Checker, collect: Callable[[], Iterable[Metric]]) -> None:
        self._environ = environ
        self._check = check
        self._collect = collect
        self._since_nanoseconds = time_ns()
        self._reasons = _Reasons()
        self.every_seconds = interval_seconds(environ, check)

    def open(self) -> None:
        """Load the SDK, which takes half a second. NotSentError where it is not installed."""
        try:
            from slopewise_exporter import otlp_data

            self._exporter = self._open_exporter()
        except ImportError as error:
            variable = next((name for name in ENDPOINTS if self._environ.get(name)), ENDPOINTS[-1])
            raise NotSentError(
                f"{variable} is set, and {error.name} is not installed; install slopewise-exporter[otlp] (for gRPC "
                "opentelemetry-exporter-otlp-proto-grpc), or set OTEL_METRICS_EXPORTER=none"
            ) from error
        pod = pod_identity(self._environ, otlp_data.given_attributes())
        if pod.in_cluster and len(pod.labels) < 2:
            self._check.warn(
                "pod identity",
                "this pod's name and namespace are not known: set POD_NAME and POD_NAMESPACE from the downward API; "
                "metrics by OTLP without them belong to no job",
            )
        self._data = otlp_data.Encoder(pod.labels, pod.attributes, self._since_nanoseconds)

    def send(self) -> None:
        """One request with all metrics; NotSentError with the reason."""
        data = self._data.encode(self._collect(), time_ns())
        with self._reasons as reasons:
            result = self._exporter.export(data)
        if reasons or result.name != "SUCCESS":
            # The first: those of the retries are the same, and the last is that it gave up.
            raise NotSentError(reasons[0] if reasons else "the exporter gives no reason")

    def _open_exporter(self) -> Any:
        """The exporter of the wanted protocol; gRPC has a package of its own."""
        protocol = next((self._environ[name] for name in PROTOCOLS if self._environ.get(name)), "http/protobuf")
        if protocol == "grpc":
            module = import_module("opentelemetry.exporter.otlp.proto.grpc.metric_exporter")
            exporter = module.OTLPMetricExporter()
        else:
            from slopewise_exporter.otlp_http import ReportingSession

            module = import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
            exporter = module.OTLPMetricExporter(session=ReportingSession(self._reasons.add))
        self._reasons.listen(exporter)
        return exporter


def interval_seconds(environ: Mapping[str, str], check: Checker) -> float:
    """From the SDK's own variable, which is in milliseconds; at least a second."""
    text = environ.get(INTERVAL)
    if not text:
        return EVERY_SECONDS
    default = 1000 * EVERY_SECONDS
    return max(_MIN_SECONDS, check.read(INTERVAL, text, parse_amount, default, "a number of milliseconds") / 1000)


class _Reasons(logging.Filter):
    """As a context a list of what the exporter logs on our thread: it writes a line a try, and names no consequence.

    Other threads of the process may use the same exporter for their own metrics; their lines go through.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread: int | None = None
        self._found: list[str] = []

    def listen(self, exporter: Any) -> None:
        """Filter the loggers of the modules of this exporter."""
        for module in {kind.__module__ for kind in type(exporter).__mro__}:
            logging.getLogger(module).addFilter(self)

    def __enter__(self) -> list[str]:
        self._found = []
        self._thread = threading.get_ident()
        return self._found

    def __exit__(self, *_: object) -> None:
        self._thread = None

    def add(self, reason: str) -> None:
        """One more."""
        self._found.append(reason[:_SHOWN_CHARACTERS])

    def filter(self, record: logging.LogRecord) -> bool:
        """False for what is ours: it is kept here."""
        if record.thread is None or record.thread != self._thread:
            return True
        self.add(record.getMessage())
        return False


@dataclass(frozen=True)
class PodIdentity:
    """Which pod this process runs in: what a scrape knows of its target, and a push must say itself.

    A pod's name comes from OpenTelemetry's resource attributes, else from `POD_NAME` (the downward API), else from the
    host name, except in an indexed Job: the host name of its pod is `train-0` where the pod's name is `train-0-x7k2p`.
    Empty texts: not known, or no pod.
    """

    namespace: str
    name: str
    in_cluster: bool

    @property
    def labels(self) -> dict[str, str]:
        """Those that Prometheus puts on what it scrapes."""
        named = {"namespace": self.namespace, "pod": self.name}
        return {label: value for label, value in named.items() if value}

    @property
    def attributes(self) -> dict[str, str]:
        """OpenTelemetry's names for the same, and the process's own: a restarted container continues its series."""
        named = {
            "k8s.namespace.name": self.namespace,
            "k8s.pod.name": self.name,
            "service.instance.id": self.name or f"{socket.gethostname()}:{os.getpid()}",
        }
        return {name: value for name, value in named.items() if value}


def pod_identity(
    environ: Mapping[str, str], attributes: Mapping[str, object], namespace_file: Path = NAMESPACE_FILE
) -> PodIdentity:
    """`attributes` are those of the OpenTelemetry resource, which win."""
    in_cluster = "KUBERNETES_SERVICE_HOST" in environ
    namespace = _given(attributes, "k8s.namespace.name") or environ.get("POD_NAMESPACE", "")
    name = _given(attributes, "k8s.pod.name") or environ.get("POD_NAME", "")
    if in_cluster and not namespace:
        with suppress(OSError, ValueError):  # a pod without a token of its service account
            namespace = namespace_file.read_text(encoding="utf-8").strip()
    if in_cluster and not name and "JOB_COMPLETION_INDEX" not in environ:
        name = socket.gethostname()
    return PodIdentity(namespace, name, in_cluster)


def _given(attributes: Mapping[str, object], name: str) -> str:
    return str(attributes.get(name) or "")
