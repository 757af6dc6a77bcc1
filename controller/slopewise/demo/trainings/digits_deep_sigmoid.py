"""A deep network of logistic units on handwritten digits: a long plateau, then a late drop.

With four hidden layers of sigmoids the gradient shrinks at each layer on its way back (each derivative is at
most 1/4), so the first layers hardly learn and the loss stays at ln 10 = 2.3, the loss of knowing nothing.
Once the layers have found a common direction, after two fifths of the run, the loss drops. Hochreiter (1991)
and Glorot & Bengio (2010) describe the effect. Such a job looks finished long before it has begun.
"""

from __future__ import annotations

import numpy as np

from slopewise.demo.trainings._network import Network, Sgd, cross_entropy
from slopewise.demo.trainings._tables import Minibatches, digits


class Learner:
    """Four hidden layers of 256 sigmoids, SGD with momentum."""

    samples_per_step = 256
    learnt = ("_batches", "_network", "_optimiser")

    def __init__(self, seed: int, _steps: int) -> None:
        rng = np.random.default_rng(seed)
        self._digits = digits()
        rows = len(self._digits.inputs)
        self.steps_per_epoch = rows // self.samples_per_step
        self._batches = Minibatches(rng, rows, self.samples_per_step)
        self._network = Network(rng, (64, 256, 256, 256, 256, 10), activation="sigmoid")
        self._optimiser = Sgd(self._network.parameters, learning_rate=0.03)

    def step(self) -> float:
        """One minibatch."""
        rows = next(self._batches)
        layers = self._network.forward(self._digits.inputs[rows])
        loss, slope = cross_entropy(layers[-1], self._digits.labels[rows])
        self._optimiser.apply(self._network.backward(layers, slope)[0])
        return loss

    def evaluate(self) -> float:
        """Cross entropy of the held-out digits."""
        scores = self._network.predict(self._digits.held_out_inputs)
        return cross_entropy(scores, self._digits.held_out_labels)[0]
