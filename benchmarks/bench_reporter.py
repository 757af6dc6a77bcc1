"""What `reporter.step(loss)` adds to a training step.

One process runs the same small training (logistic regression in numpy, a real gradient step) in short blocks,
alternately without and with a reporter, so that a machine that slows down slows both; the cost is the median
over pairs of neighbouring blocks. First without a scrape, which is the gate: at most 5 µs a step. Then with
scrapes every 50 ms, three hundred times as often as usual, to show what looking costs.

    python benchmarks/bench_reporter.py        # exit 1 beyond the gate
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.request import urlopen

import numpy as np

from slopewise_exporter import Reporter

MAX_MICROSECONDS_A_STEP = 5.0
PAIRS = 200
STEPS_A_BLOCK = 200
SCRAPE_INTERVAL_SECONDS = 0.05

Training = Callable[[], float]
"""One gradient step; returns its loss."""


class Cost(NamedTuple):
    """Medians, in microseconds a step."""

    without: float
    added: float

    @property
    def ratio(self) -> float:
        """Time of a step with the reporter, over the time of one without."""
        return (self.without + self.added) / self.without


def logistic_regression() -> Training:
    """A training of 64 samples and 16 features, 10 to 30 µs a step: small, so that the cost stands out."""
    random = np.random.default_rng(0)
    features = random.normal(size=(64, 16))
    labels = (features @ random.normal(size=16) > 0).astype(float)
    weights = np.zeros(16)

    def train_one_step() -> float:
        nonlocal weights
        predicted = 1.0 / (1.0 + np.exp(-(features @ weights)))
        weights = weights - 0.01 * (features.T @ (predicted - labels))
        likelihood = np.where(labels == 1.0, predicted, 1.0 - predicted)
        return float(-np.log(likelihood + 1e-12).mean())

    return train_one_step


def bare_block(train_one_step: Training) -> float:
    """Microseconds a step."""
    started = time.perf_counter()
    for _ in range(STEPS_A_BLOCK):
        train_one_step()
    return (time.perf_counter() - started) / STEPS_A_BLOCK * 1e6


def reported_block(train_one_step: Training, reporter: Reporter) -> float:
    """Microseconds a step, with its loss reported."""
    started = time.perf_counter()
    for _ in range(STEPS_A_BLOCK):
        reporter.step(train_one_step())
    return (time.perf_counter() - started) / STEPS_A_BLOCK * 1e6


def measure(reporter: Reporter) -> Cost:
    """Alternate the two kinds of blocks, each going first in every other pair."""
    train_one_step = logistic_regression()
    bare: list[float] = []
    added: list[float] = []
    for pair in range(PAIRS):
        if pair % 2:
            with_reporter = reported_block(train_one_step, reporter)
            bare.append(bare_block(train_one_step))
        else:
            bare.append(bare_block(train_one_step))
            with_reporter = reported_block(train_one_step, reporter)
        added.append(with_reporter - bare[-1])
    return Cost(statistics.median(bare), statistics.median(added))


@contextmanager
def scraping(port: int) -> Iterator[None]:
    """Scrape from a thread until the block ends."""
    stop = threading.Event()

    def scrape() -> None:
        while not stop.wait(SCRAPE_INTERVAL_SECONDS):
            with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                answer.read()

    scraper = threading.Thread(target=scrape)
    scraper.start()
    try:
        yield
    finally:
        stop.set()
        scraper.join()


def main() -> int:
    """Print both measurements; 1 when the gate is missed."""
    with Reporter(port=0, address="127.0.0.1", linger_seconds=0) as reporter:
        if reporter.port is None:
            print("bench_reporter: the reporter opened no endpoint; unset RANK and SLOPEWISE_EXPORTER_*")
            return 1
        quiet = measure(reporter)
        with scraping(reporter.port):
            scraped = measure(reporter)
    print(f"{'reporter.step(loss)':<24}{'step without':>14}{'added':>12}{'ratio':>8}")
    for name, cost in (("no scrape", quiet), ("a scrape every 50 ms", scraped)):
        print(f"{name:<24}{cost.without:>11.2f} µs{cost.added:>9.2f} µs{cost.ratio:>8.3f}")
    missed = quiet.added > MAX_MICROSECONDS_A_STEP
    verdict = "MISSED" if missed else "kept"
    print(f"gate: at most {MAX_MICROSECONDS_A_STEP:g} µs a step added without a scrape: {verdict}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
