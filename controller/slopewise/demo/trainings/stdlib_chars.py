"""A neural language model of Python's own sources, character by character: a slow, power-law tail.

Given sixteen characters it predicts the next (Bengio et al. 2003). Spelling and keywords come soon, longer
patterns one by one, each worth less than the one before: the loss falls roughly as a power of the work done
(Hestness et al. 2017) and never settles within a run.
"""

from __future__ import annotations

import numpy as np

from slopewise.demo.trainings._network import Adam, Floats, Integers, Network, cross_entropy
from slopewise.demo.trainings._sources import standard_library_modules

_CONTEXT = 16
_EMBEDDING = 16
_ALPHABET = "\n" + "".join(map(chr, range(32, 127)))  # number 0 stands for any other character
_HELD_OUT_EVERY = 10
_EVALUATED_POSITIONS = 1024


class Learner:
    """Character embeddings and one hidden layer of 512 units, Adam; every tenth module is held out."""

    samples_per_step = 512
    learnt = ("_rng", "_embedding", "_network", "_optimiser")

    def __init__(self, seed: int, _steps: int) -> None:
        self._rng = np.random.default_rng(seed)
        texts = [text for _, text in standard_library_modules()]
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
