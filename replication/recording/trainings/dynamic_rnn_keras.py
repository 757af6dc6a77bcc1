"""A recurrent network over sequences of different length in Keras, which separates lines from noise: softmax."""

from __future__ import annotations

from pathlib import Path

from keras import layers

from replication.recording.data import ramps
from replication.recording.trainings._keras import KerasLearner


class Learner(KerasLearner):
    """An LSTM with 64 hidden units over 5 to 20 values; a mask leaves out what fills a sequence up."""

    def __init__(self, seed: int, _digits_file: Path) -> None:
        network = [layers.Masking(), layers.LSTM(64), layers.Dense(2, activation="softmax")]
        super().__init__(seed, *ramps(seed), network, "sparse_categorical_crossentropy")
