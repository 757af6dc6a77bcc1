"""A network on shifted handwritten digits with a stepped learning rate: falls, rattles, then drops and is calm.

The learning rate is divided by ten after one half and after three quarters of the planned steps, the
schedule of He et al. (2016) for CIFAR-10. In the first half the steps are too long for the loss to settle: it
goes up and down around 0.1. At the first change of the rate it falls to 0.075 at once and stays there. The
drop is small beside the first fall, and a noisy middle hides it in any window of a few seconds.
"""

from __future__ import annotations

import numpy as np

from slopewise.demo.trainings._network import Floats, Network, Sgd, cross_entropy
from slopewise.demo.trainings._tables import Minibatches, digits


class Learner:
    """Two hidden layers of 512 units, SGD; each digit is moved by up to one pixel each time it is seen."""

    samples_per_step = 128
    learnt = ("_rng", "_batches", "_network", "_optimiser", "_steps_done")

    def __init__(self, seed: int, steps: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._digits = digits()
        rows = len(self._digits.inputs)
        self.steps_per_epoch = rows // self.samples_per_step
        self._batches = Minibatches(self._rng, rows, self.samples_per_step)
        self._network = Network(self._rng, (64, 512, 512, 10))
        self._optimiser = Sgd(self._network.parameters, learning_rate=0.1, weight_decay=1e-3)
        self._drops = {steps // 2, steps * 3 // 4}
        self._steps_done = 0

    def step(self) -> float:
        """One minibatch of shifted digits."""
        if self._steps_done in self._drops and self._steps_done:
            self._optimiser.learning_rate /= 10
        self._steps_done += 1
        rows = next(self._batches)
        layers = self._network.forward(_shifted(self._digits.inputs[rows], self._rng))
        loss, slope = cross_entropy(layers[-1], self._digits.labels[rows])
        self._optimiser.apply(self._network.backward(layers, slope)[0])
        return loss

    def evaluate(self) -> float:
        """Cross entropy of the held-out digits, each moved in the same way at every evaluation."""
        inputs = _shifted(self._digits.held_out_inputs, np.random.default_rng(0))
        return cross_entropy(self._network.predict(inputs), self._digits.held_out_labels)[0]


def _shifted(images: Floats, rng: np.random.Generator) -> Floats:
    """Move each 8 × 8 image (one a row) by -1, 0 or 1 pixel down and right; what leaves the frame is lost."""
    count = len(images)
    framed = np.pad(images.reshape(count, 8, 8), ((0, 0), (1, 1), (1, 1)))
    down, right = rng.integers(0, 3, size=(2, count, 1)) + np.arange(8)
    picked: Floats = framed[np.arange(count)[:, None, None], down[:, :, None], right[:, None, :]]
    return picked.reshape(count, 64)
