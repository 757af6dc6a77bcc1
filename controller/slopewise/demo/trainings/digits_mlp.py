"""A two-layer perceptron on handwritten digits: falls fast, then stays flat.

The task is easy for the model: plain stochastic gradient descent takes the held-out cross entropy from
ln 10 = 2.3 to below 0.2 in the first fifth of the run, and the other four fifths win the last tenth. Most of
the CPU that such a job gets is spent after it has become good enough.
"""

from __future__ import annotations

import numpy as np
from sklearn.neural_network import MLPClassifier

from slopewise.demo.trainings._network import log_loss
from slopewise.demo.trainings._tables import Minibatches, digits


class Learner:
    """scikit-learn's `MLPClassifier` with its own SGD defaults, 256 digits a step."""

    samples_per_step = 256
    learnt = ("_batches", "_model")

    def __init__(self, seed: int, _steps: int) -> None:
        self._digits = digits()
        rows = len(self._digits.inputs)
        self.steps_per_epoch = rows // self.samples_per_step
        self._batches = Minibatches(np.random.default_rng(seed), rows, self.samples_per_step)
        self._model = MLPClassifier((512, 256), solver="sgd", batch_size=32, random_state=seed)
        self._classes = np.arange(10)

    def step(self) -> float:
        """One call of `partial_fit`: eight updates."""
        rows = next(self._batches)
        self._model.partial_fit(self._digits.inputs[rows], self._digits.labels[rows], classes=self._classes)
        return float(self._model.loss_)

    def evaluate(self) -> float:
        """Cross entropy of the held-out digits; before the first step, that of knowing nothing."""
        labels = self._digits.held_out_labels
        if not hasattr(self._model, "coefs_"):
            return log_loss(np.full((len(labels), 10), 0.1, np.float32), labels)
        return log_loss(self._model.predict_proba(self._digits.held_out_inputs), labels)
