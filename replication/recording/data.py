"""The data of the trainings: scikit-learn's handwritten digits, and sequences that are drawn from a seed.

Only numpy is needed: the environment with the frameworks has no scikit-learn, and is given the path of its file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

CLASSES = 10
SIDE = 28
"""Pixels a side, as MNIST has them."""

LARGEST_PIXEL = 16.0
TAGS, WORDS, SENTENCE = 6, 300, 16


class Digits(NamedTuple):
    """Images of `SIDE` x `SIDE` from 0 to 1, and which digit each is."""

    images: Floats
    labels: Integers


class Sequences(NamedTuple):
    """Inputs of shape (rows, steps, features) or (rows, steps), and what is to be learnt of them."""

    inputs: NDArray[np.generic]
    targets: NDArray[np.generic]


def digits(file: Path) -> Digits:
    """scikit-learn's 1,797 images of 8 x 8, each pixel three wide, with a margin of two."""
    table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    small = table[:, :-1].reshape(-1, 8, 8) / np.float32(LARGEST_PIXEL)
    images = np.pad(small.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))
    return Digits(images, table[:, -1].astype(np.int64))


def waves(seed: int, rows: int = 2048, steps: int = 40) -> Sequences:
    """Sums of two sines with noise of 0.05, of shape (rows, steps, 1); the target is the value after the last."""
    random = np.random.default_rng(seed)
    at = np.arange(steps + 1)
    frequency, phase = random.uniform(0.05, 0.5, (2, rows, 1)), random.uniform(0.0, 2 * np.pi, (2, rows, 1))
    values = np.sin(frequency * at + phase).sum(axis=0) + random.normal(0.0, 0.05, (rows, steps + 1))
    values = values.astype(np.float32)
    return Sequences(values[:, :-1, None], values[:, -1:])


def ramps(seed: int, rows: int = 2048, steps: int = 20) -> Sequences:
    """Rising lines (class 0) and noise (class 1) of 5 to `steps` values above 0, filled up with zeros at their ends."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, rows)
    lines = random.uniform(0.05, 0.5, (rows, 1)) + np.arange(steps) / (2 * steps)
    values = np.where(labels[:, None] == 0, lines, random.uniform(0.05, 1.0, (rows, steps)))
    values[np.arange(steps) >= random.integers(5, steps + 1, (rows, 1))] = 0.0
    return Sequences(values[:, :, None].astype(np.float32), labels.astype(np.int64))


def sentences(seed: int, rows: int = 2048) -> Sequences:
    """Words and their tags of a hidden Markov model with `TAGS` tags and `WORDS` words, both of shape (rows, words)."""
    random = np.random.default_rng(seed)
    follows = random.dirichlet(np.full(TAGS, 0.3), TAGS).cumsum(axis=1)
    spoken = random.dirichlet(np.full(WORDS, 0.05), TAGS).cumsum(axis=1)
    words, tags = np.empty((rows, SENTENCE), np.int64), np.empty((rows, SENTENCE), np.int64)
    tag = random.integers(0, TAGS, rows)
    for place in range(SENTENCE):
        tag = _drawn(follows[tag], random)
        tags[:, place], words[:, place] = tag, _drawn(spoken[tag], random)
    return Sequences(words, tags)


def _drawn(cumulative: NDArray[np.float64], random: np.random.Generator) -> Integers:
    """One place of each row of cumulative probabilities."""
    places: Integers = (cumulative < random.random((len(cumulative), 1))).sum(axis=1)
    return places.clip(max=cumulative.shape[1] - 1)


def batches(seed: int, rows: int, size: int) -> Iterator[Integers]:
    """The rows of each batch, shuffled again for every epoch; what does not fill a batch is left out."""
    random = np.random.default_rng(seed)
    while True:
        order = random.permutation(rows)
        for begin in range(0, rows - size + 1, size):
            yield order[begin : begin + size]
