"""A `Reporter` of a training that runs in another process, and is known from what it writes."""

from __future__ import annotations

from collections.abc import Iterable
from time import time
from typing import TYPE_CHECKING, Any

from slopewise_exporter.reporter import Reporter

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector


class FollowedTraining(Reporter):
    """Serves `training_*` as any reporter does. Of `process_*` there is only the start of the training.

    The CPU and the memory of this process are not the training's. `process_start_time_seconds` is what distinguishes a
    restart from a loss that jumped: it changes when the training begins again, and stays when this process does.
    """

    def __init__(self, *, started_at_seconds: float | None = None, **arguments: Any) -> None:
        self.started_at_seconds = time() if started_at_seconds is None else started_at_seconds
        super().__init__(**arguments)

    def begin_again(self) -> None:
        """The training began again, in a new process."""
        self.started_at_seconds = time()
        super().begin_again()

    def _process_metrics(self) -> Collector | None:
        return _start_of(self)


def _start_of(training: FollowedTraining) -> Collector:
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector as Base

    class Start(Base):
        def collect(self) -> Iterable[Metric]:
            help_text = "Start time of the training's process, as far as its log shows it, since unix epoch in seconds."
            yield GaugeMetricFamily("process_start_time_seconds", help_text, value=training.started_at_seconds)

    return Start()
