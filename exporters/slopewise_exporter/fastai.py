"""Loss and progress of a fastai learner.

    Learner(data, model, loss_func=loss, cbs=ReportCallback()).fit(5)

Each batch is a step.
"""

from __future__ import annotations

from typing import Any

from fastai.callback.core import Callback

from slopewise_exporter.fit_report import FitReport, harmless, length, names_of, stops_early
from slopewise_exporter.loss_names import eval_loss
from slopewise_exporter.reporter import Reporter


class ReportCallback(Callback):  # type: ignore[misc] # of a package that is not installed here
    """Reports each batch that is trained, and the loss on the validation set. `lr_find` is no training."""

    order = 60
    """After the Recorder (50), which computes what is reported."""

    def __init__(self, reporter: Reporter | None = None) -> None:
        super().__init__()
        self._report = FitReport(reporter, "fastai")
        self._begun = False

    @harmless
    def before_fit(self) -> None:
        """Of a fit, and of each validation and prediction as well."""
        self._begun = False

    @harmless
    def before_train(self) -> None:
        """The training part of an epoch."""
        self._report.waits.idle()
        if self._begun:
            return
        self._begun = True
        beside = names_of(self.learn.cbs)
        self._report.begin_epochs(
            self.learn.n_epoch,
            length(self.learn.dls.train) or None,
            first_epoch=self.learn.epoch,
            upper_bound=stops_early(beside),
            first_rank="LRFinder" not in beside,
        )

    @harmless
    def before_batch(self) -> None:
        """The batch is here."""
        if self._begun and self.learn.training:
            self._report.waits.busy()

    @harmless
    def after_batch(self) -> None:
        """A step, unless the batch is one of a validation."""
        if self._begun and self.learn.training:
            self._report.step(self.learn.loss)
            self._report.waits.idle()

    @harmless
    def after_epoch(self) -> None:
        """One pass over the data, and one over the validation set."""
        if not self._begun:
            return
        recorder = self.learn.recorder
        logged: dict[str, Any] = dict(zip(recorder.metric_names[1:], recorder.log[1:]))
        self._report.epoch()
        self._report.evaluate(eval_loss(logged))

    @harmless
    def after_fit(self) -> None:
        """The fit is over."""
        if self._begun:
            self._report.end()
            self._begun = False
