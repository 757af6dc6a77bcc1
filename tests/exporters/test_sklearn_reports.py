"""scikit-learn's own estimators: loops over `partial_fit`, and fits in stages."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import MiniBatchKMeans
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier
from support.training_fixtures import Scrape

from slopewise_exporter import Reporter
from slopewise_exporter.sklearn import ReportMonitor, reported

x = np.random.default_rng(0).standard_normal((64, 4))
y = (x[:, 0] > 0).astype(int)
batches = [(x[at : at + 8], y[at : at + 8]) for at in range(0, len(x), 8)]
TRAIN = 'training_loss{stage="train"}'


def test_a_loop_reports_its_plan_its_steps_and_the_loss_of_each(reporter: Reporter, scrape: Scrape) -> None:
    model = MLPClassifier((8,), random_state=0)
    seen = []
    for rows, labels in reported(batches, model, epochs=3, reporter=reporter):
        model.partial_fit(rows, labels, classes=[0, 1])
        seen.append(scrape(reporter.port))
    assert [now["training_steps_planned"] for now in seen] == [24] * 24
    assert [now["training_steps_total"] for now in seen] == list(range(24))
    now = scrape(reporter.port)
    assert (now["training_steps_total"], now["training_epochs_total"]) == (24, 3)
    assert now[TRAIN] == pytest.approx(model.loss_)


@pytest.mark.parametrize("of_no_length", [False, True])
def test_batches_without_a_length_are_planned_from_the_second_epoch_on(reporter: Reporter, of_no_length: bool) -> None:
    class Stream:
        def __iter__(self) -> Any:
            return iter(batches)

    model = MLPClassifier((8,), random_state=0)
    plans = []
    for rows, labels in reported(Stream() if of_no_length else batches, model, epochs=2, reporter=reporter):
        model.partial_fit(rows, labels, classes=[0, 1])
        plans.append(reporter.planned_steps)
    assert plans == [None if of_no_length else 16] * 8 + [16] * 8


def test_a_model_without_a_loss_takes_one_of_its_user(
    reporter: Reporter, scrape: Scrape, caplog: pytest.LogCaptureFixture
) -> None:
    model = SGDClassifier(loss="log_loss", random_state=0)
    for rows, labels in reported(batches, model, reporter=reporter):
        model.partial_fit(rows, labels, classes=[0, 1])
    assert scrape(reporter.port)["training_steps_total"] == 8
    assert TRAIN not in scrape(reporter.port)
    assert [record.getMessage() for record in caplog.records] == [
        "SGDClassifier keeps no loss: steps are counted without one; give reported(..., loss=...)"
    ]
    loss: Any = lambda: log_loss(y, model.predict_proba(x))  # noqa: E731 - as in the documentation
    for rows, labels in reported(batches, model, reporter=reporter, loss=loss):
        model.partial_fit(rows, labels, classes=[0, 1])
    now = scrape(reporter.port)
    assert (now["training_steps_total"], now["training_steps_planned"]) == (16, 16)
    assert now[TRAIN] == pytest.approx(loss())


def test_a_loss_that_raises_costs_itself_and_no_batch(reporter: Reporter, caplog: pytest.LogCaptureFixture) -> None:
    def loss() -> float:
        raise ZeroDivisionError

    assert len(list(reported(batches, object(), reporter=reporter, loss=loss))) == 8
    assert "ZeroDivisionError" in caplog.text


def test_a_reporter_that_is_none_costs_no_batch(caplog: pytest.LogCaptureFixture) -> None:
    assert len(list(reported(batches, object(), reporter=object()))) == 8  # type: ignore[arg-type]
    assert "has failed (AttributeError" in caplog.text


def test_clusters_have_an_inertia(reporter: Reporter, scrape: Scrape) -> None:
    model = MiniBatchKMeans(3, n_init=1, random_state=0)
    for rows, _ in reported(batches, model, reporter=reporter):
        model.partial_fit(rows)
    assert scrape(reporter.port)[TRAIN] == pytest.approx(model.inertia_)


@pytest.mark.parametrize("kind", [GradientBoostingRegressor, HistGradientBoostingRegressor])
def test_a_fit_in_stages_has_the_loss_of_its_last_stage(reporter: Reporter, scrape: Scrape, kind: Any) -> None:
    histogram = kind is HistGradientBoostingRegressor
    stages = "max_iter" if histogram else "n_estimators"
    model = kind(warm_start=True, **({"early_stopping": True, "scoring": "loss"} if histogram else {}))
    for number in reported(range(5, 25, 5), model, reporter=reporter):
        model.set_params(**{stages: number})
        model.fit(x, x.sum(1))
    now = scrape(reporter.port)
    assert (now["training_steps_total"], now["training_steps_planned"]) == (4, 4)
    assert now[TRAIN] == pytest.approx(abs(model.train_score_[-1]))
    assert now[TRAIN] > 0


def test_a_monitor_reports_each_stage(reporter: Reporter, scrape: Scrape) -> None:
    model = GradientBoostingClassifier(n_estimators=12)
    model.fit(x, y, monitor=ReportMonitor(reporter))
    now = scrape(reporter.port)
    assert (now["training_steps_total"], now["training_steps_planned"]) == (12, 12)
    assert now["training_steps_planned_is_upper_bound"] == 0
    assert now[TRAIN] == pytest.approx(model.train_score_[-1])


def test_a_monitor_says_where_early_stopping_makes_the_plan_an_upper_bound(reporter: Reporter, scrape: Scrape) -> None:
    model = GradientBoostingClassifier(n_estimators=400, n_iter_no_change=2, learning_rate=1.0, random_state=0)
    model.fit(x, y, monitor=ReportMonitor(reporter))
    now = scrape(reporter.port)
    assert now["training_steps_total"] == model.n_estimators_ < 400
    assert (now["training_steps_planned"], now["training_steps_planned_is_upper_bound"]) == (400, 1)
    assert math.isfinite(now[TRAIN])


def test_a_monitor_plans_a_second_fit_though_the_first_one_has_stopped_early(reporter: Reporter) -> None:
    monitor = ReportMonitor(reporter)
    done = 0
    for stages in (400, 300):
        model = GradientBoostingClassifier(n_estimators=stages, n_iter_no_change=2, learning_rate=1.0, random_state=0)
        model.fit(x, y, monitor=monitor)
        assert reporter.planned_steps == done + stages
        done += model.n_estimators_
    warm = GradientBoostingClassifier(n_estimators=4, warm_start=True).fit(x, y, monitor=monitor)
    warm.set_params(n_estimators=10).fit(x, y, monitor=monitor)
    assert reporter.steps == reporter.planned_steps == done + 10
