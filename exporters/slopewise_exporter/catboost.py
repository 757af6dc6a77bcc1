"""Loss and progress of CatBoost, each iteration a step.

    CatBoostClassifier(iterations=500).fit(rows, labels, callbacks=[ReportCallback()])

The number of iterations is read from the fit itself.
"""

from __future__ import annotations

from typing import Any

from slopewise_exporter.boosting import RoundsReport
from slopewise_exporter.fit_report import harmless, running
from slopewise_exporter.reporter import Reporter

DEFAULT_ITERATIONS = 1000
"""CatBoost's own."""


class ReportCallback:
    """Reports each iteration. The loss is that of the training set.

    Args:
        reporter: None: the one of this process.
        metric: the name of the metric that is reported; None: the first one that is no score.
    """

    def __init__(self, reporter: Reporter | None = None, *, metric: str | None = None) -> None:
        self._report = RoundsReport(reporter, "catboost", metric)
        self._fit: Any = None
        self._planned = 0

    def after_iteration(self, info: Any) -> bool:
        """An iteration; True: go on."""
        self._round(info)
        return True

    @harmless
    def _round(self, info: Any) -> None:
        # The number of iterations is a parameter of the fit, which no callback is given.
        parameters = running("catboost.core", "params") or {}
        if parameters is not self._fit:
            self._fit = parameters
            self._planned = parameters.get("iterations", DEFAULT_ITERATIONS)
            stops = any(parameters.get(name) for name in ("od_wait", "od_pval", "od_type"))
            self._report.begin(self._planned, upper_bound=stops)
        train = {metric: values[-1] for metric, values in info.metrics.get("learn", {}).items()}
        others = [name for name in info.metrics if name != "learn"]
        evaluation = {metric: values[-1] for name in others[-1:] for metric, values in info.metrics[name].items()}
        self._report.round(train, evaluation)
        if info.iteration >= self._planned:
            self._report.end()
            self._fit = None
