"""Loss and progress of a PyTorch Ignite engine.

    ReportHandler().attach(trainer, evaluator)
    trainer.run(loader, max_epochs=10)

Each iteration is a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ignite.engine import Events

from slopewise_exporter.fit_report import FitReport, harmless, names_of, stops_early
from slopewise_exporter.loss_names import eval_loss
from slopewise_exporter.reporter import Reporter


class ReportHandler:
    """Reports each iteration of a trainer, its waits for data, and each run of an evaluator.

    Args:
        reporter: None: the one of this process.
        loss: from the output of an iteration to its loss; None: the output itself, its `loss`, or its first part.
        metric: the name of the evaluator's metric; None: its `loss`, `nll`, `val_loss` or the like.
    """

    def __init__(
        self,
        reporter: Reporter | None = None,
        *,
        loss: Callable[[Any], Any] | None = None,
        metric: str | None = None,
    ) -> None:
        self._report = FitReport(reporter, "ignite")
        self._loss = loss or _loss
        self._metric = metric

    def attach(self, trainer: Any, evaluator: Any | None = None) -> None:
        """Report this trainer, and the evaluations of this evaluator, where there is one."""
        on = trainer.add_event_handler
        on(Events.STARTED, self._begin, evaluator)
        on(Events.GET_BATCH_STARTED, self._ask)
        on(Events.GET_BATCH_COMPLETED, self._receive)
        on(Events.ITERATION_COMPLETED, self._step)
        on(Events.EPOCH_COMPLETED, self._epoch)
        on(Events.COMPLETED, self._end)
        if evaluator is not None:
            evaluator.add_event_handler(Events.COMPLETED, self._evaluate)

    @harmless
    def _begin(self, engine: Any, evaluator: Any) -> None:
        stops = stops_early(_handlers(engine)) or (evaluator is not None and stops_early(_handlers(evaluator)))
        done = engine.state.iteration
        self._report.begin(_planned(engine), done=done, epochs_done=engine.state.epoch, upper_bound=stops)

    @harmless
    def _ask(self, engine: Any) -> None:
        self._report.waits.idle()

    @harmless
    def _receive(self, engine: Any) -> None:
        self._report.waits.busy()

    @harmless
    def _step(self, engine: Any) -> None:
        self._report.step(self._loss(engine.state.output))

    @harmless
    def _epoch(self, engine: Any) -> None:
        self._report.epoch()
        self._report.plan(_planned(engine))  # of data without a length, the engine has counted it by now

    @harmless
    def _evaluate(self, evaluator: Any) -> None:
        metrics = evaluator.state.metrics
        if self._metric is not None:
            value = metrics.get(self._metric)
        else:
            value = next((metrics[name] for name in ("loss", "nll") if name in metrics), None)
            value = eval_loss(metrics) if value is None else value
        self._report.evaluate(value)

    @harmless
    def _end(self, engine: Any) -> None:
        self._report.end()


def _planned(engine: Any) -> int | None:
    if getattr(engine.state, "max_iters", None) is not None:
        return int(engine.state.max_iters)
    epochs, steps = engine.state.max_epochs, engine.state.epoch_length
    return None if epochs is None or steps is None else epochs * steps


def _handlers(engine: Any) -> list[str]:
    registered = engine._event_handlers  # noqa: SLF001 - there is no other way to them
    return names_of(handler for handlers in registered.values() for handler, *_ in handlers)


def _loss(output: Any) -> Any:
    if isinstance(output, Mapping):
        return output.get("loss")
    return output[0] if isinstance(output, Sequence) and output else output
