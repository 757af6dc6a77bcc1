"""Loss and progress of XGBoost, each round a step.

    xgboost.train(params, rows, 500, evals=[(rows, "train")], callbacks=[ReportCallback()])

The number of rounds, and whether they may stop early, is read from the training itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xgboost.callback import TrainingCallback

from slopewise_exporter.boosting import RoundsReport
from slopewise_exporter.fit_report import harmless, names_of, running, stops_early
from slopewise_exporter.reporter import Reporter

_TRAINING = "xgboost.training"


class ReportCallback(TrainingCallback):  # type: ignore[misc] # of a package that is not installed here
    """Reports each round. The loss is that of the training set where it is one of `evals`.

    Args:
        reporter: None: the one of this process.
        metric: the name of the metric that is reported; None: the first one that is no score.
    """

    def __init__(self, reporter: Reporter | None = None, *, metric: str | None = None) -> None:
        super().__init__()
        self._report = RoundsReport(reporter, "xgboost", metric)
        self._train_sets: set[str] = set()
        self._threads: Any = None

    def before_training(self, model: Any) -> Any:
        """The number of rounds is known to the function that trains, and to no callback."""
        self._begin()
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Any]) -> bool:
        """A round."""
        self._round(model, evals_log)
        return False

    def after_training(self, model: Any) -> Any:
        """All rounds, or an early stop."""
        self._end()
        return model

    @harmless
    def _begin(self) -> None:
        rows, sets = running(_TRAINING, "dtrain"), running(_TRAINING, "evals")
        self._train_sets = {name for each, name in sets or () if each is rows}
        params = dict(running(_TRAINING, "params") or {})
        self._threads = params.get("nthread", params.get("n_jobs"))
        beside = running(_TRAINING, "cb_container")
        self._report.begin(
            running(_TRAINING, "num_boost_round"), upper_bound=stops_early(names_of(getattr(beside, "callbacks", None)))
        )

    @harmless
    def _round(self, model: Any, evals_log: Mapping[str, Any]) -> None:
        train = [name for name in evals_log if name in self._train_sets or "train" in name.lower()]
        others = [name for name in evals_log if name not in train]
        self._report.round(_last(evals_log, train[:1]), _last(evals_log, others[-1:]))
        if hasattr(model, "set_param"):  # a cross-validation's model has none
            self._report.follow_threads(self._threads, lambda number: model.set_param({"nthread": number}))

    @harmless
    def _end(self) -> None:
        self._report.end()


def _last(evals_log: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The newest values of one data set; in a cross-validation each is a mean and its deviation."""
    values = {metric: history[-1] for name in names for metric, history in evals_log[name].items()}
    return {metric: value[0] if isinstance(value, tuple) else value for metric, value in values.items()}
