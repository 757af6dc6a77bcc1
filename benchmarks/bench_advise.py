"""How long `slopewise advise` takes over the history of 1,000 jobs in 7 days, and how much memory.

The history is written as blocks by `promtool tsdb create-blocks-from openmetrics`, a sample a minute of each series,
and read from a real Prometheus by the real command, replays included. Bounds: 2 minutes and 500 MB, of the command and
its workers together. `--jobs N` makes fewer; the bounds stay.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.backfilled_prometheus import PastJob, Series, backfilled, node, targets  # noqa: E402

from slopewise.adapters.local.prometheus_install import find_prometheus  # noqa: E402

DAY = 86_400.0
DAYS = 7
NODES, NODE_CORES = 20, 8.0
BOUND_SECONDS, BOUND_MB = 120.0, 500.0


def history(jobs: int, now: float) -> Iterator[Series]:
    """Trainings of a quarter of an hour to a day, of which one in five holds GPUs."""
    draw = random.Random(16)
    for number in range(jobs):
        hours = min(24.0, max(0.25, draw.lognormvariate(1.0, 0.9)))
        start = now - 60 - draw.uniform(0, DAYS * DAY - 3600 * hours)
        steepness = draw.choice([3, 8, 20, 60])
        start -= 3600 * hours if start + 3600 * hours > now - 60 else 0.0
        job = PastJob(
            pod=f"train-{number:04d}-{draw.randrange(16**5):05x}",
            namespace=f"team-{number % 12}",
            node=f"node-{draw.randrange(NODES):02d}",
            start_seconds=start,
            hours=hours,
            loss=lambda x, k=steepness: 0.3 + 2 * math.exp(-k * x) + 0.02 * math.sin(1e4 * x),  # type: ignore[misc]
            cores=draw.uniform(0.5, 7.0),
            request=4.0,
            gpus=4 if number % 5 == 0 else 0,
            gpu_use=draw.random(),
            throttled=draw.choice([0.0, 0.1, 0.5]),
        )
        yield from job.series()
    yield from targets(now - DAYS * DAY, DAYS * DAY - 60)
    for number in range(NODES):
        yield node(f"node-{number:02d}", NODE_CORES, now - DAYS * DAY, DAYS * DAY - 60)


class Memory:
    """The most memory that a process and its children held together, by their proportional set size."""

    def __init__(self, pid: int) -> None:
        self.most_bytes = 0
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            try:
                every = [self._process, *self._process.children(recursive=True)]
                self.most_bytes = max(self.most_bytes, sum(each.memory_full_info().pss for each in every))
            except psutil.Error:
                continue


def main() -> int:
    """Print the figures; 1 when a bound is missed."""
    options = argparse.ArgumentParser()
    options.add_argument("--jobs", type=int, default=1000)
    options.add_argument("--report", default=os.devnull)
    jobs = options.parse_args().jobs
    now = time.time()
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        with backfilled(find_prometheus(), Path(folder), history(jobs, now)) as url:
            print(f"{jobs} jobs in {DAYS} days, backfilled in {time.monotonic() - start:.0f} s")
            start = time.monotonic()
            command = [sys.executable, "-m", "slopewise", "advise", "--prometheus", url, "--since", f"{DAYS}d"]
            with subprocess.Popen([*command, "-o", "json"], stdout=subprocess.PIPE, text=True) as process:
                memory = Memory(process.pid)
                printed = process.communicate()[0]
                memory.close()
            seconds = time.monotonic() - start
    megabytes = memory.most_bytes / 1e6
    held = process.returncode == 0 and seconds <= BOUND_SECONDS and megabytes <= BOUND_MB
    print(f"{len(printed) / 1e6:.1f} MB of JSON, exit code {process.returncode}")
    print(
        f"bound: {seconds:.0f} of {BOUND_SECONDS:.0f} s, {megabytes:.0f} of {BOUND_MB:.0f} MB: "
        f"{'held' if held else 'MISSED'}"
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
