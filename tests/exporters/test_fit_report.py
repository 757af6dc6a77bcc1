"""One fit after another in one reporter: the plan, steps that a framework counts itself, hooks that fail."""

from __future__ import annotations

import copy
import logging
import pickle
import time
from typing import Any

import pytest
from support.training_fixtures import MakeReporter, Scrape

from slopewise_exporter import Reporter, fit_report
from slopewise_exporter.fit_report import (
    FitReport,
    common_reporter,
    harmless,
    loss_among,
    names_of,
    running,
    stops_early,
)
from slopewise_exporter.order import BatchOrder
from slopewise_exporter.record import Progress

BOUND = "training_steps_planned_is_upper_bound"


@pytest.fixture(autouse=True)
def no_common_reporter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_report, "_common", None)


@pytest.fixture
def report(reporter: Reporter) -> FitReport:
    return FitReport(reporter, "test")


def train(report: FitReport, steps: int) -> None:
    for _ in range(steps):
        report.step(0.5)


def test_the_plan_of_a_second_fit_begins_after_the_steps_of_the_first(reporter: Reporter) -> None:
    for _ in range(2):
        report = FitReport(reporter, "test")
        report.begin(10)
        train(report, 10)
        report.end()
    report = FitReport(reporter, "test")
    report.begin(30)
    assert (reporter.steps, reporter.planned_steps) == (20, 50)


def test_the_plan_that_a_script_gives_itself_stays(make_reporter: MakeReporter) -> None:
    reporter = make_reporter(planned_steps=77)
    report = FitReport(reporter, "test")
    report.begin(10, upper_bound=True)
    train(report, 3)
    report.plan(20)
    report.end()
    assert reporter.planned_steps == 77


def test_early_stopping_makes_the_plan_an_upper_bound_until_the_fit_has_ended(
    reporter: Reporter, report: FitReport, scrape: Scrape
) -> None:
    report.begin(10, upper_bound=True)
    train(report, 4)
    now = scrape(reporter.port)
    assert (now["training_steps_planned"], now[BOUND]) == (10, 1)
    report.plan(12)
    assert scrape(reporter.port)[BOUND] == 1
    report.end()
    now = scrape(reporter.port)
    assert (now["training_steps_planned"], now[BOUND]) == (4, 0)


@pytest.mark.parametrize("steps", [None, float("inf"), -1, 0])
def test_a_plan_that_the_framework_has_not_got_is_not_exported(
    reporter: Reporter, scrape: Scrape, caplog: pytest.LogCaptureFixture, steps: float | None
) -> None:
    FitReport(reporter, "test").begin(steps)
    assert "training_steps_planned" not in scrape(reporter.port)
    assert caplog.text == ""


def test_a_fit_that_goes_on_counts_the_steps_of_its_checkpoint(
    reporter: Reporter, report: FitReport, scrape: Scrape
) -> None:
    report.begin(100, done=40, epochs_done=4)
    train(report, 1)
    now = scrape(reporter.port)
    assert (now["training_steps_total"], now["training_epochs_total"], now["training_steps_planned"]) == (41, 4, 100)


def test_a_fit_that_goes_on_in_the_same_process_does_not_count_its_steps_again(
    reporter: Reporter, report: FitReport
) -> None:
    report.begin(40)
    train(report, 40)
    report.begin(100, done=40)
    assert (reporter.steps, reporter.planned_steps) == (40, 100)


def test_epochs_of_unknown_length_are_planned_from_the_first_that_has_ended(
    reporter: Reporter, report: FitReport
) -> None:
    report.begin_epochs(4, None)
    plans = []
    for steps in (5, 7, 7, 6):
        train(report, steps)
        report.epoch()
        plans.append(reporter.planned_steps)
    assert plans == [5 + 3 * 5, 12 + 2 * 7, 19 + 7, 25]


def test_a_fit_from_a_later_epoch_on_plans_what_is_left(reporter: Reporter, report: FitReport) -> None:
    report.begin_epochs(5, 10, first_epoch=2)
    assert (reporter.steps, reporter.planned_steps) == (20, 50)
    train(report, 10)
    report.epoch()
    assert reporter.planned_steps == 50


def test_another_rank_reports_nothing(reporter: Reporter, report: FitReport) -> None:
    report.begin(10, first_rank=False)
    train(report, 3)
    report.reach(5, 0.1)
    report.loss(0.1)
    report.evaluate(0.5)
    report.waits.idle()
    report.waits.busy()
    report.epoch()
    report.plan(5)
    report.end()
    assert (reporter.steps, reporter.planned_steps) == (0, None)


def reached(reporter: Reporter, *steps: int) -> int:
    report = FitReport(reporter, "test")
    report.begin()
    for step in steps:
        report.reach(step, 0.5)
    return reporter.steps


@pytest.mark.parametrize(
    ("steps", "counted"),
    [
        ((10, 20, 30), 30),
        ((10, 10, 10), 10),
        ((1_000_000_000,), 1_000_000_000),
        ((100, 1, 120, 2, 140), 140),  # the number of an epoch now and then
        ((100, 10, 20, 30), 120),  # another training
    ],
)
def test_steps_that_jump_or_go_back_never_set_the_counter_back(
    reporter: Reporter, steps: tuple[int, ...], counted: int
) -> None:
    assert reached(reporter, *steps) == counted


def test_steps_that_go_back_are_logged_once(reporter: Reporter, caplog: pytest.LogCaptureFixture) -> None:
    reached(reporter, 100, 1, 120, 2, 140, 3)
    assert [record.getMessage() for record in caplog.records] == [
        "test: step 1 comes after step 100: it is not counted, nor is its loss, unless higher ones follow it"
    ]


def test_without_a_reporter_the_one_that_the_script_has_opened_is_used(reporter: Reporter) -> None:
    assert common_reporter("test") is reporter


def test_without_any_reporter_one_is_made_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOPEWISE_EXPORTER_PORT", "0")
    made = common_reporter("test")
    try:
        assert made.port is not None
        assert common_reporter("another") is made
        made.end(failed=False, linger=False)
        again = common_reporter("test")
        assert again is not made
        again.end(failed=False, linger=False)
    finally:
        made.end(failed=False, linger=False)


def test_where_no_port_can_be_opened_no_fit_tries_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SLOPEWISE_EXPORTER_ADDRESS", "no.such.host.invalid")
    for _ in range(3):
        FitReport(None, "test").begin(10)
    assert len(caplog.records) == 1


def test_an_estimator_can_be_pickled_and_copied_with_its_callback(reporter: Reporter, report: FitReport) -> None:
    report.begin(10)
    pickle.loads(pickle.dumps(report)).end()
    copied = copy.deepcopy(report)
    copied.begin(10)
    train(copied, 1)
    assert reporter.steps == 1


def test_the_time_between_two_steps_is_a_wait_unless_something_else_happened_in_it(
    reporter: Reporter, report: FitReport, scrape: Scrape
) -> None:
    report.begin(10)
    report.waits.busy()
    report.waits.idle()
    time.sleep(0.05)
    report.waits.busy()
    report.waits.busy()
    waited = scrape(reporter.port)["training_wait_seconds_total"]
    assert waited >= 0.05
    report.waits.idle()
    time.sleep(0.05)
    report.waits.interrupt()
    report.waits.busy()
    assert scrape(reporter.port)["training_wait_seconds_total"] == waited


@pytest.mark.parametrize(
    "name",
    [
        *("loss", "Loss", "train_loss", "train/loss", "Train/Loss", "training loss", "train_loss_step", "loss_epoch"),
        *("training_loss_step", "loss/train_epoch"),
    ],
)
def test_a_training_loss(name: str) -> None:
    assert loss_among({"accuracy": 0.9, name: 0.5}) == 0.5
    assert loss_among({name: 0.5}, "evaluation") is None


@pytest.mark.parametrize(
    "name",
    [
        *("val_loss", "eval_loss", "valid/loss", "validation_loss", "test.loss", "val_loss_epoch", "val_loss_step"),
        "test/loss_epoch",
    ],
)
def test_the_loss_of_an_evaluation(name: str) -> None:
    assert loss_among({"accuracy": 0.9, name: 0.5}, "evaluation") == 0.5
    assert loss_among({name: 0.5}) is None


@pytest.mark.parametrize("name", ["accuracy", "learning_rate", "loss_scale", "lossless", "epoch", "val_f1"])
def test_what_is_no_loss(name: str) -> None:
    assert loss_among({name: 0.5}) is None
    assert loss_among({name: 0.5}, "evaluation") is None


def test_of_two_losses_the_plain_one_counts() -> None:
    assert loss_among({"train_mse": 1.0, "loss": 2.0}) == 2.0
    assert loss_among({"val_loss_step": 1.0, "val_loss": 2.0}, "evaluation") == 2.0


class Broken:
    @harmless
    def hook(self, model: Any) -> int:
        return int(model.attribute_of_another_version)


def test_a_hook_that_fails_is_logged_once_and_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert [Broken().hook(object()) for _ in range(3)] == [None, None, None]
    assert len(caplog.records) == 1
    assert "Broken.hook has failed (AttributeError" in caplog.text


def test_what_runs_above_is_found_by_its_module() -> None:
    rounds = 12

    def deeper() -> Any:
        return running(__name__, "rounds")

    assert deeper() == rounds
    assert running(__name__, "no_such_variable") is None
    assert running("no.such.module", "rounds") is None


@pytest.mark.parametrize(
    "name", ["EarlyStopping", "EarlyStoppingCallback", "_EarlyStoppingCallback", "early_stopping", "MyEarlyStopper"]
)
def test_callbacks_that_stop_early_are_known_by_their_names(name: str) -> None:
    assert stops_early([name, "ProgressBar"])
    assert not stops_early(["ProgressBar", "StopwatchEarly"])


def test_no_callbacks_have_no_names() -> None:
    assert names_of(None) == []
    assert names_of([1, "text"]) == ["int", "str"]


class Stream:
    def __len__(self) -> int:
        raise TypeError("has no length")


@pytest.mark.parametrize(
    "batches", [[1, 2, 3], (), Stream(), None, iter([1, 2, 3])], ids=lambda each: type(each).__name__
)
def test_a_loop_over_epochs_plans_them(make_reporter: MakeReporter, scrape: Scrape, batches: Any) -> None:
    reporter = make_reporter()
    plans = []
    for epoch in reporter.epochs(3, batches):
        plans.append(reporter.planned_steps)
        for _ in range(3):
            reporter.step(loss=1.0)
        assert scrape(reporter.port)["training_epochs_total"] == epoch
    assert plans[1:] == [9, 9]
    assert plans[0] == (9 if isinstance(batches, list) else None)
    assert scrape(reporter.port)["training_epochs_total"] == 3


def test_a_loop_that_accumulates_gradients_has_the_right_plan_after_its_first_epoch(reporter: Reporter) -> None:
    plans = []
    for _ in reporter.epochs(4, range(8)):
        plans.append(reporter.planned_steps)
        for _ in range(2):
            reporter.step(loss=1.0)
    assert plans == [32, 8, 8, 8]


def test_a_loop_that_goes_on_plans_the_epochs_that_are_left(reporter: Reporter) -> None:
    for _ in reporter.epochs(4, range(5), first=3):
        assert reporter.planned_steps == 5


def test_a_loop_that_goes_on_within_an_epoch_is_not_planned_by_what_was_left_of_it(reporter: Reporter) -> None:
    order = BatchOrder(80, 8, steps_done=39)
    reporter.resume(Progress(39, epochs=3))
    plans = []
    for _ in reporter.epochs(60, order, first=3):
        plans.append(reporter.planned_steps)
        for _ in order:
            reporter.step(loss=1.0)
    assert plans[0] == pytest.approx(600, abs=9)
    assert plans[1] == pytest.approx(600, abs=9)
    assert set(plans[2:]) == {600}
    assert reporter.steps == 600


def test_a_loss_may_come_after_its_step(reporter: Reporter, scrape: Scrape) -> None:
    reporter.step()
    reporter.loss(0.25)
    reporter.loss("low")  # type: ignore[arg-type]  # what a training may do
    reporter.loss(float("nan"))
    now = scrape(reporter.port)
    assert (now["training_steps_total"], now['training_loss{stage="train"}']) == (1, 0.25)
    assert now["training_nonfinite_loss_total"] == 1


@pytest.mark.parametrize("steps", [0, -1, 1.5, "many", None, float("nan"), float("inf")])
def test_a_number_of_steps_that_is_none_counts_as_one(
    reporter: Reporter, scrape: Scrape, caplog: pytest.LogCaptureFixture, steps: Any
) -> None:
    reporter.step(steps=steps)
    reporter.step(steps=steps)
    assert scrape(reporter.port)["training_steps_total"] == 2
    assert len(caplog.records) == 1
