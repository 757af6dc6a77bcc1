"""Real data that is on every machine: scikit-learn's bundled tables, and the sources of Python's standard library.

Tables are split for training and evaluation. The split is drawn once and does not depend on a job's seed, so that
losses of different seeds can be compared.
"""

from __future__ import annotations

import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slopewise.demo.trainings._network import Doubles, Floats, Integers
from slopewise.errors import MissingToolError

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
    inputs, labels = _bundled("digits")
    return _split(inputs / 16, labels)


def breast_cancer() -> Table:
    """569 tumours with 30 standardised features; label 1 is benign."""
    inputs, labels = _bundled("breast_cancer")
    return _split(_standardised(inputs), labels)


def diabetes() -> Table:
    """442 patients with 10 standardised features; the target is the standardised progression after a year."""
    inputs, progression = _bundled("diabetes")
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


def standard_library_modules() -> list[str]:
    """The text of each top-level module of this Python's standard library, by name (about 5 MB in all)."""
    folder = Path(sysconfig.get_path("stdlib"))
    modules = [file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.py"))]
    if not modules:
        raise MissingToolError(
            f"{folder} holds no Python sources, which are this training's text; use a Python that ships them."
        )
    return modules


def _bundled(name: str) -> tuple[Doubles, Doubles]:
    """Imported where it is needed: a training on text starts without it."""
    from sklearn import datasets

    inputs, targets = getattr(datasets, f"load_{name}")(return_X_y=True)
    return inputs, targets


def _standardised(values: Doubles) -> Doubles:
    standardised: Doubles = (values - values.mean(axis=0)) / values.std(axis=0)
    return standardised


def _split(inputs: Doubles, targets: Doubles) -> Table:
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(inputs))
    held_out, kept = np.split(order, [int(len(inputs) * _HELD_OUT_RATIO)])
    rows, values = inputs.astype(np.float32), targets.astype(np.float32)
    return Table(rows[kept], values[kept], rows[held_out], values[held_out])
