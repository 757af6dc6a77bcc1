"""The wrapper of a PyTorch DataLoader: waits, the plan, epochs, and all that the loader itself has."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from support.training_fixtures import Scrape, StandIn

from slopewise_exporter import Reporter


class Loader:
    """As much of a DataLoader as a loop sees; each batch takes 20 ms."""

    batch_size = 4

    def __init__(self, batches: int = 5) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[int]:
        for number in range(self._batches):
            time.sleep(0.02)
            yield number

    def __len__(self) -> int:
        return self._batches


class Endless(Loader):
    """Of an IterableDataset: `len` is there, and raises."""

    def __len__(self) -> int:
        raise TypeError("object of type 'IterableDataset' has no len()")


@pytest.fixture
def wrap(stand_in: StandIn, reporter: Reporter) -> Any:
    """Makes the wrapper of a loader, as where torch is installed."""
    stand_in("pytorch", torch={})
    wrapper = import_module("slopewise_exporter.pytorch").ReportedLoader
    return lambda loader, **options: wrapper(loader, reporter, **options)


def test_batches_epochs_waits_and_the_plan_are_reported(wrap: Any, reporter: Reporter, scrape: Scrape) -> None:
    loader = wrap(Loader(), epochs=3)
    for _ in range(2):
        assert list(loader) == [0, 1, 2, 3, 4]
    now = scrape(reporter.port)
    assert now["training_steps_planned"] == 15
    assert now["training_epochs_total"] == 2
    assert 0.2 <= now["training_wait_seconds_total"] < 2.0


def test_the_time_of_a_step_is_no_wait(wrap: Any, reporter: Reporter, scrape: Scrape) -> None:
    for _ in wrap(Loader(batches=2)):
        time.sleep(0.5)
    assert scrape(reporter.port)["training_wait_seconds_total"] < 0.5


def test_an_epoch_that_was_broken_off_is_none(wrap: Any, reporter: Reporter, scrape: Scrape) -> None:
    for _ in wrap(Loader()):
        break
    assert scrape(reporter.port)["training_epochs_total"] == 0


def test_accumulated_gradients_make_fewer_steps(wrap: Any, reporter: Reporter) -> None:
    wrap(Loader(batches=5), epochs=3, batches_a_step=2)
    assert reporter.planned_steps == 9


@pytest.mark.parametrize(
    ("loader", "options"),
    [
        (Endless(), {"epochs": 3}),
        (Loader(), {}),
        (Loader(), {"epochs": 3, "batches_a_step": 0}),
        (iter([]), {"epochs": 3}),
    ],
)
def test_without_a_length_there_is_no_plan_and_no_error(
    wrap: Any, reporter: Reporter, loader: Any, options: dict[str, int]
) -> None:
    list(wrap(loader, **options))
    assert reporter.planned_steps is None


def test_it_has_what_the_loader_has(wrap: Any) -> None:
    loader = wrap(Loader())
    assert (len(loader), loader.batch_size) == (5, 4)
    with pytest.raises(AttributeError):
        loader.sampler


def test_a_loader_that_only_waits_gets_the_workers_that_it_may_have(wrap: Any) -> None:
    """The plain one above has none to change."""
    loader = Loader()
    loader.num_workers = 1  # type: ignore[attr-defined]
    reported = wrap(loader, max_workers=4)
    seen = [(list(reported), loader.num_workers)[1] for _ in range(3)]  # type: ignore[attr-defined]
    assert seen == [1, 4, 4]
