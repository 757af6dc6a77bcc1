"""SIGTERM where several trainings of one process listen: folds that were all made before the first one began."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from slopewise_exporter.termination import Termination


@pytest.fixture
def listen() -> Iterator[Callable[..., Termination]]:
    made: list[Termination] = []

    def start(*, nothing_to_lose: bool, leave: Callable[[], None] = lambda: None) -> Termination:
        made.append(Termination(lambda: nothing_to_lose, SimpleNamespace(leave=leave)))
        assert made[-1].install()
        return made[-1]

    yield start
    for each in reversed(made):
        each.restore()


def test_one_that_has_not_begun_does_not_end_the_training_of_another_in_the_middle_of_its_step(
    listen: Callable[..., Termination],
) -> None:
    begun = listen(nothing_to_lose=False)
    not_begun = listen(nothing_to_lose=True)
    signal.raise_signal(signal.SIGTERM)
    assert (begun.asked, not_begun.asked) == (True, True)


def test_where_none_has_anything_to_lose_the_process_ends_at_once_and_all_are_told(
    listen: Callable[..., Termination],
) -> None:
    told = []
    listen(nothing_to_lose=True, leave=lambda: told.append("first"))
    listen(nothing_to_lose=True, leave=lambda: told.append("second"))
    with pytest.raises(SystemExit) as left:
        signal.raise_signal(signal.SIGTERM)
    assert (left.value.code, set(told)) == (143, {"first", "second"})


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_in_whatever_order_they_end_the_handler_of_before_is_back_at_last(
    listen: Callable[..., Termination], order: list[int]
) -> None:
    both = [listen(nothing_to_lose=False), listen(nothing_to_lose=False)]
    for number in order:
        assert callable(signal.getsignal(signal.SIGTERM))
        both[number].restore()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_handler_that_was_there_before_all_of_them_is_called_by_the_one_that_leaves(
    listen: Callable[..., Termination],
) -> None:
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        listen(nothing_to_lose=False)
        last = listen(nothing_to_lose=False)
        signal.raise_signal(signal.SIGTERM)
        assert seen == []
        with pytest.raises(SystemExit):
            last.leave()
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
