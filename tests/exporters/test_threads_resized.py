"""After a real resize in a real cgroup an unchanged script soon trains as one that was born with that CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest
from support.pipes import piped

pytestmark = [
    pytest.mark.alone,
    pytest.mark.processes,
    pytest.mark.cgroups,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores"),
]

HALF, TWO = 0.5, 2.0
"""Cores."""

SOON_SECONDS = 15.0
"""After the resize: what is asserted is measured from then on."""

TRAINING = """
    import itertools, sys, time
    import numpy as np

    random = np.random.default_rng(0)
    windows = (float(word) for line in sys.stdin for word in line.split())
    began = used = seconds = steps = 0

    def done():  # at the end of a step: prints what a finished window did, and waits for the next one
        global began, used, seconds, steps
        steps += 1
        if time.monotonic() >= began + seconds:
            print("TOOK", steps, time.monotonic() - began, time.process_time() - used, flush=True)
            seconds = next(windows)
            began, used, steps = time.monotonic(), time.process_time(), 0
"""
PRODUCTS = f"""{TRAINING}
    rows = random.normal(size=(1000, 1000))
    for step in itertools.count():
        print(f"step {{step}} loss={{np.square(rows @ rows).mean():.6f}}")
        done()
"""
"""OpenBLAS: two threads on two cores do nearly twice the steps of one."""

TREES = f"""{TRAINING}
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.ensemble._hist_gradient_boosting import gradient_boosting

    rows, tree = random.normal(size=(3000, 20)), gradient_boosting.TreeGrower
    gradient_boosting.TreeGrower = lambda *given, **named: (done(), tree(*given, **named))[1]
    # It learns so slowly that the last trees have as much to do as the first.
    HistGradientBoostingRegressor(learning_rate=1e-4, max_iter=1_000_000, early_stopping=False).fit(rows, rows.sum(1))
"""
"""OpenMP: a step, which is a tree of one long fit, costs several times the CPU with two threads on half a core."""


class Took(NamedTuple):
    """What a training did in its last window."""

    steps: float
    seconds: float
    cpu_seconds: float


class Training:
    """An unchanged script that trains for as many seconds as it reads, and otherwise waits."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process, self.folder = process, folder
        self.windows = 1
        """That are not read yet: one of a single step comes first."""

    def give(self, cores: float) -> None:
        (self.folder / "cpu.cfs_quota_us").write_text(str(round(cores * 100_000)))

    def begin(self, *seconds: float) -> None:
        """Windows without a pause between them."""
        self.windows = len(seconds)
        piped(self.process.stdin).write(f"{' '.join(map(str, seconds))}\n")
        piped(self.process.stdin).flush()

    def took(self) -> Took:
        """In the last one of them."""
        told = (line.split()[1:] for line in piped(self.process.stdout) if line.startswith("TOOK"))
        return [Took(*map(float, next(told))) for _ in range(self.windows)][-1]


Start = Callable[[str, float], Training]


@pytest.fixture
def start(cgroup: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts a script with threads that follow, born with so many cores in a cgroup of its own."""
    started: list[Training] = []

    def begin(script: str, cores: float) -> Training:
        folder = cgroup / str(len(started))
        folder.mkdir()
        path = tmp_path / "train.py"
        path.write_text(dedent(script))
        joins = f'echo $$ > {folder}/cgroup.procs && exec "$@"'
        run = ["sh", "-c", joins, "sh", sys.executable, "-m", "slopewise_exporter", "run", "--", sys.executable]
        environment = {name: text for name, text in os.environ.items() if not name.endswith("_NUM_THREADS")}
        environment |= {"SLOPEWISE_EXPORTER_PORT": "0", "SLOPEWISE_THREADS": "follow"}
        (folder / "cpu.cfs_quota_us").write_text(str(round(cores * 100_000)))
        process = subprocess.Popen(
            [*run, str(path)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(Training(process, folder))
        started[-1].took()
        return started[-1]

    yield begin
    for training in started:
        training.process.kill()
        training.process.communicate()
        training.folder.rmdir()


def test_from_half_a_core_to_two_it_soon_does_nine_tenths_of_the_steps_of_one_born_with_two(start: Start) -> None:
    """They take turns: each has the whole of a machine with two cores."""
    resized, twin = start(PRODUCTS, HALF), start(PRODUCTS, TWO)
    twin.begin(2.0, 5.0)
    before = twin.took()
    resized.begin(3.0)
    resized.took()
    resized.give(TWO)
    resized.begin(SOON_SECONDS, 5.0)
    took = resized.took()
    twin.begin(5.0)
    after = twin.took()
    born = (before.steps + after.steps) / (before.seconds + after.seconds)
    assert took.steps / took.seconds >= 0.9 * born, (before, took, after)


def test_from_two_cores_to_half_a_step_soon_costs_a_tenth_more_than_that_of_one_born_with_half_at_most(
    start: Start,
) -> None:
    """Side by side: together they have one core."""
    resized, twin = start(TREES, TWO), start(TREES, HALF)
    resized.begin(3.0)
    resized.took()
    resized.give(HALF)
    for training in (resized, twin):
        training.begin(SOON_SECONDS, 8.0)
    took, born = resized.took(), twin.took()
    assert took.cpu_seconds / took.steps <= 1.1 * born.cpu_seconds / born.steps, (took, born)
