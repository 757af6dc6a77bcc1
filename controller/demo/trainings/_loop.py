"""Drives a learner for a fixed number of steps and reports what it does; `__main__.py` starts it.

The work of a job depends on its steps and its seed alone, never on the time or on the CPU it was given: a job
that got half the CPU reports the same losses, later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

EVALUATIONS = 100
"""Evaluations a run, besides the one before its first step: with 10 to 30 CPU-seconds of work, one every 0.1 to
0.3 CPU-seconds, so that a scrape a second sees a new value while a job has at least a third of a core."""


FIRST_VALUE_SECONDS = 1.2
"""How long the value before the first step stands still: one scrape of a second, and a little. Without it whether a
scrape caught the untrained model is a matter of luck, and with it where 90 % of the improvement lies."""


class Learner(Protocol):
    """One training: its file's class `Learner` is built with `(seed, steps)`, `steps` being those planned."""

    samples_per_step: int
    steps_per_epoch: int

    def step(self) -> float:
        """Do one step of the training; its loss on the samples of this step."""

    def evaluate(self) -> float:
        """The loss on held-out data; changes nothing."""


class Reporter(Protocol):
    """What the loop needs of `slopewise_exporter.Reporter`."""

    @property
    def port(self) -> int | None:
        """Where it is scraped; None when nobody can."""

    def step(self, *, loss: float, samples: int) -> None:
        """One step was done."""

    def epoch(self) -> None:
        """One pass over the data was done."""

    def evaluate(self, value: float) -> None:
        """The held-out loss was measured."""


def train(
    learner: Learner,
    steps: int,
    reporter: Reporter,
    log: Callable[[str], None],
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Do all steps; evaluate before the first, about `EVALUATIONS` times on the way, and after the last."""
    every = max(1, steps // EVALUATIONS)
    reporter.evaluate(learner.evaluate())
    if reporter.port is not None:
        wait(FIRST_VALUE_SECONDS)
    for step in range(1, steps + 1):
        loss = learner.step()
        reporter.step(loss=loss, samples=learner.samples_per_step)
        if step % learner.steps_per_epoch == 0:
            reporter.epoch()
        if step % every == 0 or step == steps:
            evaluation = learner.evaluate()
            reporter.evaluate(evaluation)
            log(f"step {step}/{steps} loss {loss!r} eval {evaluation!r}")
