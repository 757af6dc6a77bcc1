"""A recurrent network in Keras that reads digits row by row: softmax, cross entropy."""

from __future__ import annotations

from pathlib import Path

from keras import layers

from replication.recording.data import CLASSES, digits
from replication.recording.trainings._keras import KerasLearner


class Learner(KerasLearner):
    """An LSTM with 128 hidden units over 28 rows."""

    def __init__(self, seed: int, digits_file: Path) -> None:
        network = [layers.LSTM(128), layers.Dense(CLASSES, activation="softmax")]
        super().__init__(seed, *digits(digits_file), network, "sparse_categorical_crossentropy")
