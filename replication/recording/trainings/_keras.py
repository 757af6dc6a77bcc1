"""The trainings in Keras: a compiled model, one batch a step."""

from __future__ import annotations

from typing import Any

import keras
from numpy.typing import NDArray

from replication.recording.data import batches


class KerasLearner:
    """`train_on_batch` of a model over batches of 64; what Keras reports of a batch is that batch's own loss."""

    samples_per_step = 64

    def __init__(self, seed: int, inputs: NDArray[Any], targets: NDArray[Any], layers: list[Any], loss: str) -> None:
        self._inputs, self._targets = inputs, targets
        self._batches = batches(seed, len(inputs), self.samples_per_step)
        self._model = keras.Sequential([keras.layers.Input(inputs.shape[1:]), *layers])
        self._model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=loss)

    def step(self) -> float:
        """One batch; without the reset Keras would report a mean since the first."""
        rows = next(self._batches)
        self._model.reset_metrics()
        return float(self._model.train_on_batch(self._inputs[rows], self._targets[rows]))
