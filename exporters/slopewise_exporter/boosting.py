"""What the boosting libraries have in common: rounds that are steps, and metrics of which one is the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from slopewise_exporter.fit_report import FitReport, check
from slopewise_exporter.reporter import Reporter
from slopewise_exporter.threads.following import following

_SCORES = frozenset(
    {
        *("acc", "accuracy", "auc", "aucmu", "aucpr", "average_precision", "balancedaccuracy", "f", "f1"),
        *("hitfraction", "kappa", "map", "mcc", "mrr", "ndcg", "normalizedgini", "pairaccuracy", "prauc", "pre"),
        *("precision", "r2", "recall", "totalf1", "wkappa"),
    }
)
"""Metrics that are better when they are higher, of which none is a loss."""


class RoundsReport(FitReport):
    """Reports each round with the loss on the training set and that on the last other one.

    Args:
        reporter: None: the one of this process.
        framework: the library's name.
        metric: the name of the metric that is reported, whatever it is; None: the first one that is no score.
    """

    def __init__(self, reporter: Reporter | None, framework: str, metric: str | None = None) -> None:
        super().__init__(reporter, framework)
        self._metric = metric
        self._threads = self._most_threads = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (None, self._framework, self._metric)

    def __deepcopy__(self, memo: dict[int, Any]) -> RoundsReport:
        return type(self)(self._given, self._framework, self._metric)

    def round(self, train: Mapping[str, Any], evaluation: Mapping[str, Any]) -> None:
        """A round is done, with these metrics by their names."""
        loss, evaluated = self._loss(train), self._loss(evaluation)
        subject = f"{self._framework} no loss"
        if loss is None and evaluated is None and not check.warned(subject):
            check.warn(
                subject,
                f"{self._framework}: rounds are counted, but there is no loss among {sorted({*train, *evaluation})}: "
                "evaluate the training set too, with a metric that is a loss, or name one: ReportCallback(metric=...)",
            )
        self.evaluate(evaluated, within_step=True)
        self.step(loss)

    def count_threads(self, counted: int) -> None:
        """The fit has begun with so many threads, and never gets more."""
        self._threads = self._most_threads = counted

    def follow_threads(self, given: Any, give: Callable[[int], Any]) -> None:
        """`give` the library its number of threads where that has changed.

        `given`: what the training itself has given, which stays; 0, -1 and None mean all cores.
        """
        wanted = min(following.wanted, self._most_threads or following.wanted)
        by_hand = isinstance(given, int) and given > 0
        if wanted < following.wanted and following.sets and not by_hand:
            check.warn(
                f"{self._framework} threads",
                f"{self._framework}: this fit has at most the threads that it began with ({wanted}), a later one more",
            )
        if wanted != self._threads:
            self._threads = wanted
            if following.sets and not by_hand:
                give(wanted)

    def _loss(self, metrics: Mapping[str, Any]) -> Any | None:
        if self._metric is not None:
            return metrics.get(self._metric)
        return next((value for name, value in metrics.items() if not _is_score(name)), None)


def _is_score(metric: str) -> bool:
    # `ndcg@10-`, `AUC:type=Mu`
    return metric.partition("@")[0].partition(":")[0].rstrip("-").lower() in _SCORES
