"""A convolutional network of digits in Keras, as Keras' own MNIST example: two convolutions, dropout, softmax."""

from __future__ import annotations

from pathlib import Path

from keras import layers

from replication.recording.data import CLASSES, digits
from replication.recording.trainings._keras import KerasLearner


class Learner(KerasLearner):
    """Adam with a rate of 0.001; cross entropy."""

    def __init__(self, seed: int, digits_file: Path) -> None:
        images, labels = digits(digits_file)
        network = [
            layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(),
            layers.Flatten(), layers.Dropout(0.5), layers.Dense(CLASSES, activation="softmax"),
        ]  # fmt: skip
        super().__init__(seed, images[..., None], labels, network, "sparse_categorical_crossentropy")
