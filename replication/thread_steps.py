"""`python -m replication.thread_steps LIBRARY`: a training whose steps are counted for so long as it is told.

A line `THREADS SECONDS` on standard input begins. It counts from its first step on, which prepares the data; after the
first one that ends later than that it prints its steps, CPU-seconds, seconds, and the CPU in effect as the exporter
reads it, in cores. It goes on until the next line comes: its neighbours are measured beside it to their own ends.
Runs in the environment of the library, which may have nothing else of this project.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable
from typing import Any

from slopewise_exporter.threads.cpu import CpuReader, in_effect_cores

ROUNDS = 1_000_000
"""More trees than any window has time for."""

Done = Callable[[], None]


class StoppedError(Exception):
    """The window of all neighbours is over."""


class Window:
    """Counts the steps of one window; `done` is called at the end of each."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._steps = -1
        self._is_told = False
        self._began = self._used = 0.0
        self._reader = CpuReader()

    def done(self) -> None:
        """A step has ended; StoppedError after the last one."""
        self._steps += 1
        if self._steps == 0:
            self._reader.read()
            self._began, self._used = time.monotonic(), time.process_time()
        passed = time.monotonic() - self._began
        if not self._is_told and passed >= self._seconds:
            self._is_told = True
            used, cores = time.process_time() - self._used, in_effect_cores(self._reader.read())
            print(self._steps, used, passed, cores, flush=True)
        if self._is_told and select.select([sys.stdin], [], [], 0)[0]:
            raise StoppedError


def openblas(threads: int, data: Any, done: Done) -> None:
    """A step is a product of two matrices of 300 rows."""
    import numpy as np
    from threadpoolctl import threadpool_limits

    product = data[0][:300].repeat(15, axis=1)
    with threadpool_limits(threads):
        while True:
            product = np.tanh(product @ product)
            done()


def histograms(threads: int, data: Any, done: Done) -> None:
    """A step is a tree."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.ensemble._hist_gradient_boosting import gradient_boosting
    from threadpoolctl import threadpool_limits

    class Counted(gradient_boosting.TreeGrower):  # type: ignore[misc]
        def grow(self) -> None:
            super().grow()
            done()

    grower, gradient_boosting.TreeGrower = gradient_boosting.TreeGrower, Counted
    try:
        with threadpool_limits(threads):
            HistGradientBoostingRegressor(max_iter=ROUNDS, early_stopping=False).fit(*data)
    finally:
        gradient_boosting.TreeGrower = grower


def lightgbm(threads: int, data: Any, done: Done) -> None:
    """A step is a tree."""
    import lightgbm as library

    parameters = {"verbose": -1, "num_threads": threads}
    library.train(parameters, library.Dataset(*data), ROUNDS, callbacks=[lambda _: done()])


def pytorch(threads: int, data: Any, done: Done) -> None:
    """A step is one of gradient descent of a perceptron of 256 units over all rows."""
    import torch

    torch.set_num_threads(threads)
    rows, target = (torch.tensor(part, dtype=torch.float32) for part in data)
    network = torch.nn.Sequential(torch.nn.Linear(20, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    while True:
        optimizer.zero_grad()
        ((network(rows)[:, 0] - target) ** 2).mean().backward()
        optimizer.step()
        done()


TRAININGS: dict[str, Callable[[int, Any, Done], None]] = {
    "hist-gradient-boosting": histograms,
    "lightgbm": lightgbm,
    "openblas": openblas,
    "pytorch": pytorch,
}


def main(library: str) -> None:
    """One window after another, until standard input ends."""
    import numpy as np

    rows = np.random.default_rng(0).normal(size=(3000, 20))
    print("ready", flush=True)
    while words := sys.stdin.readline().split():
        try:
            TRAININGS[library](int(words[0]), (rows, rows.sum(1)), Window(float(words[1])).done)
        except StoppedError:
            sys.stdin.readline()
            print("ready", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
