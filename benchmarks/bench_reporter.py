"""What `reporter.step` adds to a training step.

One process runs the same small training (logistic regression in numpy, a real gradient step) in short blocks, without a
reporter and with one in turn. What is timed is the CPU time of the training's thread, so that other processes of the
machine do not count; the cost is the median over pairs of neighbouring blocks. The bounds: 1.5 µs a step that reports
its loss as a float, and 5 µs with every option on: samples, a loader whose waits are timed, a loss that is a NumPy
scalar, and a thread that pushes the status of a TrainJob (into the void). Then with scrapes every 50 ms, three hundred
times as often as usual, without a bound: they show what being scraped costs.

A small PyTorch step is slowed by at most 0.5 %: `torch_step.py` beside this measures it where there is a Python with
torch (`SLOPEWISE_FRAMEWORKS=.../python`, or that of `make test-frameworks`).

    python benchmarks/bench_reporter.py        # exit 1 beyond a bound
"""

from __future__ import annotations

import logging
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import numpy as np

from slopewise_exporter import Reporter

MAX_MICROSECONDS_A_STEP = 1.5
MAX_MICROSECONDS_WITH_ALL = 5.0
PAIRS = 400
STEPS_A_BLOCK = 200
SCRAPE_INTERVAL_SECONDS = 0.05
UNREACHABLE = {
    "KUBEFLOW_TRAINER_SERVER_URL": "https://127.0.0.1:9/status",
    "KUBEFLOW_TRAINER_SERVER_TOKEN": __file__,
}
ROOT = Path(__file__).resolve().parents[1]
FRAMEWORKS = ROOT / ".venv-frameworks" / "bin" / "python"

Training = Callable[[], np.float64]
"""One gradient step; returns its loss."""

Block = Callable[[Training], None]
"""Some steps of a training."""


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

    def train_one_step() -> np.float64:
        nonlocal weights
        predicted = 1.0 / (1.0 + np.exp(-(features @ weights)))
        weights = weights - 0.01 * (features.T @ (predicted - labels))
        likelihood = np.where(labels == 1.0, predicted, 1.0 - predicted)
        loss: np.float64 = -np.log(likelihood + 1e-12).mean()
        return loss

    return train_one_step


def bare(train_one_step: Training) -> None:
    """Steps that report nothing."""
    for _ in BATCHES:
        float(train_one_step())


def reported(reporter: Reporter) -> Block:
    """Steps that report their loss as a float."""

    def block(train_one_step: Training) -> None:
        for _ in BATCHES:
            reporter.step(float(train_one_step()))

    return block


def all_reported(reporter: Reporter) -> Block:
    """Steps that report all that there is to report."""

    def block(train_one_step: Training) -> None:
        for _ in reporter.waits(BATCHES):
            reporter.step(loss=train_one_step(), samples=64)

    return block


BATCHES = range(STEPS_A_BLOCK)


def microseconds(block: Block, train_one_step: Training) -> float:
    """CPU time of this thread, a step."""
    started = time.thread_time_ns()
    block(train_one_step)
    return (time.thread_time_ns() - started) / STEPS_A_BLOCK / 1000


def measure(with_reporter: Block) -> Cost:
    """Alternate the two kinds of blocks, each going first in every other pair."""
    train_one_step = logistic_regression()
    without: list[float] = []
    added: list[float] = []
    for pair in range(PAIRS):
        first, second = (with_reporter, bare) if pair % 2 else (bare, with_reporter)
        times = {first: microseconds(first, train_one_step), second: microseconds(second, train_one_step)}
        without.append(times[bare])
        added.append(times[with_reporter] - times[bare])
    return Cost(statistics.median(without), statistics.median(added))


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


def costs() -> dict[str, tuple[Cost, float | None]]:
    """Each measurement with its bound."""
    found: dict[str, tuple[Cost, float | None]] = {}
    with Reporter(port=0, address="127.0.0.1", linger_seconds=0) as reporter:
        if reporter.port is None:
            raise SystemExit("bench_reporter: the reporter opened no endpoint; unset RANK and SLOPEWISE_EXPORTER_*")
        found["step(loss), a float"] = measure(reported(reporter)), MAX_MICROSECONDS_A_STEP
        with scraping(reporter.port):
            found["a scrape every 50 ms"] = measure(reported(reporter)), None
    os.environ.update(UNREACHABLE)
    with Reporter(port=0, address="127.0.0.1", linger_seconds=0) as reporter:
        reporter.plan(1e9, upper_bound=True)
        found["every option"] = measure(all_reported(reporter)), MAX_MICROSECONDS_WITH_ALL
    return found


def torch_step() -> int:
    """The exit code of `torch_step.py`; 0 where no Python with torch is known."""
    python = os.environ.get("SLOPEWISE_FRAMEWORKS") or str(FRAMEWORKS)
    if not Path(python).exists():
        print(f"a small PyTorch step: not measured, {python} is missing (make test-frameworks brings it)")
        return 0
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "exporters")}
    return subprocess.run([python, str(ROOT / "benchmarks" / "torch_step.py")], env=environment, check=False).returncode


def main() -> int:
    """Print all measurements; 1 when a bound is missed."""
    logging.getLogger("slopewise_exporter").addHandler(logging.NullHandler())
    missed = 0
    print(f"{'':<24}{'step without':>14}{'added':>12}{'ratio':>8}{'bound':>10}")
    for name, (cost, bound) in costs().items():
        shown = "" if bound is None else f"{bound:g} µs"
        verdict = "" if bound is None or cost.added <= bound else "  MISSED"
        missed += bool(verdict)
        print(f"{name:<24}{cost.without:>11.2f} µs{cost.added:>9.2f} µs{cost.ratio:>8.3f}{shown:>10}{verdict}")
    missed += torch_step() != 0
    print("bounds: " + ("MISSED" if missed else "kept"))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
