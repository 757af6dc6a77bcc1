"""Runs a learner for a fixed number of steps and reports its loss and progress.

The work of a job depends on its steps and its seed alone, never on the time or on the CPU it was given: a job
that got half the CPU reports the same losses, later. Nor does it depend on how often it was moved: all that training
changes is in its checkpoints, the state of its random numbers included.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from slopewise_exporter import Checkpoints, Reporter

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
    learnt: tuple[str, ...]
    """The attributes that training changes; the others follow from seed and steps, and are in no checkpoint."""

    def step(self) -> float:
        """Do one step of the training; its loss on the samples of this step."""

    def evaluate(self) -> float:
        """The loss on held-out data; changes nothing."""


def state_of(learner: Learner) -> dict[str, Any]:
    """All that training has changed, as one object: what is shared in it is shared again when it is read."""
    return {name: getattr(learner, name) for name in learner.learnt}


def put_back(learner: Learner, state: Mapping[str, Any]) -> None:
    """Make a learner that has done no step the one whose `state_of` this was."""
    for name in learner.learnt:
        setattr(learner, name, state[name])


def train(
    learner: Learner,
    steps: int,
    reporter: Reporter,
    checkpoints: Checkpoints,
    log: Callable[[str], None],
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Do the steps that are left; evaluate before the first, about `EVALUATIONS` times on the way, and after the last.

    The first step is saved at once: by then it is known how long that takes, which is a part of what a move costs.
    """
    every = max(1, steps // EVALUATIONS)
    state = checkpoints.resume()
    if state is not None:
        put_back(learner, state)
    reporter.evaluate(learner.evaluate())
    if reporter.port is not None and state is None:
        wait(FIRST_VALUE_SECONDS)
    for step in range(checkpoints.steps + 1, steps + 1):
        loss = learner.step()
        reporter.step(loss=loss, samples=learner.samples_per_step)
        if step % learner.steps_per_epoch == 0:
            reporter.epoch()
        if step % every == 0 or step == steps:
            evaluation = learner.evaluate()
            reporter.evaluate(evaluation)
            log(f"step {step}/{steps} loss {loss!r} eval {evaluation!r}")
        checkpoints.step(partial(state_of, learner))
        if step == 1:
            checkpoints.save(partial(state_of, learner))
