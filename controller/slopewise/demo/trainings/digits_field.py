"""A neural field that learns a sheet of handwritten digits by heart, pixel by pixel: a slow tail.

The input is a pixel's position, the output its brightness. Coarse shapes come within seconds, fine strokes
take as long as one cares to wait: networks learn low frequencies first (Rahaman et al. 2019), even with the
sines and cosines of random frequencies that help them to the higher ones (Tancik et al. 2020). The loss keeps
falling to the end, ever more slowly.
"""

from __future__ import annotations

import numpy as np

from slopewise.demo.trainings._network import Adam, Floats, Network, squared_error
from slopewise.demo.trainings._tables import digits

_DIGITS_A_SIDE = 16
_FREQUENCIES = 64
_FREQUENCY_SCALE = 10.0
_EVERY_NTH_PIXEL = 13  # 16,384 pixels are too many for a cheap evaluation; 13 does not divide a row of 128


class Learner:
    """Fourier features, three hidden layers of 256 units, Adam; evaluated on the sheet it learns."""

    samples_per_step = 1024
    learnt = ("_rng", "_network", "_optimiser")

    def __init__(self, seed: int, _steps: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._brightness = _sheet()
        self.steps_per_epoch = len(self._brightness) // self.samples_per_step
        frequencies = _FREQUENCY_SCALE * self._rng.standard_normal((2, _FREQUENCIES), dtype=np.float32)
        angles = _positions() @ frequencies
        self._features = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        self._network = Network(self._rng, (2 * _FREQUENCIES, 256, 256, 256, 1))
        self._optimiser = Adam(self._network.parameters)

    def step(self) -> float:
        """One minibatch of pixels, drawn with replacement."""
        pixels = self._rng.integers(0, len(self._brightness), self.samples_per_step)
        layers = self._network.forward(self._features[pixels])
        loss, slope = squared_error(layers[-1], self._brightness[pixels])
        self._optimiser.apply(self._network.backward(layers, slope)[0])
        return loss

    def evaluate(self) -> float:
        """Mean squared error over every thirteenth pixel of the sheet: how well it knows the picture."""
        predictions = self._network.predict(self._features[::_EVERY_NTH_PIXEL])
        return squared_error(predictions, self._brightness[::_EVERY_NTH_PIXEL])[0]


def _sheet() -> Floats:
    """16 × 16 digits side by side as one picture of 128 × 128 pixels, one row a pixel (pixels × 1)."""
    images = digits().inputs[: _DIGITS_A_SIDE**2].reshape(_DIGITS_A_SIDE, _DIGITS_A_SIDE, 8, 8)
    return images.swapaxes(1, 2).reshape(-1, 1)


def _positions() -> Floats:
    """Row and column of each pixel of the sheet, from -1 to 1 (pixels × 2)."""
    axis = np.linspace(-1, 1, 8 * _DIGITS_A_SIDE, dtype=np.float32)
    rows, columns = np.meshgrid(axis, axis, indexing="ij")
    return np.stack([rows.ravel(), columns.ravel()], axis=1)
