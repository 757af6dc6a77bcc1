"""A network with far more weights than patients: the held-out loss turns and rises while training goes on.

270,000 weights learn the records of 332 patients by heart. The held-out error falls for the first tenth of the
run, from 2.5 to 0.53, then rises to the end, to 0.7, although the training loss falls all the time. After the
turn, more CPU makes this job worse.
"""

from __future__ import annotations

import numpy as np

from slopewise.demo.trainings._network import Adam, Network, squared_error
from slopewise.demo.trainings._tables import Minibatches, diabetes


class Learner:
    """Two hidden layers of 512 units, Adam, no regularisation."""

    samples_per_step = 128
    learnt = ("_batches", "_network", "_optimiser")

    def __init__(self, seed: int, _steps: int) -> None:
        rng = np.random.default_rng(seed)
        self._patients = diabetes()
        rows = len(self._patients.inputs)
        self.steps_per_epoch = rows // self.samples_per_step
        self._batches = Minibatches(rng, rows, self.samples_per_step)
        self._network = Network(rng, (10, 512, 512, 1))
        self._optimiser = Adam(self._network.parameters, learning_rate=2e-5)

    def step(self) -> float:
        """One minibatch."""
        rows = next(self._batches)
        layers = self._network.forward(self._patients.inputs[rows])
        loss, slope = squared_error(layers[-1], self._patients.targets[rows])
        self._optimiser.apply(self._network.backward(layers, slope)[0])
        return loss

    def evaluate(self) -> float:
        """Mean squared error of the held-out patients; 1 is that of always predicting the mean."""
        predictions = self._network.predict(self._patients.held_out_inputs)
        return squared_error(predictions, self._patients.held_out_targets)[0]
