"""Which receivers the surroundings ask for, beside the endpoint that is scraped.

Their variables decide, and each module is loaded where its variable is set: OpenTelemetry and TLS cost tens of
megabytes that a scraped training does not need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Callable

from slopewise_exporter.push import FLUSH_SECONDS, HURRIED_FLUSH_SECONDS, Push
from slopewise_exporter.record import Facts, TrainingRecord
from slopewise_exporter.values import Checker, parse_flag

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


class Pushes:
    """All pushes of one reporter; most trainings have none."""

    def __init__(
        self,
        environ: Mapping[str, str],
        check: Checker,
        record: TrainingRecord,
        facts: Facts,
        process: Callable[[], Collector | None] = lambda: None,
    ) -> None:
        """`process`: what describes the training's process, where that is another than this one."""
        self._all = list(_started(environ, check, record, facts, process))

    def __bool__(self) -> bool:
        return bool(self._all)

    def end(self) -> None:
        """Begin the last push of each; returns at once."""
        for push in self._all:
            push.end()

    def wait(self, *, hurried: bool) -> None:
        """Wait until they are done, or too slow."""
        for push in self._all:
            push.wait(HURRIED_FLUSH_SECONDS if hurried else FLUSH_SECONDS)


def _started(
    environ: Mapping[str, str],
    check: Checker,
    record: TrainingRecord,
    facts: Facts,
    process: Callable[[], Collector | None],
) -> Iterator[Push]:
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
