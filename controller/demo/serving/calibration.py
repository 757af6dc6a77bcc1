"""What one request of each served model costs on this machine, in CPU-seconds at one core.

The demo asks once, before its first run (`calibrate`), and `catalogue.serving_jobs` makes objectives of it. One
process a core measures at the same time: a core whose neighbour idles is faster than it will be in the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import process_time

from controller.demo.job_process import use_one_thread
from controller.demo.serving.catalogue import SERVED_MODELS, ServedModel
from controller.errors import SlopewiseError

REQUESTS = 7
"""Of each model, after one that warms up; their median passes over a scheduler's or a neighbour's hiccup."""

MOST_PROCESSES = 8
"""Each holds some 150 MB while it measures."""

_TIMEOUT_SECONDS = 120.0


def calibrate(cores: float) -> dict[str, float]:
    """CPU-seconds of one request, by the model's name; takes about 6 s. SlopewiseError when it cannot be measured."""
    processes = max(1, min(MOST_PROCESSES, int(cores)))
    with ThreadPoolExecutor(processes) as pool:
        measured = list(pool.map(_measured_elsewhere, range(processes)))
    return {name: median(each[name] for each in measured) for name in SERVED_MODELS}


def _measured_elsewhere(_: int) -> Mapping[str, float]:
    command = [sys.executable, "-P", "-m", __name__]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise SlopewiseError(
            f"the served models could not be timed within {_TIMEOUT_SECONDS:g} s; stop what else this machine does."
        ) from None
    if done.returncode != 0:
        last_line = (done.stderr.splitlines() or ["it wrote nothing"])[-1]
        raise SlopewiseError(f"the served models cannot be timed: {last_line}")
    measured: dict[str, float] = json.loads(done.stdout)
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
    use_one_thread()
    json.dump({name: request_cpu_seconds(model) for name, model in SERVED_MODELS.items()}, sys.stdout)
