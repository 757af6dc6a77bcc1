"""Loss and progress of scikit-learn: loops over `partial_fit`, and fits in stages.

    for x, y in reported(batches, model, epochs=5):
        model.partial_fit(x, y)

    GradientBoostingClassifier(n_estimators=500).fit(x, y, monitor=ReportMonitor())

A step is a batch, or a stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Callable, TypeVar

from slopewise_exporter.fit_report import FitReport, harmless, length
from slopewise_exporter.reporter import Reporter
from slopewise_exporter.values import Checker

Batch = TypeVar("Batch")

_LOSSES = ("loss_", "inertia_", "reconstruction_err_")
"""What estimators with `partial_fit` call the loss of their last batch."""


def reported(
    batches: Iterable[Batch],
    model: Any,
    *,
    epochs: int = 1,
    loss: Callable[[], Any] | None = None,
    reporter: Reporter | None = None,
) -> Iterator[Batch]:
    """All `batches`, `epochs` times; a step is reported when the next one is asked for.

    Args:
        batches: anything that can be gone through; its length, where it has one, is the plan.
        model: its `loss_` (or `inertia_`, `reconstruction_err_`, `train_score_`) is the loss.
        epochs: how often `batches` are gone through.
        loss: where the model has none (`SGDClassifier`), e.g. `lambda: log_loss(y, model.predict_proba(x))`.
        reporter: None: the one of this process.
    """
    report, check = FitReport(reporter, "scikit-learn"), Checker()
    harmless(report.begin_epochs)(epochs, length(batches) or None)

    @harmless
    def step_done() -> None:
        report.step(_loss_of(model, check) if loss is None else loss())

    for _ in range(epochs):
        for batch in batches:
            yield batch
            step_done()
        harmless(report.epoch)()
    harmless(report.end)()


class ReportMonitor:
    """For `fit(..., monitor=ReportMonitor())` of gradient boosting: each stage is a step."""

    def __init__(self, reporter: Reporter | None = None) -> None:
        self._report = FitReport(reporter, "scikit-learn")
        self._next_stage = -1

    def __call__(self, stage: int, model: Any, variables: Any) -> bool:
        """A stage; False: go on."""
        self._stage(stage, model)
        return False

    @harmless
    def _stage(self, stage: int, model: Any) -> None:
        if stage != self._next_stage:  # the first of a fit, also after one that has stopped early or failed
            stops = getattr(model, "n_iter_no_change", None) is not None
            self._report.begin(model.n_estimators, done=stage, upper_bound=stops)
        self._report.step(model.train_score_[stage])
        self._next_stage = stage + 1
        if stage + 1 >= model.n_estimators:
            self._report.end()
            self._next_stage = -1


def _loss_of(model: Any, check: Checker) -> Any | None:
    for name in _LOSSES:
        if getattr(model, name, None) is not None:
            return getattr(model, name)
    scores: Any = getattr(model, "train_score_", ())
    if len(scores):  # of a fit in stages with `warm_start`
        # With scoring="loss" histogram gradient boosting keeps the negative of it.
        return -scores[-1] if getattr(model, "scoring", None) == "loss" else scores[-1]
    message = f"{type(model).__name__} keeps no loss: steps are counted without one; give reported(..., loss=...)"
    check.warn("no loss", message)
    return None
