"""A reporter whose numbers come from a log: several steps at once, the past, restarts and ends."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from support.training_fixtures import Scrape

from slopewise_exporter.tail.follower import FollowedTraining

DURATIONS = "training_step_duration_seconds"


@pytest.fixture
def training() -> Iterator[FollowedTraining]:
    reporter = FollowedTraining(port=0, address="127.0.0.1", linger_seconds=0)
    with reporter:
        yield reporter


def test_steps_that_a_log_reports_at_once_share_their_time(training: FollowedTraining, scrape: Scrape) -> None:
    training.advance_to(10, 0, 0.5)
    time.sleep(0.2)
    training.advance_to(30, 1, 0.4)
    samples = scrape(training.port)
    assert samples["training_steps_total"] == 30
    assert samples["training_epochs_total"] == 1
    assert samples[f"{DURATIONS}_count"] == 20
    assert 0.2 <= samples[f"{DURATIONS}_sum"] < 2.0
    assert samples[f'{DURATIONS}_bucket{{le="0.005"}}'] == 0


def test_what_is_of_the_past_is_not_timed(training: FollowedTraining, scrape: Scrape) -> None:
    for step in (1, 2, 3):
        training.advance_to(step, 0, 0.5, at_seconds=1e9 + step)
    samples = scrape(training.port)
    assert samples[f"{DURATIONS}_count"] == 0
    assert samples["training_first_step_timestamp_seconds"] == 1e9 + 1
    assert samples["training_last_step_timestamp_seconds"] == 1e9 + 3


def test_another_loss_for_the_same_step_is_no_step_and_one_that_is_no_number_is_counted(
    training: FollowedTraining, scrape: Scrape
) -> None:
    training.advance_to(5, 0, 0.5)
    training.advance_to(5, 0, 0.25)
    training.advance_to(5, 0, float("nan"))
    samples = scrape(training.port)
    assert samples["training_steps_total"] == 5
    assert samples[f"{DURATIONS}_count"] == 0
    assert samples['training_loss{stage="train"}'] == 0.25
    assert samples["training_nonfinite_loss_total"] == 1


def test_a_training_that_begins_again_has_an_average_of_its_own(training: FollowedTraining, scrape: Scrape) -> None:
    for step in range(1, 40):
        training.advance_to(step, 0, 0.1)
    before = scrape(training.port)["process_start_time_seconds"]
    training.mark_ended(failed=True)
    assert scrape(training.port)['training_state{state="failed"}'] == 1
    training.begin_again()
    training.advance_to(1, 0, 9.0)
    samples = scrape(training.port)
    assert samples['training_loss{stage="train_ema"}'] == 9.0
    assert samples["training_steps_total"] == 1
    assert samples['training_state{state="training"}'] == 1
    assert samples["process_start_time_seconds"] > before


def test_it_does_nothing_after_its_end(training: FollowedTraining) -> None:
    training.close()
    training.advance_to(5, 0, 0.5)
    training.begin_again()
    training.mark_ended(failed=False)
    assert training.port is None
