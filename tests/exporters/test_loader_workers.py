"""The workers of a data loader: more where epochs waited and the user allows them, fewer where there is less CPU."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from slopewise_exporter.threads import loader_workers
from slopewise_exporter.threads.loader_workers import VARIABLE, LoaderWorkers


class Loader:
    """What is used of a DataLoader."""

    def __init__(self, workers: int, *, stay: bool = False) -> None:
        self.num_workers = workers
        self.prefetch_factor = 2 if workers else None
        self.persistent_workers = stay
        self._iterator: object = object()


class Epochs:
    """Epochs of steps that compute for 0.4 s, in simulated time, on so many cores."""

    def __init__(self, loader: Loader, max_workers: int | None = None) -> None:
        self.now = 0.0
        self.cores = 3.0
        self.workers = LoaderWorkers(loader, max_workers)
        self._loader = loader

    def run(self, *waited: float, first: float = 0.0) -> int:
        """An epoch whose batches, the first one left out, come after so many seconds each; the workers that it has."""
        self.workers.begin()
        for seconds in (first, *waited):
            self.now += seconds
            self.workers.came(seconds)
            self.now += 0.4
        return self._loader.num_workers


@pytest.fixture
def epochs(monkeypatch: pytest.MonkeyPatch) -> type[Epochs]:
    """Made ones have the time and the cores of the newest."""
    made: list[Epochs] = []

    class Made(Epochs):
        def __init__(self, loader: Loader, max_workers: int | None = None) -> None:
            super().__init__(loader, max_workers)
            made.append(self)

    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(loader_workers, "perf_counter", lambda: made[-1].now)
    monkeypatch.setattr(loader_workers, "limit_cores", lambda: made[-1].cores)
    return Made


WAITS = (0.5, 0.5, 0.5)
"""Of steps of 0.9 s with three workers: 6.75 would keep up."""


def test_without_leave_of_the_user_a_loader_keeps_the_workers_that_it_was_made_with(epochs: type[Epochs]) -> None:
    some = epochs(Loader(3))
    assert [some.run(*WAITS) for _ in range(3)] == [3, 3, 3]


def test_an_epoch_that_waited_has_as_many_as_would_keep_up_in_the_next_one_and_says_so(
    epochs: type[Epochs], caplog: pytest.LogCaptureFixture
) -> None:
    some = epochs(Loader(3), 16)
    with caplog.at_level(logging.WARNING):
        assert [some.run(*WAITS), some.run(0.0, 0.0), some.run(0.0, 0.0)] == [3, 7, 7]
    told = "loader workers: 7 from now on instead of 3, since 56% of the last epoch was waited for batches"
    assert [record.getMessage() for record in caplog.records] == [told]


def test_no_more_than_the_user_allows(epochs: type[Epochs]) -> None:
    some = epochs(Loader(3), 5)
    assert [some.run(*WAITS) for _ in range(3)] == [3, 5, 5]


def test_more_than_the_cores_can_run_wait_for_cpu(epochs: type[Epochs]) -> None:
    """Seven on three cores bring nothing; with seven cores they do, and if steps wait still, more are missing."""
    some = epochs(Loader(3), 64)
    assert [some.run(*WAITS) for _ in range(4)] == [3, 7, 7, 7]
    some.cores = 7.0
    assert [some.run(*WAITS), some.run(*WAITS)] == [16, 16]


@pytest.mark.parametrize(("text", "workers"), [("8", 7), ("2", 3), ("many", 4), ("", 4)])
def test_the_variable_comes_before_the_argument(
    epochs: type[Epochs], monkeypatch: pytest.MonkeyPatch, text: str, workers: int
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    some = epochs(Loader(3), 4)
    assert [some.run(*WAITS), some.run(*WAITS)] == [3, workers]


def test_only_the_training_itself_gives_workers_to_a_loader_that_has_none(
    epochs: type[Epochs], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its steps load and compute in turn: 0.5 s of loading beside 0.4 s take two workers."""
    monkeypatch.setenv(VARIABLE, "8")
    some = epochs(Loader(0))
    assert [some.run(*WAITS), some.run(*WAITS)] == [0, 0]
    loader = Loader(0)
    some = epochs(loader, 8)
    assert [some.run(*WAITS), some.run(*WAITS)] == [0, 2]
    assert loader.prefetch_factor == 2  # with None its iterator raises


def test_workers_that_stay_are_replaced_by_more_once(epochs: type[Epochs]) -> None:
    loader = Loader(3, stay=True)
    some, theirs = epochs(loader, 8), loader._iterator
    assert some.run(*WAITS) == 3
    assert loader._iterator is theirs
    assert some.run(0.0) == 7
    assert loader._iterator is None
    loader._iterator = theirs
    assert some.run(0.0) == 7
    assert loader._iterator is theirs


def test_the_wait_for_the_first_batch_is_the_start_of_workers(epochs: type[Epochs]) -> None:
    some = epochs(Loader(3), 8)
    assert [some.run(0.0, 0.05, first=60.0), some.run()] == [3, 3]


def test_off_leaves_them_as_they_are(epochs: type[Epochs], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOPEWISE_THREADS", "off")
    some = epochs(Loader(3), 8)
    assert [some.run(*WAITS), some.run(*WAITS)] == [3, 3]


def test_less_cpu_has_fewer_where_threads_follow_it_and_what_waited_comes_back(
    epochs: type[Epochs], monkeypatch: pytest.MonkeyPatch
) -> None:
    some = epochs(Loader(3), 8)
    some.cores = 2.0
    assert some.run() == 3
    monkeypatch.setattr(loader_workers, "following", SimpleNamespace(may_rise=True))
    some.cores = 3.0
    assert [some.run(*WAITS), some.run(*WAITS)] == [3, 7]
    some.cores = 2.0
    assert [some.run(*WAITS), some.run(*WAITS)] == [2, 2]  # CPU lacks, and not workers
    some.cores = 6.0
    assert some.run(0.0) == 7


def test_a_loader_that_refuses_another_number_keeps_its_own(epochs: type[Epochs]) -> None:
    class Fixed(Loader):
        def __setattr__(self, name: str, value: object) -> None:
            if hasattr(self, name):
                raise AttributeError(name)
            super().__setattr__(name, value)

    some = epochs(Fixed(3), 8)
    assert [some.run(*WAITS), some.run(*WAITS)] == [3, 3]
