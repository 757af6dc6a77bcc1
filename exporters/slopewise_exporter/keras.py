"""Loss, progress and checkpoints of a Keras training; `ReportCallback` leaves the checkpoints out.

    model.fit(x, y, epochs=5, callbacks=[ReportCallback()])

    callback = SlopewiseCallback(FOLDER, reporter=Reporter(planned_steps=STEPS))
    model.fit(batches_from(callback.steps), epochs=1, callbacks=[callback])

Weights, optimiser and random numbers are saved; where the data are is not: begin them at step `callback.steps`
(docs/checkpointing.md shows how).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import keras

from slopewise_exporter.checkpoints import DEFAULT_EVERY_SECONDS, DEFAULT_KEEP, Checkpoints
from slopewise_exporter.fit_report import FitReport, harmless, names_of, running, stops_early
from slopewise_exporter.reporter import Reporter
from slopewise_exporter.threads.following import following

_RANDOM = "slopewise_random"
"""A group in the file of the weights: Keras itself saves no random numbers."""


class ReportCallback(keras.callbacks.Callback):  # type: ignore[misc] # of a package that is not installed here
    """Reports each batch, the epochs, and the loss of each validation. `reporter`: None: that of this process."""

    async_safe = True
    """Keras may call `on_train_batch_end` in threads of its own, several at once: `fit` then waits for no loss."""

    _saves = False

    def __init__(self, reporter: Reporter | None = None) -> None:
        super().__init__()
        self._report = FitReport(reporter, "keras", saves=self._saves)
        self._counting = threading.Lock()
        self._begun = False
        self._batches_at_once = 1
        self._executions = 0
        self._counted = 0

    @harmless
    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """A fit, whose first epoch is not known yet."""
        self._begun = False
        following.thread = threading.current_thread()
        # Here and not for each batch: with JAX, asking for the model puts its state together, which in another thread
        # takes the buffers of the step that runs.
        self._batches_at_once = self.model.steps_per_execution or 1

    @harmless
    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """The first of a fit has the number of `initial_epoch`."""
        self._executions = self._counted = 0
        if following.wanted != following.applied:
            following.apply()
        if not self._begun:
            self._begun = True
            self._report.begin_epochs(
                self.params.get("epochs") or 1,
                self.params.get("steps"),
                first_epoch=epoch,
                upper_bound=_stops_early(),
            )

    @harmless
    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """A step, or `steps_per_execution` of them; the last execution of an epoch may have fewer."""
        self._count_execution(logs)

    @harmless
    def on_test_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """The evaluation's loss."""
        self._report.evaluate((logs or {}).get("loss"))

    @harmless
    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """One pass over the data."""
        self._report.epoch()

    @harmless
    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """The end, early or not."""
        following.thread = None
        self._report.end()

    def _count_execution(self, logs: Mapping[str, Any] | None) -> int:
        """Its batches. Where it ends is said differently by versions of Keras, and wrongly for an epoch's last one."""
        with self._counting:
            self._executions += 1
            done = self._executions * self._batches_at_once
            done = max(self._counted + 1, min(done, self.params.get("steps") or done))
            steps, self._counted = done - self._counted, done
            self._report.step((logs or {}).get("loss"), steps)
            return steps


class SlopewiseCallback(ReportCallback):
    """Reports each batch, saves on SIGTERM and from time to time, and loads what was saved when training begins.

    The arguments are those of `Checkpoints`. CheckpointError for a folder that cannot be read. Keras reports no error
    in `fit` to a callback: a process that goes on after one writes `with callback:` around it, which gives SIGTERM
    back. With `steps_per_execution`, `steps_per_epoch` must be a multiple of it, unless the data ends there.
    """

    async_safe = False
    """A save, and the end, belong between two batches of the training's own thread."""

    _saves = True

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        reporter: Reporter | None = None,
        every_seconds: float | None = DEFAULT_EVERY_SECONDS,
        every_steps: int | None = None,
        keep: int = DEFAULT_KEEP,
    ) -> None:
        super().__init__(reporter)
        self._checkpoints = Checkpoints(
            folder,
            reporter=reporter,
            every_seconds=every_seconds,
            every_steps=every_steps,
            keep=keep,
            save=_save,
            load=lambda path: path,
            suffix=".weights.h5",
        )
        self._weights: Path | None = self._checkpoints.resume()
        self._random: Any | None = None

    @property
    def steps(self) -> int:
        """Batches done, in all lives of this training."""
        return self._checkpoints.steps

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Go on from the checkpoint, if there is one; after a `fit` before this one, from where that has ended."""
        self._checkpoints.reopen()
        super().on_train_begin(logs)
        self.restore(self.model)

    def restore(self, model: Any) -> None:
        """Give a model, which must be built, the weights and the optimiser of the checkpoint; nothing without one.

        `fit` calls it; a training that is complete already has nothing to fit.
        """
        if self._weights is None:
            return
        self._random = _load(self._weights, model)
        self._weights = None

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Draw on from where the former life ended; not before, since `fit` draws some when it makes its iterator."""
        if self._random is not None and keras.backend.backend() == "torch":
            import torch

            torch.set_rng_state(torch.from_numpy(self._random))
        self._random = None

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """A step, or `steps_per_execution` of them; SystemExit(143) after SIGTERM, once they are saved."""
        self._checkpoints.step(self._state, self._count_execution(logs))

    def on_test_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """An evaluation must not outlast the grace period."""
        self._checkpoints.check(self._state)

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Save the end, so that a process that is started again has nothing left to do."""
        super().on_train_end(logs)
        self._checkpoints.close()

    def __enter__(self) -> SlopewiseCallback:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._checkpoints.__exit__(kind, error, trace)

    def _state(self) -> Any:
        return self.model


@harmless
def _stops_early() -> bool:
    """Whether `fit` was given a callback that does. Keras passes no callback the others."""
    beside = running("keras.src.callbacks.callback_list", "self")
    return stops_early(names_of(getattr(beside, "callbacks", None)))


def _save(path: Path, model: Any) -> None:
    model.save_weights(path, overwrite=True)
    with h5py.File(path, "a") as file:
        group = file.create_group(_RANDOM)
        for name, state in _random_state(model).items():
            group[name] = state


def _load(path: Path, model: Any) -> Any | None:
    """Weights, optimiser and seeds; what PyTorch is to draw on from comes back, None where another backend draws."""
    if model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    model.load_weights(path)
    with h5py.File(path) as file:
        for number, seed in enumerate(_seeds(model)):
            seed.assign(file[_RANDOM][f"seed_{number}"][()])
        return file[_RANDOM]["torch"][()] if "torch" in file[_RANDOM] else None


def _random_state(model: Any) -> dict[str, Any]:
    """What dropout draws from: of each layer, and of PyTorch, where layers without a seed of their own draw from it."""
    state = {f"seed_{number}": keras.ops.convert_to_numpy(seed) for number, seed in enumerate(_seeds(model))}
    if keras.backend.backend() == "torch":
        import torch

        state["torch"] = torch.get_rng_state().numpy()
    return state


def _seeds(model: Any) -> list[Any]:
    return [variable for variable in model.variables if variable.name == "seed_generator_state"]
