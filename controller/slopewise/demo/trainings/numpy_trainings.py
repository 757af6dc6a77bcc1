"""The trainings of networks in numpy, one class each, named like its training.

Hochreiter (1991) and Glorot & Bengio (2010) describe the plateau of deep sigmoids, He et al. (2016) the stepped rate,
Rahaman et al. (2019) and Tancik et al. (2020) the slow tail of neural fields, Bengio et al. (2003) the language model,
and Hestness et al. (2017) its power law.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from slopewise.demo.trainings._data import Minibatches, Table, diabetes, digits, standard_library_modules
from slopewise.demo.trainings._network import Adam, Floats, Integers, Network, Sgd, cross_entropy, squared_error

_DIGITS_A_SIDE = 16
_FREQUENCIES = 64
_FREQUENCY_SCALE = 10.0
_EVERY_NTH_PIXEL = 13  # 16,384 pixels are too many for a cheap evaluation; 13 does not divide a row of 128

_CONTEXT = 16
_EMBEDDING = 16
_ALPHABET = "\n" + "".join(map(chr, range(32, 127)))  # number 0 stands for any other character
_HELD_OUT_EVERY = 10
_EVALUATED_POSITIONS = 1024


class _NetworkLearner:
    """A network, its optimiser, and one step of them: of a classifier, or of a regression."""

    samples_per_step: int
    learnt: tuple[str, ...] = ("_rng", "_batches", "_network", "_optimiser")
    _network: Network
    _optimiser: Sgd | Adam

    def __init__(self, seed: int, table: Table, *, classifies: bool = True) -> None:
        self._rng = np.random.default_rng(seed)
        self._table = table
        self._loss_of: Callable[[Floats, Any], tuple[float, Floats]] = cross_entropy if classifies else squared_error
        self._targets: Any = table.labels if classifies else table.targets
        self._held_out: Any = table.held_out_labels if classifies else table.held_out_targets
        self.steps_per_epoch = len(table.inputs) // self.samples_per_step
        self._batches = Minibatches(self._rng, len(table.inputs), self.samples_per_step)

    def step(self) -> float:
        """One minibatch."""
        rows = next(self._batches)
        return self._learn(self._table.inputs[rows], self._targets[rows])

    def evaluate(self) -> float:
        """Cross entropy of what is held out, or its mean squared error, of which 1 is that of predicting the mean."""
        return self._loss_of(self._network.predict(self._table.held_out_inputs), self._held_out)[0]

    def _learn(self, inputs: Floats, targets: Any) -> float:
        layers = self._network.forward(inputs)
        loss, slope = self._loss_of(layers[-1], targets)
        self._optimiser.apply(self._network.backward(layers, slope)[0])
        return loss


class DigitsDeepSigmoid(_NetworkLearner):
    """Four hidden layers of 256 logistic units on digits, SGD with momentum: a long plateau, then a late drop.

    The gradient shrinks at each layer on its way back (each derivative is at most 1/4), so the first layers hardly
    learn and the loss stays at ln 10 = 2.3, the loss of knowing nothing. Once the layers have found a common direction,
    after two fifths of the run, the loss drops. Such a job looks finished long before it has begun.
    """

    samples_per_step = 256

    def __init__(self, seed: int, _steps: int) -> None:
        super().__init__(seed, digits())
        self._network = Network(self._rng, (64, 256, 256, 256, 256, 10), activation="sigmoid")
        self._optimiser = Sgd(self._network.parameters, learning_rate=0.03)


class DigitsLrDrop(_NetworkLearner):
    """Two hidden layers of 512 units on digits that are moved by up to one pixel, with a stepped learning rate.

    The rate is divided by ten after one half and after three quarters of the planned steps. In the first half the steps
    are too long for the loss to settle: it goes up and down around 0.1. At the first change it falls to 0.075 at once
    and stays there: a drop that a noisy middle hides in any window of a few seconds.
    """

    samples_per_step = 128
    learnt = (*_NetworkLearner.learnt, "_steps_done")

    def __init__(self, seed: int, steps: int) -> None:
        super().__init__(seed, digits())
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
        inputs = _shifted(self._table.inputs[rows], self._rng)
        return self._learn(inputs, self._targets[rows])

    def evaluate(self) -> float:
        """Cross entropy of the held-out digits, each moved in the same way at every evaluation."""
        inputs = _shifted(self._table.held_out_inputs, np.random.default_rng(0))
        return cross_entropy(self._network.predict(inputs), self._held_out)[0]


def _shifted(images: Floats, rng: np.random.Generator) -> Floats:
    """Move each 8 × 8 image (one a row) by -1, 0 or 1 pixel down and right; what leaves the frame is lost."""
    count = len(images)
    framed = np.pad(images.reshape(count, 8, 8), ((0, 0), (1, 1), (1, 1)))
    down, right = rng.integers(0, 3, size=(2, count, 1)) + np.arange(8)
    picked: Floats = framed[np.arange(count)[:, None, None], down[:, :, None], right[:, None, :]]
    return picked.reshape(count, 64)


class DiabetesOverfit(_NetworkLearner):
    """Two hidden layers of 512 units on 332 patients, Adam, no regularisation: the held-out loss turns and rises.

    270,000 weights learn the records by heart. The held-out error falls for the first tenth of the run, from 2.5 to
    0.53, then rises to the end, to 0.7, although the training loss falls all the time. After the turn, more CPU makes
    this job worse.
    """

    samples_per_step = 128

    def __init__(self, seed: int, _steps: int) -> None:
        super().__init__(seed, diabetes(), classifies=False)
        self._network = Network(self._rng, (10, 512, 512, 1))
        self._optimiser = Adam(self._network.parameters, learning_rate=2e-5)


class DigitsField(_NetworkLearner):
    """A neural field that learns a sheet of digits by heart, pixel by pixel, and is evaluated on it: a slow tail.

    The input is a pixel's position as sines and cosines of random frequencies, the output its brightness. Coarse shapes
    come within seconds, fine strokes take as long as one cares to wait: the loss falls to the end, ever more slowly.
    """

    samples_per_step = 1024

    def __init__(self, seed: int, _steps: int) -> None:
        brightness = _sheet()
        super().__init__(seed, Table(_positions(), brightness, _positions(), brightness), classifies=False)
        frequencies = _FREQUENCY_SCALE * self._rng.standard_normal((2, _FREQUENCIES), dtype=np.float32)
        angles = self._table.inputs @ frequencies
        self._features = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        self._network = Network(self._rng, (2 * _FREQUENCIES, 256, 256, 256, 1))
        self._optimiser = Adam(self._network.parameters)

    def step(self) -> float:
        """One minibatch of pixels, drawn with replacement."""
        pixels = self._rng.integers(0, len(self._features), self.samples_per_step)
        return self._learn(self._features[pixels], self._targets[pixels])

    def evaluate(self) -> float:
        """Mean squared error over every thirteenth pixel of the sheet: how well it knows the picture."""
        predictions = self._network.predict(self._features[::_EVERY_NTH_PIXEL])
        return squared_error(predictions, self._targets[::_EVERY_NTH_PIXEL])[0]


def _sheet() -> Floats:
    """16 × 16 digits side by side as one picture of 128 × 128 pixels, one row a pixel (pixels × 1)."""
    images = digits().inputs[: _DIGITS_A_SIDE**2].reshape(_DIGITS_A_SIDE, _DIGITS_A_SIDE, 8, 8)
    return images.swapaxes(1, 2).reshape(-1, 1)


def _positions() -> Floats:
    """Row and column of each pixel of the sheet, from -1 to 1 (pixels × 2)."""
    axis = np.linspace(-1, 1, 8 * _DIGITS_A_SIDE, dtype=np.float32)
    rows, columns = np.meshgrid(axis, axis, indexing="ij")
    return np.stack([rows.ravel(), columns.ravel()], axis=1)


class StdlibChars:
    """A language model of Python's own sources, character by character: a slow, power-law tail.

    Character embeddings and one hidden layer of 512 units, Adam, predict the character after sixteen; every tenth
    module is held out. Spelling and keywords come soon, longer patterns one by one, each worth less than the one
    before, and the loss never settles within a run.
    """

    samples_per_step = 512
    learnt = ("_rng", "_embedding", "_network", "_optimiser")

    def __init__(self, seed: int, _steps: int) -> None:
        self._rng = np.random.default_rng(seed)
        texts = standard_library_modules()
        held_out = texts[::_HELD_OUT_EVERY]
        del texts[::_HELD_OUT_EVERY]
        self._text = _as_numbers("".join(texts))
        self._held_out = _windows(_as_numbers("".join(held_out)), np.random.default_rng(0), _EVALUATED_POSITIONS)
        self.steps_per_epoch = len(self._text) // self.samples_per_step
        symbols = len(_ALPHABET) + 1
        self._embedding = self._rng.standard_normal((symbols, _EMBEDDING), dtype=np.float32)
        self._network = Network(self._rng, (_CONTEXT * _EMBEDDING, 512, symbols))
        self._optimiser = Adam([self._embedding, *self._network.parameters])

    def step(self) -> float:
        """One minibatch of positions of the text, drawn with replacement."""
        contexts, following = _windows(self._text, self._rng, self.samples_per_step)
        layers = self._network.forward(self._embed(contexts))
        loss, slope = cross_entropy(layers[-1], following)
        gradients, of_inputs = self._network.backward(layers, slope)
        of_embedding = np.zeros_like(self._embedding)
        np.add.at(of_embedding, contexts.ravel(), of_inputs.reshape(-1, _EMBEDDING))
        self._optimiser.apply([of_embedding, *gradients])
        return loss

    def evaluate(self) -> float:
        """Cross entropy in nats a character, at fixed positions of the held-out modules."""
        contexts, following = self._held_out
        return cross_entropy(self._network.predict(self._embed(contexts)), following)[0]

    def _embed(self, contexts: Integers) -> Floats:
        return self._embedding[contexts].reshape(len(contexts), -1)


def _as_numbers(text: str) -> Integers:
    """Each character as its place in the alphabet, from 1; 0 for any other."""
    numbers = np.zeros(128, np.int64)
    numbers[[ord(character) for character in _ALPHABET]] = np.arange(1, len(_ALPHABET) + 1)
    codes = np.frombuffer(text.encode("ascii", errors="replace").replace(b"\0", b"?"), np.uint8)
    return numbers[codes]


def _windows(text: Integers, rng: np.random.Generator, count: int) -> tuple[Integers, Integers]:
    """Contexts (count × 16) at random positions of the text, and the character that follows each."""
    starts = rng.integers(0, len(text) - _CONTEXT, count)
    return text[starts[:, None] + np.arange(_CONTEXT)], text[starts + _CONTEXT]
