"""Windows of real trainings that run side by side, their steps, CPU-seconds and CPU in effect; and what threads cost.

`replication.thread_steps` is one training, and counts its own steps. Others may use the machine meanwhile.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from slopewise.simulator.world.threads import Penalty
from slopewise_exporter.threads.at_start import NUMBERS, waiting

ROOT = Path(__file__).resolve().parents[1]
AT_ONCE = (1, 2, 4)
SECONDS = 0.8
"""Of a window of one training, from the end of its first step: 250 trees of one thread."""

SECONDS_OF_SEVERAL = 3.0
"""Their threads get into each other's way for a second or more, and then do not."""

BESIDE_SECONDS = 0.5
"""What a window takes more: a first step each, and an idle moment for a training alone."""

IDLE_PERCENT, IDLE_WAIT_SECONDS = 15.0, 15.0
"""A training alone waits for so long until others use less than that of the CPU: else no window has a core a thread."""

HELD_OUT = 3
"""Of four rounds, the one that is not in the table."""

ONE_IN = 4

AROUND = (1, 2, 4, 8, 16)
"""Threads a core of the table's rows: each stands for windows with up to 1.41 times as many or as few."""


class Window(NamedTuple):
    """All trainings of one window together."""

    round: int
    at_once: int
    steps: float
    cpu_seconds: float
    seconds: float
    """In the mean, and so is the next."""
    cores: float
    """CPU in effect of one training. All windows of one library and behaviour have as many threads."""


class Measured(NamedTuple):
    """The windows of one library and behaviour."""

    threads: int
    """Of each training."""
    windows: Sequence[Window]
    alone: Sequence[Window]
    """With one thread."""

    @property
    def step_cpu_seconds(self) -> float:
        """CPU-seconds of a step of one thread."""
        return statistics.median(each.cpu_seconds / each.steps for each in self.alone)

    def penalty(self, window: Window) -> Penalty:
        """What its threads cost.

        Worked example: a step of one thread takes 0.1 CPU-seconds, and 2 threads on one core do 2 a second with all of
        it: 5 times the CPU, and a fifth of the speed.
        """
        step, in_effect = self.step_cpu_seconds, window.cores
        speed = window.steps / window.at_once / window.seconds * step / in_effect
        return Penalty(self.threads / in_effect, window.cpu_seconds / window.steps / step, speed)

    def around(self, *, held_out: bool) -> dict[int, list[Window]]:
        """The windows of the table, or the others, by the row that stands for them."""
        found: dict[int, list[Window]] = {}
        for window in self.windows:
            if (window.round % ONE_IN == HELD_OUT) == held_out:
                around = 2 ** round(math.log2(max(1.0, self.threads / window.cores)))
                found.setdefault(around, []).append(window)
        return {around: found[around] for around in AROUND if around in found}

    def penalties(self) -> list[Penalty]:
        """The table's rows."""
        return [self.penalty(together(windows)) for windows in self.around(held_out=False).values()]


def together(windows: Sequence[Window]) -> Window:
    """One long window of a single training.

    What threads cost differs from second to second, up to 40 times where they spin. All steps over all the time are
    what a run of minutes has; a median of short windows is not.
    """
    seconds = math.fsum(each.seconds for each in windows)
    return Window(
        windows[0].round,
        1,
        math.fsum(each.steps / each.at_once for each in windows),
        math.fsum(each.cpu_seconds / each.at_once for each in windows),
        seconds,
        math.fsum(each.cores * each.seconds for each in windows) / seconds,
    )


Kept = Mapping[str, Mapping[str, Measured]]
"""By library and behaviour."""


def pooled(of_library: Mapping[str, Measured]) -> dict[str, Measured]:
    """Each with the windows alone of both: one thread neither spins nor waits."""
    alone = [window for found in of_library.values() for window in found.alone]
    return {behaviour: found._replace(alone=alone) for behaviour, found in of_library.items()}


class Due(NamedTuple):
    """A window to be measured."""

    round: int
    at_once: int
    threads: int
    """Of each training."""

    @property
    def seconds(self) -> float:
        """How long it is."""
        return SECONDS if self.at_once == 1 else SECONDS_OF_SEVERAL


def measured(library: str, python: str, behaviour: str, dues: Sequence[Due]) -> list[Window]:
    """One after another, of trainings that are started once. SystemExit where one fails."""
    environment = {name: text for name, text in os.environ.items() if name not in NUMBERS}
    environment |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'exporters'}", "CUDA_VISIBLE_DEVICES": ""}
    environment |= waiting(environment) if behaviour == "wait" else {}
    with _started([python, "-m", "replication.thread_steps", library], environment) as trainings:
        # What is loaded and built at a first step is not counted.
        _window(trainings, max(due.threads for due in dues), 0, 0.1)
        return [_window(trainings[: due.at_once], due.threads, due.round, due.seconds) for due in dues]


@contextmanager
def _started(command: Sequence[str], environment: dict[str, str]) -> Iterator[list[subprocess.Popen[str]]]:
    trainings: list[subprocess.Popen[str]] = []
    try:
        for _ in range(max(AT_ONCE)):
            pipe = subprocess.PIPE
            trainings.append(subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True, cwd=ROOT))
        for training in trainings:
            _answer(training)
        yield trainings
    finally:
        for training in trainings:
            training.kill()
            training.communicate()


def _window(trainings: Sequence[subprocess.Popen[str]], threads: int, number: int, seconds: float) -> Window:
    if len(trainings) == 1:
        _wait_for_others()
    for training in trainings:
        _tell(training, f"{threads} {seconds}")
    answers = [tuple(map(float, _answer(training).split())) for training in trainings]
    for training in trainings:
        _tell(training, "stop")
    for training in trainings:
        _answer(training)
    steps, cpu_seconds, passed, cores = (sum(column) for column in zip(*answers, strict=True))
    at_once = len(trainings)
    return Window(number, at_once, int(steps), cpu_seconds, passed / at_once, cores / at_once)


def _wait_for_others() -> None:
    """Until the others leave the machine alone, or no longer than that."""
    until = time.monotonic() + IDLE_WAIT_SECONDS
    while psutil.cpu_percent(0.2) > IDLE_PERCENT and time.monotonic() < until:
        pass


def _tell(training: subprocess.Popen[str], line: str) -> None:
    assert training.stdin is not None  # noqa: S101  it is a pipe
    training.stdin.write(f"{line}\n")
    training.stdin.flush()


def _answer(training: subprocess.Popen[str]) -> str:
    assert training.stdout is not None  # noqa: S101  it is a pipe
    line = training.stdout.readline()
    if not line:
        raise SystemExit(f"{training.args!r} has failed; its error is above.")
    return line
