"""Rounds of the boosting libraries: which metric is the loss. tests/frameworks runs the libraries themselves."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from support.training_fixtures import Scrape

from slopewise_exporter import Reporter, lightgbm
from slopewise_exporter.boosting import RoundsReport
from slopewise_exporter.lightgbm import ReportCallback
from slopewise_exporter.threads.cpu import Reading
from slopewise_exporter.threads.following import following
from slopewise_exporter.threads.number import ThreadNumber

TRAIN, EVAL = 'training_loss{stage="train"}', 'training_loss{stage="eval"}'


@pytest.fixture
def report(reporter: Reporter) -> RoundsReport:
    begun = RoundsReport(reporter, "test")
    begun.begin(5)
    return begun


@pytest.mark.parametrize("score", ["auc", "AUC", "ndcg@10-", "aucpr", "map@5", "F1", "AUC:type=Mu", "Accuracy"])
def test_the_first_metric_that_is_no_score_is_the_loss(
    reporter: Reporter, report: RoundsReport, scrape: Scrape, score: str
) -> None:
    report.round({score: 0.9, "logloss": 0.5, "error": 0.1}, {score: 0.8, "logloss": 0.6})
    now = scrape(reporter.port)
    assert (now[TRAIN], now[EVAL], now["training_steps_total"]) == (0.5, 0.6, 1)


def test_a_metric_that_is_named_is_reported_whatever_it_is(reporter: Reporter, scrape: Scrape) -> None:
    report = RoundsReport(reporter, "test", "auc")
    report.begin(5)
    report.round({"logloss": 0.5, "auc": 0.9}, {})
    assert scrape(reporter.port)[TRAIN] == 0.9


def test_rounds_without_a_loss_are_counted_and_logged_once(
    reporter: Reporter, report: RoundsReport, scrape: Scrape, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        report.round({}, {"auc": 0.9})
    assert scrape(reporter.port)["training_steps_total"] == 3
    assert TRAIN not in scrape(reporter.port)
    assert len(caplog.records) == 1
    assert "no loss among ['auc']" in caplog.text


def test_the_evaluation_of_each_round_is_part_of_its_time(
    reporter: Reporter, report: RoundsReport, scrape: Scrape
) -> None:
    for _ in range(3):
        report.round({"rmse": 0.5}, {"rmse": 0.6})
    assert scrape(reporter.port)["training_step_duration_seconds_count"] == 2


def test_it_can_be_pickled_and_copied_with_its_metric(reporter: Reporter, scrape: Scrape) -> None:
    for report in (copy.deepcopy(RoundsReport(reporter, "test", "auc")), RoundsReport(reporter, "test", "auc")):
        report.begin(5)
        report.round({"auc": 0.7}, {})
    assert scrape(reporter.port)[TRAIN] == 0.7
    assert isinstance(pickle.loads(pickle.dumps(RoundsReport(reporter, "test", "auc"))), RoundsReport)


def test_a_fit_that_cannot_have_more_threads_than_it_began_with_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    report, given = RoundsReport(None, "lightgbm"), list[int]()
    report.count_threads(2)
    for number in (2, 1, 3, 4):
        monkeypatch.setattr(following, "wanted", number)
        report.follow_threads(None, given.append)
    assert given == [1, 2]
    assert [record.getMessage() for record in caplog.records] == [
        "lightgbm: this fit has at most the threads that it began with (2), a later one more"
    ]


@pytest.mark.parametrize(
    ("rises", "crowded", "counted", "begins_with"),
    [
        (True, False, 2, {"num_threads": 8}),
        (True, False, 1, {}),  # threadpool_limits(1) around the fit
        (True, True, 2, {}),  # its buffers are for the threads that it gets
        (False, False, 2, {}),  # SLOPEWISE_THREADS=2: the first tree has two as well
    ],
)
def test_a_fit_of_lightgbm_begins_with_a_thread_for_each_core_only_where_its_number_may_rise(
    monkeypatch: pytest.MonkeyPatch, rises: bool, crowded: bool, counted: int, begins_with: dict[str, int]
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(following, "wanted", 2)
    number = ThreadNumber(8)
    number.next(Reading(8.0))
    monkeypatch.setattr(following, "_number", number if rises else None)
    monkeypatch.setattr(following, "cores", 4.0 if crowded else 8.0)
    monkeypatch.setattr(lightgbm, "openmp_threads", lambda _: counted)
    monkeypatch.setattr(lightgbm, "affinity_cores", lambda: 8)
    given = {"objective": "l2"}
    assert ReportCallback().widen(given) == given | begins_with
    assert given == {"objective": "l2"}


def rounds(callback: ReportCallback, results: list[tuple[Any, ...]], **parameters: Any) -> None:
    """As LightGBM calls it."""
    for number in range(3):
        callback(
            SimpleNamespace(
                iteration=number, begin_iteration=0, end_iteration=4, params=parameters, evaluation_result_list=results
            )
        )


def test_lightgbm_says_itself_which_metric_is_a_score(reporter: Reporter, scrape: Scrape) -> None:
    results = [("training", "my_score", 0.9, True), ("training", "l2", 0.5, False), ("valid_0", "l2", 0.7, False)]
    rounds(ReportCallback(reporter), results)
    now = scrape(reporter.port)
    assert (now[TRAIN], now[EVAL], now["training_steps_planned"]) == (0.5, 0.7, 4)
    assert now["training_steps_planned_is_upper_bound"] == 0


def test_lightgbm_may_stop_early_by_a_parameter(reporter: Reporter, scrape: Scrape) -> None:
    rounds(ReportCallback(reporter), [], early_stopping_rounds=3)
    assert scrape(reporter.port)["training_steps_planned_is_upper_bound"] == 1


def test_lightgbm_of_another_version_costs_its_metrics_only(
    reporter: Reporter, caplog: pytest.LogCaptureFixture
) -> None:
    ReportCallback(reporter)(SimpleNamespace())
    assert "slopewise_exporter.lightgbm.ReportCallback.__call__ has failed (AttributeError" in caplog.text
