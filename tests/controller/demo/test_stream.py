"""The training whose batches arrive at a fixed rate: it waits, and it catches up."""

from __future__ import annotations

from slopewise.demo.trainings.sklearn_trainings import Stream


class HandClock:
    """A clock that goes on when somebody sleeps, or is asked to."""

    def __init__(self) -> None:
        self.now_seconds = 100.0
        self.slept_seconds: list[float] = []

    def __call__(self) -> float:
        return self.now_seconds

    def sleep(self, seconds: float) -> None:
        self.slept_seconds.append(seconds)
        self.now_seconds += seconds


def test_a_reader_that_is_ready_waits_until_the_batch_has_arrived() -> None:
    clock = HandClock()
    stream = Stream(0.5, clock, clock.sleep)

    stream.wait()
    clock.now_seconds += 0.125  # works on it
    stream.wait()

    assert clock.slept_seconds == [0.5, 0.375]


def test_a_reader_that_fell_behind_finds_its_batches_waiting_until_it_has_caught_up() -> None:
    clock = HandClock()
    stream = Stream(0.5, clock, clock.sleep)
    clock.now_seconds += 1.25  # throttled while two batches arrived

    for _ in range(3):
        stream.wait()

    assert clock.slept_seconds == [0.25]
