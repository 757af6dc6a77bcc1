"""Real tables that are on every machine: scikit-learn's bundled data sets, split for training and evaluation.

The split is drawn once and does not depend on a job's seed, so that losses of different seeds can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from slopewise.demo.trainings._network import Doubles, Floats, Integers

_SPLIT_SEED = 0
_HELD_OUT_RATIO = 0.25


@dataclass(frozen=True)
class Table:
    """Inputs (rows × features) and one target a row: class numbers, or a column of values (rows × 1)."""

    inputs: Floats
    targets: Floats
    held_out_inputs: Floats
    held_out_targets: Floats

    @property
    def labels(self) -> Integers:
        """The training targets as class numbers."""
        return self.targets.astype(np.int64)

    @property
    def held_out_labels(self) -> Integers:
        """The held-out targets as class numbers."""
        return self.held_out_targets.astype(np.int64)


def digits() -> Table:
    """1,797 handwritten digits of 8 × 8 pixels with intensities 0 to 1; labels 0 to 9."""
    inputs, labels = load_digits(return_X_y=True)
    return _split(inputs / 16, labels)


def breast_cancer() -> Table:
    """569 tumours with 30 standardised features; label 1 is benign."""
    inputs, labels = load_breast_cancer(return_X_y=True)
    return _split(_standardised(inputs), labels)


def diabetes() -> Table:
    """442 patients with 10 standardised features; the target is the standardised progression after a year."""
    inputs, progression = load_diabetes(return_X_y=True)
    return _split(_standardised(inputs), _standardised(progression)[:, np.newaxis])


class Minibatches:
    """An endless sequence of minibatches of row numbers, reshuffled each epoch, without the last partial one.

    Not a generator, which no checkpoint could hold: an epoch that is interrupted goes on with the rows it has left.
    """

    def __init__(self, rng: np.random.Generator, rows: int, batch_size: int) -> None:
        self._rng = rng
        self._rows = rows
        self._batch_size = batch_size
        self._left: Integers = np.empty(0, np.int64)

    def __next__(self) -> Integers:
        if len(self._left) < self._batch_size:
            self._left = self._rng.permutation(self._rows)
        batch, self._left = np.split(self._left, [self._batch_size])
        return batch


def _standardised(values: Doubles) -> Doubles:
    standardised: Doubles = (values - values.mean(axis=0)) / values.std(axis=0)
    return standardised


def _split(inputs: Doubles, targets: Doubles) -> Table:
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(inputs))
    held_out, kept = np.split(order, [int(len(inputs) * _HELD_OUT_RATIO)])
    rows, values = inputs.astype(np.float32), targets.astype(np.float32)
    return Table(rows[kept], values[kept], rows[held_out], values[held_out])
