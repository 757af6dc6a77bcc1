"""What the exporter adds to a small PyTorch step; `bench_reporter.py` runs this with a Python that has torch.

A perceptron with one hidden layer of 256 units, and batches of 64 images of 28 x 28 from a DataLoader: a millisecond a
step on one core, which is little even for a first example. Steps without a reporter and with one take turns. With one,
the loop is what a user types: the loader's waits are timed, the loss is the tensor, and samples are counted.

Two of these steps differ by more than the bound on most machines, so the bound is on what is measured around the
exporter's own calls, within the training and with its caches: their median, over the median of a step without them.
The medians of whole steps are printed beside it.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from time import perf_counter

import torch
from torch.utils.data import DataLoader, TensorDataset

from slopewise_exporter import Reporter

MAX_SLOWDOWN = 0.005
STEPS = 1500
BATCH = 64

Batch = tuple[torch.Tensor, torch.Tensor]


def training() -> Callable[[Batch], torch.Tensor]:
    """One optimiser step; returns its loss."""
    model = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters())
    criterion = torch.nn.CrossEntropyLoss()

    def train_on(batch: Batch) -> torch.Tensor:
        images, labels = batch
        optimizer.zero_grad()
        loss: torch.Tensor = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_on


class Timed:
    """A loader without an end, and how long its last batch took."""

    def __init__(self) -> None:
        rows = 64 * BATCH
        data = TensorDataset(torch.randn(rows, 784), torch.randint(0, 10, (rows,)))
        self._loader = DataLoader(data, batch_size=BATCH)
        self.took = 0.0

    def __iter__(self) -> Iterator[Batch]:
        while True:
            batches = iter(self._loader)
            for _ in range(len(self._loader)):
                started = perf_counter()
                batch = next(batches)
                self.took = perf_counter() - started
                yield batch


def main() -> int:
    """Print the slowdown; 1 when it is over the bound."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train_on = training()
    plain, timed = Timed(), Timed()
    bare: list[float] = []
    reported: list[float] = []
    calls: list[float] = []
    with Reporter(port=0, address="127.0.0.1", linger_seconds=0, planned_steps=1e9) as reporter:
        batches, waited = iter(plain), iter(reporter.waits(timed))
        for _ in range(STEPS):
            started = perf_counter()
            loss = train_on(next(batches))
            bare.append(perf_counter() - started)

            started = perf_counter()
            batch = next(waited)
            fetched = perf_counter()
            loss = train_on(batch)
            trained = perf_counter()
            reporter.step(loss=loss, samples=BATCH)
            ended = perf_counter()
            reported.append(ended - started)
            calls.append(ended - trained + fetched - started - timed.took)
    step, added = 1e6 * statistics.median(bare), 1e6 * statistics.median(calls)
    ratio = 1 + added / step
    verdict = "" if ratio - 1 < MAX_SLOWDOWN else "  MISSED"
    name = "a small PyTorch step"
    print(f"{name:<24}{step:>11.2f} µs{added:>9.2f} µs{ratio:>8.4f}{MAX_SLOWDOWN:>10.1%}{verdict}")
    print(f"{'  by whole steps':<24}{step:>11.2f} µs{1e6 * statistics.median(reported):>9.2f} µs with the reporter")
    return int(bool(verdict))


if __name__ == "__main__":
    sys.exit(main())
