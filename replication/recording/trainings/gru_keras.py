"""A gated recurrent unit in Keras that continues waves: quadratic loss."""

from __future__ import annotations

from pathlib import Path

from keras import layers

from replication.recording.data import waves
from replication.recording.trainings._keras import KerasLearner


class Learner(KerasLearner):
    """64 hidden units over 40 values."""

    def __init__(self, seed: int, _digits_file: Path) -> None:
        super().__init__(seed, *waves(seed), [layers.GRU(64), layers.Dense(1)], "mean_squared_error")
