"""Measures the cost of one request of each served model on this machine, in CPU-seconds.

The demo asks once, before its first run (`calibrate`), and `catalogue.serving_jobs` makes objectives of it. One
process a core measures at the same time: a core whose neighbour idles is faster than it will be in the run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from statistics import median
from time import process_time

from slopewise.adapters.local.launcher import single_thread_environment
from slopewise.demo.serving.catalogue import SERVED_MODELS, ServedModel
from slopewise.errors import SlopewiseError

REQUESTS = 7
"""Of each model, after one that warms up; their median passes over a scheduler's or a neighbour's hiccup."""

MAX_PROCESSES = 8
"""Each holds some 150 MB while it measures."""

_TIMEOUT_SECONDS = 120.0


def calibrate(cores: float) -> dict[str, float]:
    """CPU-seconds of one request, by the model's name; takes about 6 s. SlopewiseError when it cannot be measured."""
    processes = max(1, min(MAX_PROCESSES, int(cores)))
    with ExitStack() as started:
        measuring = [_start(started) for _ in range(processes)]
        measured = [_answer(process) for process in measuring]
    return {name: median(each[name] for each in measured) for name in SERVED_MODELS}


def _start(started: ExitStack) -> subprocess.Popen[str]:
    """A process that measures; it ends with `started`, for Ctrl-C must not wait until all is measured."""
    command = [sys.executable, "-P", "-m", __name__]
    # As the supervisor starts the models. From within would be too late: numpy, and so its BLAS, is loaded by then.
    surroundings = {**os.environ, **single_thread_environment()}
    process = started.enter_context(
        subprocess.Popen(command, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    )
    started.callback(process.kill)
    return process


def _answer(process: subprocess.Popen[str]) -> Mapping[str, float]:
    try:
        printed, complaint = process.communicate(timeout=_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        raise SlopewiseError(
            f"the served models could not be timed within {_TIMEOUT_SECONDS:g} s; stop what else this machine does."
        ) from None
    if process.returncode != 0:
        last_line = (complaint.splitlines() or ["it wrote nothing"])[-1]
        raise SlopewiseError(f"the served models cannot be timed: {last_line}")
    measured: dict[str, float] = json.loads(printed)
    return measured


def request_cpu_seconds(model: ServedModel) -> float:
    """The median CPU time of a few requests, in this process."""
    predictor = model.load()
    times = []
    for number in range(REQUESTS + 1):
        before = process_time()
        json.dumps(predictor.answer(number))
        times.append(process_time() - before)
    return median(times[1:])


if __name__ == "__main__":
    json.dump({name: request_cpu_seconds(model) for name, model in SERVED_MODELS.items()}, sys.stdout)
