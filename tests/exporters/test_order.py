"""The order of rows depends on the seed and the step alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slopewise_exporter.order import BatchOrder

SIZES = st.tuples(st.integers(1, 40), st.integers(1, 40)).filter(lambda each: each[1] <= each[0])


def first_batches(order: BatchOrder, number: int) -> list[list[int]]:
    """By its own epochs, as a data loader asks."""
    batches: list[list[int]] = []
    while len(batches) < number:
        batches += order
    return batches[:number]


@given(size=SIZES, steps_done=st.integers(0, 60), seed=st.integers(0, 9))
def test_going_on_from_any_step_gives_what_would_have_come(size: tuple[int, int], steps_done: int, seed: int) -> None:
    whole = first_batches(BatchOrder(*size, seed=seed), steps_done + 50)
    assert first_batches(BatchOrder(*size, seed=seed, steps_done=steps_done), 50) == whole[steps_done:]


@given(size=SIZES, step=st.integers(0, 200))
def test_a_batch_can_be_asked_for_by_its_step(size: tuple[int, int], step: int) -> None:
    assert BatchOrder(*size).batch(step) == first_batches(BatchOrder(*size), step + 1)[step]


@given(size=SIZES)
def test_an_epoch_has_no_row_twice(size: tuple[int, int]) -> None:
    rows = [row for batch in BatchOrder(*size) for row in batch]
    assert len(rows) == len(set(rows)) == size[0] // size[1] * size[1]
    assert set(rows) <= set(range(size[0]))


def test_epochs_and_seeds_differ() -> None:
    order, other = BatchOrder(100, 10, seed=0), BatchOrder(100, 10, seed=1)
    assert len({str(list(order)), str(list(order)), str(list(other))}) == 3


def test_the_example_of_the_docstring() -> None:
    order = BatchOrder(10, 4)
    assert len(order) == 2
    assert order.batch(5) == list(BatchOrder(10, 4, steps_done=4))[1]


@pytest.mark.parametrize("batch_size", [0, -1, 11])
def test_a_batch_that_the_rows_do_not_fill_is_refused(batch_size: int) -> None:
    with pytest.raises(ValueError, match="10 rows do not make one batch"):
        BatchOrder(10, batch_size)
