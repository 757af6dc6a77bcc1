"""What the exporter costs the process that it is in: its import, its memory, and a scrape on one CPU.

Each is measured in processes of its own, with the exporter and without it in turn:

- import: CPU time of `from slopewise_exporter import Reporter`, over that of an empty program; at most 30 ms.
- memory: what a process holds for itself after 100,000 reported steps and 20 scrapes, over one that serves an empty
  registry of prometheus-client; at most 15 MB. The same with a push to a TrainJob, and with OTLP, without a bound.
- a scrape: median of 200 of a training that keeps its only CPU busy, by a client on the same CPU; at most 20 ms. Beside
  it the same page from prometheus-client's own server.

    python benchmarks/bench_exporter.py        # exit 1 beyond a bound
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, sleep
from urllib.request import urlopen

import psutil

MAX_IMPORT_MS = 30.0
MAX_MEMORY_MB = 15.0
MAX_SCRAPE_MS = 20.0
IMPORTS = 20
SCRAPES = 200
LOADING_SECONDS = 8.0
"""After so long a push has loaded all that it needs, on a thread of its own and on a busy machine too."""

REPORTER = """
import math, threading
from slopewise_exporter import Reporter
reporter = Reporter(port=0, address="127.0.0.1", linger_seconds=0, planned_steps=10**9)
port = reporter.port
for step in range(100_000):
    reporter.step(loss=1.0 + math.sin(step), samples=64)
"""
SERVER = """
from prometheus_client import CollectorRegistry, start_http_server
{before}
server, thread = start_http_server(0, "127.0.0.1", registry={registry})
port = server.server_port
"""
EMPTY_PAGE = SERVER.format(before="", registry="CollectorRegistry()")
SAME_PAGE = SERVER.format(
    before="from slopewise_exporter.exposition import build_registry\n"
    "from slopewise_exporter.record import Facts, TrainingRecord",
    registry='build_registry(TrainingRecord(0.98), Facts("", "", "min"))',
)
WAIT = """
print(port, flush=True)
import sys
sys.stdin.read()
"""
TRAIN = """
print(port, flush=True)
import numpy as np
features, weights = np.random.default_rng(0).normal(size=(64, 256)), np.zeros(256)
while True:
    weights -= 0.01 * features.T @ (1.0 / (1.0 + np.exp(-(features @ weights))) - 0.5)
"""
PUSHES = {
    "to a TrainJob": {
        "KUBEFLOW_TRAINER_SERVER_URL": "https://127.0.0.1:9/status",
        "KUBEFLOW_TRAINER_SERVER_TOKEN": __file__,
    },
    "by OTLP": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"},
}


def import_ms(program: str) -> float:
    """CPU time of a process, of which other processes of the machine are no part."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # As installed: what pip has compiled is not compiled again.
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", program], env=compiled, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


@contextmanager
def running(program: str, **environment: str) -> Iterator[tuple[psutil.Process, int]]:
    """A process that serves metrics, and its port; killed at the end."""
    command = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        yield psutil.Process(process.pid), int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def scrape(port: int) -> float:
    """Milliseconds."""
    started = perf_counter()
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        answer.read()
    return 1000 * (perf_counter() - started)


def memory_mb(program: str, **environment: str) -> float:
    """What the process alone holds, after some scrapes."""
    with running(program + WAIT, **environment) as (process, port):
        for _ in range(20):
            scrape(port)
        sleep(LOADING_SECONDS if environment else 0.0)
        unique: float = process.memory_full_info().uss
        return unique / 1e6


def scrape_ms(program: str) -> float:
    """The median of a training on one CPU, which is that of this process too."""
    with running(program + TRAIN, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1") as (process, port):
        every = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, {min(every)})
            process.cpu_affinity([min(every)])
            return statistics.median(scrape(port) for _ in range(SCRAPES))
        finally:
            os.sched_setaffinity(0, every)


def show(name: str, without: float, with_exporter: float, unit: str, bound: float | None, measured: float) -> bool:
    """Print a line; True when the bound is missed."""
    missed = bound is not None and measured > bound
    limit = "" if bound is None else f"{bound:g} {unit}"
    ratio = with_exporter / without
    verdict = "  MISSED" if missed else ""
    print(f"{name:<28}{without:>9.1f} {unit}{with_exporter:>9.1f} {unit}{ratio:>8.2f}{limit:>10}{verdict}")
    return missed


def main() -> int:
    """Print all measurements; 1 when a bound is missed."""
    print(f"{'':<28}{'without':>12}{'with':>12}{'ratio':>8}{'bound':>10}")
    programs = ("pass", "from slopewise_exporter import Reporter")
    # The least of each: the work is the same in each run, and a busy machine can only add to it.
    empty, imported = map(min, zip(*([import_ms(each) for each in programs] for _ in range(IMPORTS)), strict=True))
    missed = show("import (added)", empty, imported, "ms", MAX_IMPORT_MS, imported - empty)

    bare = memory_mb(EMPTY_PAGE)
    held = memory_mb(REPORTER)
    missed |= show("memory (added)", bare, held, "MB", MAX_MEMORY_MB, held - bare)
    for name, variables in PUSHES.items():
        show(f"memory, pushing {name}", bare, memory_mb(REPORTER, **variables), "MB", None, 0.0)

    client, ours = scrape_ms(SAME_PAGE), scrape_ms(REPORTER)
    missed |= show("a scrape on one CPU", client, ours, "ms", MAX_SCRAPE_MS, ours)
    print("bounds: " + ("MISSED" if missed else "kept"))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
