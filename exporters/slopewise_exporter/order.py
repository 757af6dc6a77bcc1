"""The order in which a training sees its rows, from any step on: what a checkpoint of most frameworks leaves out.

A training that goes on at step 1,234 sees the rows that it would have seen, because the order of an epoch depends on
the seed and the epoch alone, not on what was drawn before.
"""

from __future__ import annotations

import random
from collections.abc import Iterator


class BatchOrder:
    """Shuffled again in each epoch; the rows that do not fill a batch are left out of that epoch.

    With 10 rows in batches of 4 an epoch has 2 batches, and step 5 is the second batch of the third epoch.
    """

    def __init__(self, rows: int, batch_size: int, *, seed: int = 0, steps_done: int = 0) -> None:
        """ValueError where there is not one whole batch."""
        if not 0 < batch_size <= rows:
            raise ValueError(f"{rows} rows do not make one batch of {batch_size}")
        self._rows = rows
        self._batch_size = batch_size
        self._seed = seed
        self._steps_done = steps_done
        self._epoch = -1
        self._shuffled: list[int] = []

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return self._rows // self._batch_size

    def __iter__(self) -> Iterator[list[int]]:
        """The batches that are left of the epoch; the next time, those of the next one."""
        start, stop = self._steps_done, (self._steps_done // len(self) + 1) * len(self)
        self._steps_done = stop
        return map(self.batch, range(start, stop))

    def batch(self, step: int) -> list[int]:
        """The rows of a step, counted from 0 over all epochs."""
        epoch, number = divmod(step, len(self))
        if epoch != self._epoch:
            self._shuffled = list(range(self._rows))
            random.Random(f"{self._seed} {epoch}").shuffle(self._shuffled)  # noqa: S311 - an order, not a secret
            self._epoch = epoch
        return self._shuffled[number * self._batch_size : (number + 1) * self._batch_size]
