"""What each call does to the numbers, and that none of them raises."""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from support.training_fixtures import Fetch, InBackground, MakeReporter, Scrape

from slopewise_exporter import Reporter
from slopewise_exporter.record import Progress

STATES = ("starting", "training", "checkpointing", "finished", "failed")


class Tensor:
    """A tensor with one number, as frameworks have them: no float, but `item()`."""

    def __init__(self, number: float) -> None:
        self._number = number

    def item(self) -> float:
        return self._number


class Broken:
    """Raises whatever one does with it."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)

    def __float__(self) -> float:
        raise RuntimeError("no number")

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def state_of(samples: dict[str, float]) -> list[str]:
    return [state for state in STATES if samples[f'training_state{{state="{state}"}}'] == 1]


@pytest.mark.parametrize(
    "loss", [0.25, np.float32(0.25), np.float64(0.25), np.array(0.25), np.array([0.25]), Tensor(0.25), Decimal("0.25")]
)
def test_a_loss_may_be_anything_that_holds_one_number(reporter: Reporter, scrape: Scrape, loss: Any) -> None:
    reporter.step(loss=loss)
    assert scrape(reporter.port)['training_loss{stage="train"}'] == 0.25


@pytest.mark.parametrize(
    "loss",
    ["low", [1.0, 2.0], np.zeros(3), object(), Broken(), 10**400, 10**5000, 1j, np.complex64(1j), {}, b"0.5x"],
    ids=lambda loss: type(loss).__name__,
)
def test_a_loss_that_is_no_number_is_told_once_and_the_step_still_counts(
    reporter: Reporter, scrape: Scrape, caplog: pytest.LogCaptureFixture, loss: Any
) -> None:
    reporter.step(loss=1.0)
    for _ in range(3):
        reporter.step(loss=loss)
    now = scrape(reporter.port)
    assert now["training_steps_total"] == 4
    assert now['training_loss{stage="train"}'] == 1.0
    assert now["training_nonfinite_loss_total"] == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "loss" in caplog.text


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_a_loss_that_is_not_finite_is_counted_and_the_last_finite_one_stays(
    reporter: Reporter, scrape: Scrape, bad: Any
) -> None:
    reporter.step(loss=bad)
    assert 'training_loss{stage="train"}' not in scrape(reporter.port)
    reporter.step(loss=3.0)
    reporter.step(loss=bad)
    reporter.evaluate(2.0)
    reporter.evaluate(bad)
    now = scrape(reporter.port)
    assert now["training_nonfinite_loss_total"] == 3
    assert now['training_loss{stage="train"}'] == 3.0
    assert now['training_loss{stage="train_ema"}'] == pytest.approx(3.0)
    assert now['training_loss{stage="eval"}'] == 2.0


def test_the_moving_average_weighs_the_first_steps_as_much_as_they_should(
    make_reporter: MakeReporter, scrape: Scrape
) -> None:
    reporter = make_reporter(ema_decay=0.5)
    for loss in (8.0, 4.0, 2.0):
        reporter.step(loss=loss)
    # Weights 1/8, 1/4, 1/2 of a total of 7/8.
    assert scrape(reporter.port)['training_loss{stage="train_ema"}'] == pytest.approx((1 + 1 + 1) / 0.875)


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, "many", Broken()], ids=lambda bad: type(bad).__name__)
def test_samples_and_waiting_times_that_cannot_be_counted_are_told_once_and_no_counter_goes_back(
    reporter: Reporter, scrape: Scrape, caplog: pytest.LogCaptureFixture, bad: Any
) -> None:
    reporter.step(samples=10)
    reporter.waited(0.5)
    for _ in range(2):
        reporter.step(samples=bad)
        reporter.waited(bad)
    now = scrape(reporter.port)
    assert (now["training_samples_total"], now["training_wait_seconds_total"]) == (10, 0.5)
    assert len(caplog.records) == 2
    assert "waiting time" in caplog.text


def test_the_time_of_an_evaluation_is_no_step(reporter: Reporter, scrape: Scrape) -> None:
    reporter.step()
    reporter.evaluate(1.0)
    reporter.step()
    assert scrape(reporter.port)["training_step_duration_seconds_count"] == 0
    reporter.step()
    assert scrape(reporter.port)["training_step_duration_seconds_count"] == 1


def test_a_checkpoint_is_timed_and_is_a_state_of_its_own(reporter: Reporter, scrape: Scrape) -> None:
    reporter.step()
    with reporter.checkpoint():
        during = scrape(reporter.port)
    after = scrape(reporter.port)
    assert state_of(during) == ["checkpointing"]
    assert state_of(after) == ["training"]
    assert "training_checkpoint_timestamp_seconds" not in during
    assert after["training_checkpoint_duration_seconds"] > 0
    assert after["training_checkpoint_timestamp_seconds"] >= after["training_last_step_timestamp_seconds"]


def test_steps_during_an_asynchronous_checkpoint_do_not_set_the_histogram_back(
    reporter: Reporter, scrape: Scrape
) -> None:
    reporter.step()
    with reporter.checkpoint():
        time.sleep(0.05)
        reporter.step()
        before = scrape(reporter.port)["training_step_duration_seconds_sum"]
    reporter.step()
    after = scrape(reporter.port)
    assert after["training_step_duration_seconds_sum"] >= before >= 0.05
    assert after["training_step_duration_seconds_count"] == 2


def test_a_checkpoint_that_could_not_be_saved_does_not_count_and_its_error_goes_on_up(
    reporter: Reporter, scrape: Scrape
) -> None:
    def save() -> None:
        with reporter.checkpoint():
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        save()
    now = scrape(reporter.port)
    assert "training_checkpoint_timestamp_seconds" not in now
    assert state_of(now) == ["starting"]


def test_a_resume_that_does_not_say_when_it_was_saved_exports_no_time_of_a_checkpoint(
    reporter: Reporter, scrape: Scrape
) -> None:
    reporter.resume(Progress(steps=500))
    samples = scrape(reporter.port)
    assert samples["training_steps_total"] == 500
    assert not [name for name in samples if name.startswith("training_checkpoint_")]


@pytest.mark.parametrize("steps", [None, -3, float("nan"), "many"])
def test_a_resume_from_steps_that_are_no_number_is_told_and_counts_from_zero(
    reporter: Reporter, scrape: Scrape, caplog: pytest.LogCaptureFixture, steps: Any
) -> None:
    reporter.resume(Progress(steps=steps, samples=8.0))
    reporter.step(loss=1.0)
    samples = scrape(reporter.port)
    assert (samples["training_steps_total"], samples["training_samples_total"]) == (1, 8)
    assert "steps" in caplog.text


def test_the_plan_may_become_known_later(reporter: Reporter, scrape: Scrape) -> None:
    assert reporter.planned_steps is None
    reporter.planned_steps = np.int64(500)
    assert scrape(reporter.port)["training_steps_planned"] == 500


def test_the_steps_that_an_interruption_would_lose_are_those_since_the_begin_of_the_last_saved_checkpoint(
    reporter: Reporter, scrape: Scrape
) -> None:
    reporter.resume(Progress(steps=100))
    for _ in range(3):
        reporter.step()
    assert scrape(reporter.port)["training_unsaved_steps"] == 3
    with reporter.checkpoint():  # asynchronous: a step is done meanwhile
        reporter.step()
    assert scrape(reporter.port)["training_unsaved_steps"] == 1
    with pytest.raises(OSError, match="disk full"), reporter.checkpoint():
        raise OSError("disk full")
    assert scrape(reporter.port)["training_unsaved_steps"] == 1


class SlowLoader:
    """Three batches, the second of which takes 50 ms to come."""

    batch_size = 8

    def __iter__(self) -> Iterator[int]:
        yield 0
        time.sleep(0.05)
        yield from (1, 2)

    def __len__(self) -> int:
        return 3


def test_the_time_in_which_steps_wait_for_their_batches_is_counted_and_the_loader_is_otherwise_as_it_was(
    reporter: Reporter, scrape: Scrape
) -> None:
    loader = SlowLoader()
    timed = reporter.waits(loader)
    assert list(timed) == [0, 1, 2]
    once = scrape(reporter.port)["training_wait_seconds_total"]
    assert 0.05 <= once < 1
    assert (len(timed), timed.batch_size) == (3, 8)
    assert list(timed) == [0, 1, 2], "a second epoch"
    assert scrape(reporter.port)["training_wait_seconds_total"] >= once + 0.05


def test_a_loader_that_fails_fails_as_without_the_reporter(reporter: Reporter) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("bad image")

    taken: list[int] = []
    with pytest.raises(ValueError, match="bad image"):
        taken.extend(reporter.waits(broken()))
    with pytest.raises(TypeError):
        len(reporter.waits(broken()))


@pytest.mark.parametrize("plan", [0, -5, math.nan, "all"])
def test_a_plan_that_progress_cannot_be_divided_by_is_told_and_not_exported(
    make_reporter: MakeReporter, scrape: Scrape, caplog: pytest.LogCaptureFixture, plan: float | str
) -> None:
    reporter = make_reporter(planned_steps=plan)
    assert "training_steps_planned" not in scrape(reporter.port)
    assert "planned_steps" in caplog.text


@pytest.mark.parametrize(
    ("argument", "value"),
    [("objective", "maximise"), ("ema_decay", 1.0), ("linger_seconds", math.inf), ("port", 70_000)],
)
def test_an_argument_that_cannot_be_used_is_told_and_replaced(
    make_reporter: MakeReporter,
    scrape: Scrape,
    caplog: pytest.LogCaptureFixture,
    argument: str,
    value: float | str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLOPEWISE_EXPORTER_PORT", "0")
    reporter = make_reporter(**{argument: value})
    reporter.step(loss=1.0)
    now = scrape(reporter.port)
    assert now['training_info{framework="",model="",objective="min"}'] == 1
    assert now['training_loss{stage="train_ema"}'] == pytest.approx(1.0)
    assert argument in caplog.text


def test_a_model_name_that_is_no_text_does_not_break_the_scrapes(make_reporter: MakeReporter, scrape: Scrape) -> None:
    reporter = make_reporter(model='re"sn\\et\n\udc80', framework=Broken())
    assert scrape(reporter.port)['training_info{framework="",model="re"sn\\et\n?",objective="min"}'] == 1


@pytest.mark.parametrize(("argument", "study"), [("", "of optuna"), ("own", "own")])
def test_a_study_that_is_not_given_is_that_of_optuna(
    make_reporter: MakeReporter, scrape: Scrape, monkeypatch: pytest.MonkeyPatch, argument: str, study: str
) -> None:
    assert not [name for name in scrape(make_reporter().port) if name.startswith("training_study")]
    monkeypatch.setenv("OPTUNA_STUDY", "of optuna")
    found = [name for name in scrape(make_reporter(study=argument).port) if name.startswith("training_study")]
    assert found == [f'training_study{{study="{study}"}}']


def test_a_log_handler_that_raises_does_not_stop_the_training(reporter: Reporter, scrape: Scrape) -> None:
    def refuse(record: logging.LogRecord) -> bool:
        raise RuntimeError(record.getMessage())

    log = logging.getLogger("slopewise_exporter")
    log.addFilter(refuse)
    try:
        reporter.step(loss="low")  # type: ignore[arg-type]  # so that it is told
    finally:
        log.removeFilter(refuse)
    assert scrape(reporter.port)["training_steps_total"] == 1


@pytest.fixture
def busy_reporter(reporter: Reporter) -> Iterator[Reporter]:
    """A reporter that two threads report to, switching as often as Python can."""
    stop = threading.Event()

    def train() -> None:
        while not stop.is_set():
            reporter.step(loss=1.0, samples=2)

    threads = [threading.Thread(target=train, daemon=True) for _ in range(2)]
    interval_seconds = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    yield reporter
    stop.set()
    sys.setswitchinterval(interval_seconds)
    for thread in threads:
        thread.join()


def test_counters_never_go_back_and_agree_with_each_other_while_the_training_runs(
    busy_reporter: Reporter, scrape: Scrape
) -> None:
    seen = [scrape(busy_reporter.port) for _ in range(30)]
    for name in ("training_steps_total", "training_samples_total", "training_step_duration_seconds_count"):
        values = [now[name] for now in seen]
        assert values == sorted(values)
        assert values[-1] > values[0]
    for now in seen:
        assert now["training_samples_total"] == 2 * now["training_steps_total"]
        assert now["training_step_duration_seconds_count"] == max(0, now["training_steps_total"] - 1)


def test_any_call_of_several_threads_is_counted_and_none_raises_while_the_reporter_closes(
    make_reporter: MakeReporter, in_background: InBackground
) -> None:
    reporter = make_reporter()
    calls: list[Callable[[], object]] = [
        lambda: reporter.step(loss=1.0, samples=2, steps=3),
        lambda: reporter.step(loss="low"),  # type: ignore[arg-type]  # what a training may do
        lambda: reporter.loss(math.nan),
        lambda: reporter.evaluate(1.0),
        lambda: reporter.plan(100, upper_bound=True),
        lambda: reporter.waited(0.1),
        reporter.epoch,
        lambda: reporter.resume(Progress(5)),
    ]
    raised: list[BaseException] = []
    stop = threading.Event()

    def call_all() -> None:
        try:
            while not stop.is_set():
                for call in calls:
                    call()
        except BaseException as error:
            raised.append(error)

    threads = [in_background(call_all) for _ in range(3)]
    time.sleep(0.2)
    reporter.close()
    reporter.close()
    time.sleep(0.1)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert raised == []
    assert not any(thread.is_alive() for thread in threads)
    ended = reporter._record.snapshot()
    for call in calls:
        call()
    after = reporter._record.snapshot()
    assert after._replace(steps_planned=ended.steps_planned) == ended
    assert after.state == "finished"


def test_a_training_of_many_steps_needs_no_more_memory_than_a_short_one(reporter: Reporter, fetch: Fetch) -> None:
    def train(steps: int) -> int:
        for _ in range(steps):
            reporter.step(loss=1.0, samples=1)
            reporter.epoch()
        return tracemalloc.get_traced_memory()[0]

    train(1)
    lines, steps = len(fetch(reporter.port).splitlines()), 20_000
    tracemalloc.start()
    try:
        before = train(1000)
        assert train(steps) - before < steps  # not a byte each
    finally:
        tracemalloc.stop()
    assert len(fetch(reporter.port).splitlines()) == lines


def test_the_first_step_of_a_process_keeps_its_time_also_after_a_resume(reporter: Reporter, scrape: Scrape) -> None:
    reporter.resume(Progress(40, 40.0, 1))
    name = "training_first_step_timestamp_seconds"
    assert name not in scrape(reporter.port)
    before = time.time()
    reporter.step(loss=1.0)
    first = scrape(reporter.port)[name]
    assert before <= first <= time.time()
    reporter.step(loss=0.5)
    assert scrape(reporter.port)[name] == first
