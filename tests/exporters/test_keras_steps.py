"""Batches that Keras trains several of at once (`steps_per_execution`), which the PyTorch backend cannot.

The framework is not installed here (tests/frameworks runs it): the callback is called as `fit` calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.training_fixtures import Scrape, StandIn

from slopewise_exporter import Reporter


class Base:
    """Of `keras.callbacks.Callback`, what `fit` sets."""

    params: dict[str, int | None]
    model: SimpleNamespace


@pytest.fixture
def make_callback(stand_in: StandIn, reporter: Any) -> Callable[[], Any]:
    backend = SimpleNamespace(backend=lambda: "jax")
    stand_in("keras", h5py={}, keras={"callbacks": SimpleNamespace(Callback=Base), "backend": backend})
    from slopewise_exporter.keras import SlopewiseCallback

    return lambda: SlopewiseCallback(reporter=reporter)


def fit(callback: Any, batches: int, at_once: int, *, known: bool = True, says_the_end: bool = True) -> None:
    """One epoch. Earlier versions of Keras 3 tell the number of the first batch at the end, too."""
    callback.params = {"steps": batches if known else None}
    callback.model = SimpleNamespace(steps_per_execution=at_once)
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    for first in range(0, batches, at_once):
        callback.on_train_batch_begin(first)
        callback.on_train_batch_end(first + at_once - 1 if says_the_end else first, {"loss": 0.5})
    callback.on_epoch_end(0)
    callback.on_train_end()


@pytest.mark.parametrize("says_the_end", [True, False])
@pytest.mark.parametrize("at_once", [1, 4, 5, 16])
def test_every_batch_is_a_step_however_many_are_trained_at_once(
    make_callback: Callable[[], Any], reporter: Reporter, scrape: Scrape, at_once: int, says_the_end: bool
) -> None:
    callback = make_callback()
    fit(callback, 10, at_once, says_the_end=says_the_end)
    assert callback.steps == 10
    assert scrape(reporter.port)["training_steps_total"] == 10


def test_where_nobody_knows_how_many_batches_there_are_the_last_execution_counts_as_a_whole_one(
    make_callback: Callable[[], Any],
) -> None:
    callback = make_callback()
    fit(callback, 10, 4, known=False)
    assert callback.steps == 12


def test_a_second_fit_counts_on(make_callback: Callable[[], Any]) -> None:
    callback = make_callback()
    fit(callback, 10, 4)
    fit(callback, 10, 4)
    assert callback.steps == 20
