"""Loss and progress of LightGBM, each round a step.

    lightgbm.train(params, rows, 500, valid_sets=[rows], valid_names=["train"], callbacks=[ReportCallback()])

The number of rounds, and whether they may stop early, is read from the training itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from slopewise_exporter.boosting import RoundsReport
from slopewise_exporter.fit_report import harmless, names_of, running, stops_early
from slopewise_exporter.reporter import Reporter
from slopewise_exporter.threads.cpu import affinity_cores
from slopewise_exporter.threads.following import following
from slopewise_exporter.threads.libraries import openmp_threads

_EARLY_STOPPING = ("early_stopping_round", "early_stopping_rounds", "early_stopping", "n_iter_no_change")


_THREADS = ("num_threads", "num_thread", "nthread", "nthreads", "n_jobs")


class ReportCallback:
    """Reports each round. The loss is that of the training set where it is one of the validation sets.

    Args:
        reporter: None: the one of this process.
        metric: the name of the metric that is reported; None: the first one that is no score.
    """

    order = 25
    """Before early stopping (30), whose last round would not be counted otherwise."""

    before_iteration = False

    def __init__(self, reporter: Reporter | None = None, *, metric: str | None = None) -> None:
        self._report = RoundsReport(reporter, "lightgbm", metric)
        self._metric = metric
        self._widened = False
        self._counted: int | None = None

    def widen(self, params: dict[str, Any], pools: Iterable[Any] = ()) -> dict[str, Any]:
        """The parameters of a fit that begins, with a thread for each core: it crashes with more than it began with.

        `pools`: of OpenMP, where they were just found.

        Unchanged where its number never rises: it is fixed, or the training has given OpenMP fewer threads itself. And
        where others take the CPU: one thread of a fit for two takes 1.6 times the CPU of a fit for one, 3,000 rows.
        """
        given = any(name in params for name in _THREADS)
        may_rise = following.may_rise and not following.crowded
        self._counted = openmp_threads(pools) if following.follows else None
        rises = following.sets and may_rise and (self._counted or 0) >= following.wanted
        if given or _draws(params) or not rises:
            return params
        self._widened = True
        return {**params, "num_threads": affinity_cores()}

    @harmless
    def __call__(self, env: Any) -> None:
        """A round."""
        if env.iteration == env.begin_iteration:
            beside = names_of(running("lightgbm.engine", "callbacks_after_iter"))
            stops = stops_early(beside) or any((env.params or {}).get(name) for name in _EARLY_STOPPING)
            self._report.begin(env.end_iteration, done=env.begin_iteration, upper_bound=stops)
            given = _given(env)
            if following.wanted != 0:
                counted = self._counted or openmp_threads()
                self._report.count_threads(given if isinstance(given, int) and given > 0 else counted)
        train: dict[str, Any] = {}
        evaluation: dict[str, Any] = {}
        for data_set, metric, value, higher_is_better, *_ in env.evaluation_result_list or ():
            if metric == self._metric or not higher_is_better:
                (train if "train" in data_set.lower() else evaluation)[metric] = value
        self._report.round(train, evaluation)
        if following.follows and not _draws(env.params or {}):
            self._report.follow_threads(
                None if self._widened else _by_hand(env),
                lambda number: env.model.reset_parameter({"num_threads": number}),
            )
        if env.iteration + 1 == env.end_iteration:
            self._report.end()


_DRAWN = ("feature_fraction", "sub_feature", "colsample_bytree", "feature_fraction_bynode", "colsample_bynode")


def _draws(params: Mapping[str, Any]) -> bool:
    """Whether the fit draws features or trees, which it would draw again when a parameter is reset."""
    drawn = any(params.get(name) not in (None, 1, 1.0) for name in _DRAWN)
    boosting = next((params[name] for name in ("boosting", "boosting_type", "boost") if name in params), "")
    return drawn or bool(params.get("extra_trees") or params.get("extra_tree")) or boosting == "dart"


def _given(env: Any) -> Any:
    """What the training was given: a number of threads, or None."""
    return next((env.params[name] for name in _THREADS if name in (env.params or {})), None)


def _by_hand(env: Any) -> Any:
    """The same, if by the user: the classes for scikit-learn count the cores where they were given none."""
    estimator = running("lightgbm.sklearn", "self")
    return None if estimator is not None and getattr(estimator, "n_jobs", 0) is None else _given(env)
