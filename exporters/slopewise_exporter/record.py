"""What one training has done so far, as plain numbers, of which a scrape takes a `Snapshot`.

Prometheus' own gauges would cost 2.5 µs at each step whether anyone looks or not, and these cost well under 1 µs.
Memory is constant.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from time import perf_counter, time
from typing import Any, NamedTuple

from slopewise_exporter.average import RobustAverage
from slopewise_exporter.values import Checker, parse_label, parse_objective

STARTING, TRAINING, CHECKPOINTING, FINISHED, FAILED = STATES = (
    "starting",
    "training",
    "checkpointing",
    "finished",
    "failed",
)

STEP_DURATION_BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds, inclusive. The kernel throttles in periods of 0.1 s, so a 20 ms step under a small quota shows
up twice: in the 25 ms bucket, and in those from 100 ms on."""


class Progress(NamedTuple):
    """How far a training was when it was saved, as a checkpoint keeps it; times in Unix seconds."""

    steps: int = 0
    samples: float = 0.0
    epochs: int = 0
    saved_at_seconds: float = 0.0
    duration_seconds: float | None = 0.0
    """How long putting the state on the disk took; None: its begin was not seen."""


class Facts(NamedTuple):
    """What `training_info` and `training_study` say; `objective` is `min` or `max`."""

    framework: str
    model: str
    objective: str
    study: str = ""


def checked_facts(check: Checker, framework: object, model: object, objective: object, study: object = "") -> Facts:
    """The arguments of a reporter, each of them usable."""
    return Facts(
        framework=check.read("framework", framework, parse_label, "", "text"),
        model=check.read("model", model, parse_label, "", "text"),
        objective=check.read("objective", objective, parse_objective, "min", "'min' or 'max'"),
        study=check.read("study", study, parse_label, "", "text"),
    )


class Snapshot(NamedTuple):
    """All numbers of one moment. None: nothing to export yet. Times are Unix seconds."""

    state: str
    steps: int
    samples: float
    epochs: int
    steps_planned: float | None
    plan_is_upper_bound: bool
    """Whether early stopping may end the training before `steps_planned`."""
    unsaved_steps: int
    """Steps since the last checkpoint that was saved or resumed: what an interruption now would lose."""
    waited_seconds: float
    """Time in which steps waited for their batches, altogether."""
    nonfinite_losses: int
    outlier_losses: int
    train_loss: float | None
    train_loss_ema: float | None
    eval_loss: float | None
    step_duration_counts: tuple[int, ...]
    """Not cumulative; one more than there are bucket bounds, the last being everything above them."""
    step_duration_sum_seconds: float
    first_step_at_seconds: float | None
    """When the first step of this process ended: with it, how long a move kept the training from its work."""
    last_step_at_seconds: float | None
    checkpoint_at_seconds: float | None
    checkpoint_duration_seconds: float | None
    checkpoint_on_sigterm: bool | None

    @property
    def losses(self) -> dict[str, float]:
        """The last of each stage of `training_loss`; a stage that has none is left out."""
        stages = {"train": self.train_loss, "train_ema": self.train_loss_ema, "eval": self.eval_loss}
        return {stage: value for stage, value in stages.items() if value is not None}


class TrainingRecord:
    """The numbers, written by the training's threads and read by those of the endpoint; the fields of a `Snapshot`.

    One lock makes each write and each snapshot whole, so that a counter never goes back and a histogram's
    count is the sum of its buckets. It is reentrant: a signal handler runs in the middle of the main thread,
    perhaps inside `step`, and saving a checkpoint on SIGTERM must not wait for the very step it interrupted.
    """

    def __init__(self, ema_decay: float) -> None:
        self._lock = threading.RLock()
        self._ema_decay = ema_decay
        self._average = RobustAverage(ema_decay)
        self.steps_planned: float | None = None
        self.plan_is_upper_bound = False
        self.steps = 0
        self._saved_steps = 0
        self.waited_seconds = 0.0
        self.samples = 0.0
        self.epochs = 0
        self.nonfinite_losses = 0
        self.train_loss: float | None = None
        self.eval_loss: float | None = None
        self._step_clock: float | None = None
        self._step_counts = [0] * (len(STEP_DURATION_BUCKETS_SECONDS) + 1)
        self.step_duration_sum_seconds = 0.0
        self.first_step_at_seconds: float | None = None
        self.last_step_at_seconds: float | None = None
        self._checkpoints_open = 0
        self._at_work = False
        self.checkpoint_on_sigterm: bool | None = None
        self.checkpoint_at_seconds: float | None = None
        self.checkpoint_duration_seconds: float | None = None
        self._end_state: str | None = None

    def step(self, loss: float | None, samples: float, steps: int = 1) -> None:
        """So many optimiser steps ended now; `loss` may be NaN or infinite, None leaves the loss as it is."""
        with self._lock:
            self._time_steps(steps)
            self._at_work = True
            self.last_step_at_seconds = time()
            if self.first_step_at_seconds is None:
                self.first_step_at_seconds = self.last_step_at_seconds
            self.steps += steps
            self.samples += samples
            if loss is None:
                return
            if math.isfinite(loss):
                self.train_loss = loss
                self._average.add(loss)
            else:
                self.nonfinite_losses += 1

    def late_loss(self, loss: float) -> None:
        """The loss of a step that has been counted before; it may be NaN or infinite."""
        with self._lock:
            if math.isfinite(loss):
                self.train_loss = loss
                self._average.add(loss)
            else:
                self.nonfinite_losses += 1

    def epoch(self) -> None:
        """One pass over the data ended."""
        with self._lock:
            self._at_work = True
            self.epochs += 1

    def waited(self, seconds: float) -> None:
        """A step waited `seconds` for its batch."""
        with self._lock:
            self.waited_seconds += seconds

    def evaluate(self, value: float, *, within_step: bool) -> None:
        """An evaluation ended with `value`; the time it took is part of a step's duration only `within_step`."""
        with self._lock:
            if not within_step:
                self._step_clock = None
            self._at_work = True
            if math.isfinite(value):
                self.eval_loss = value
            else:
                self.nonfinite_losses += 1

    def begin_checkpoint(self) -> int:
        """A checkpoint is being written, of the steps that this returns; several may overlap."""
        with self._lock:
            self._checkpoints_open += 1
            return self.steps

    def end_checkpoint(self, duration_seconds: float, saved_steps: int | None) -> None:
        """It ended, and holds `saved_steps`; None: it could not be saved, and no migration could resume from it."""
        with self._lock:
            self._checkpoints_open -= 1
            if self._step_clock is not None:
                # Never into the future: of an asynchronous checkpoint of 30 s, during which a step ended 1 s ago,
                # only that second can belong to the step that is under way.
                self._step_clock = min(perf_counter(), self._step_clock + duration_seconds)
            if saved_steps is not None:
                self.checkpoint_at_seconds = time()
                self.checkpoint_duration_seconds = duration_seconds
                self._saved_steps = max(self._saved_steps, saved_steps)

    def resume(self, progress: Progress) -> None:
        """Count on from a checkpoint. The training is `starting` until it has done something in this life itself."""
        with self._lock:
            self.steps = self._saved_steps = progress.steps
            self.samples = progress.samples
            self.epochs = progress.epochs
            if progress.saved_at_seconds > 0:  # else the training's own code saved it, and did not say when
                self.checkpoint_at_seconds = progress.saved_at_seconds
                self.checkpoint_duration_seconds = progress.duration_seconds

    def end(self, state: str | None) -> None:
        """The process ends, and the training has ended as `state`; None: it has not, and goes on elsewhere."""
        with self._lock:
            self._end_state = state

    def advance_to(self, steps: int, epochs: int, loss: float | None, at_seconds: float | None) -> None:
        """`steps` and `epochs` are done in all, as a log counts them; fewer than before where the training began again.

        `at_seconds`: when that was, where it is over already; then no step is timed.
        """
        with self._lock:
            done, self.steps = steps - self.steps, steps
            self.epochs = epochs
            self._at_work = True
            if at_seconds is not None:
                self._step_clock = None
                self.last_step_at_seconds = at_seconds
            elif done > 0:
                self._time_steps(done)
                self.last_step_at_seconds = time()
            if self.first_step_at_seconds is None and done > 0:
                self.first_step_at_seconds = self.last_step_at_seconds
            if loss is not None:
                self.late_loss(loss)

    def _time_steps(self, count: int) -> None:
        now = perf_counter()
        started = self._step_clock
        if started is not None:
            self._step_counts[bisect_left(STEP_DURATION_BUCKETS_SECONDS, (now - started) / count)] += count
            self.step_duration_sum_seconds += now - started
        self._step_clock = now

    def begin_again(self) -> None:
        """Another training, or a new process of this one: its losses say nothing of those before."""
        with self._lock:
            self._average = RobustAverage(self._ema_decay)
            self._step_clock = self.first_step_at_seconds = self._end_state = None
            self._saved_steps = 0

    def renew_lock(self) -> None:
        """After a fork: another thread may have held the lock, and it does not exist in the child."""
        self._lock = threading.RLock()

    def snapshot(self) -> Snapshot:
        """All numbers as of now, consistent with each other."""
        with self._lock:
            derived: dict[str, Any] = {
                "state": self._state(),
                "unsaved_steps": self.steps - self._saved_steps,
                "outlier_losses": self._average.outliers,
                "train_loss_ema": self._average.level,
                "step_duration_counts": tuple(self._step_counts),
            }
            return Snapshot(*(derived[name] if name in derived else getattr(self, name) for name in Snapshot._fields))

    def _state(self) -> str:
        # Derived when scraped, so that no step pays for it.
        if self._end_state is not None:
            return self._end_state
        if self._checkpoints_open > 0:
            return CHECKPOINTING
        return TRAINING if self._at_work else STARTING
