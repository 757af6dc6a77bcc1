"""The training whose batches arrive at a fixed rate: it waits, catches up, and learns the same at any speed."""

from __future__ import annotations

from slopewise.demo.trainings.sklearn_trainings import StdlibStream, Stream


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


def test_what_a_stream_teaches_does_not_depend_on_when_its_batches_arrive() -> None:
    clock = HandClock()
    rare = _losses(StdlibStream(0, 5, Stream(60.0, clock, clock.sleep)))
    at_once = _losses(StdlibStream(0, 5, Stream(0.0, clock, clock.sleep)))

    assert rare == at_once


def _losses(learner: StdlibStream) -> list[float]:
    """Of five steps, each with the held-out one after it."""
    return [loss for _ in range(5) for loss in (learner.step(), learner.evaluate())]
