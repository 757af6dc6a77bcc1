"""Measures how long each batch of a data loader takes to come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import Callable, Generic, TypeVar

Batch = TypeVar("Batch")


class TimedBatches(Generic[Batch]):
    """Iterates over `batches` and calls `waited(seconds)` after each one; what else they have is reached through it."""

    def __init__(self, batches: Iterable[Batch], waited: Callable[[float], None]) -> None:
        self._batches = batches
        self._waited = waited

    def __iter__(self) -> Iterator[Batch]:
        waited = self._waited
        batches = iter(self._batches)
        while True:
            asked_at = perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            waited(perf_counter() - asked_at)
            yield batch

    def __len__(self) -> int:
        # A TypeError for what has no length, as of the batches themselves.
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        # A sampler's set_epoch, a loader's batch_size: a script that had the loader still finds them.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._batches, name)
