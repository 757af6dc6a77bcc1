"""A small dense network in numpy, two optimisers and two losses: what the neural trainings are made of.

Everything is float32 and drawn from the generator that is passed in, so a seed gives the same bits every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Integers = NDArray[np.integer[Any]]
Activation = Literal["relu", "sigmoid"]

_VARIANCE_GAIN = {"relu": 2.0, "sigmoid": 1.0}  # He et al. 2015 for relu; 1/fan-in (LeCun 1998) for sigmoid


class Network:
    """Dense layers of the given sizes with one activation between them; the last layer is linear."""

    def __init__(self, rng: np.random.Generator, sizes: Sequence[int], activation: Activation = "relu") -> None:
        self._activation = activation
        gain = _VARIANCE_GAIN[activation]
        self.weights: list[Floats] = [
            rng.standard_normal((inputs, outputs), dtype=np.float32) * np.float32(np.sqrt(gain / inputs))
            for inputs, outputs in pairwise(sizes)
        ]
        self.biases: list[Floats] = [np.zeros(outputs, np.float32) for outputs in sizes[1:]]

    @property
    def parameters(self) -> list[Floats]:
        """Weights, then biases: in the order of `backward`."""
        return self.weights + self.biases

    def forward(self, inputs: Floats) -> list[Floats]:
        """The inputs and each layer's outputs (batch × units); the last entry is the prediction."""
        layers = [inputs]
        for index, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            outputs = layers[-1] @ weights + biases
            layers.append(outputs if index == len(self.weights) - 1 else self._activate(outputs))
        return layers

    def predict(self, inputs: Floats) -> Floats:
        """The last layer's outputs."""
        return self.forward(inputs)[-1]

    def backward(self, layers: list[Floats], slope: Floats) -> tuple[list[Floats], Floats]:
        """Gradients in the order of `parameters`, and the one of the inputs; `slope` is d loss / d prediction."""
        of_weights: list[Floats] = []
        of_biases: list[Floats] = []
        for index in reversed(range(len(self.weights))):
            of_weights.insert(0, layers[index].T @ slope)
            of_biases.insert(0, slope.sum(axis=0))
            slope = slope @ self.weights[index].T
            if index > 0:
                slope *= self._derivative(layers[index])
        return of_weights + of_biases, slope

    def _activate(self, values: Floats) -> Floats:
        if self._activation == "relu":
            return np.maximum(values, np.float32(0))
        return (1 / (1 + np.exp(-values))).astype(np.float32, copy=False)

    def _derivative(self, outputs: Floats) -> Floats:
        """The activation's derivative, from its outputs."""
        return (outputs > 0).astype(np.float32) if self._activation == "relu" else outputs * (1 - outputs)


class Sgd:
    """Stochastic gradient descent with momentum and weight decay; changes `parameters` in place."""

    def __init__(
        self, parameters: list[Floats], learning_rate: float, momentum: float = 0.9, weight_decay: float = 0.0
    ) -> None:
        self._parameters = parameters
        self._velocities = [np.zeros_like(parameter) for parameter in parameters]
        self._scratch = [np.zeros_like(parameter) for parameter in parameters]
        self._momentum = momentum
        self._weight_decay = weight_decay
        self.learning_rate = learning_rate

    def apply(self, gradients: list[Floats]) -> None:
        """One update, without temporaries: allocating a megabyte at each step costs more than the sums."""
        arrays = zip(self._parameters, gradients, self._velocities, self._scratch, strict=True)
        for parameter, gradient, velocity, scratch in arrays:
            velocity *= self._momentum
            velocity += gradient
            velocity += np.multiply(parameter, self._weight_decay, out=scratch)
            parameter -= np.multiply(velocity, self.learning_rate, out=scratch)


class Adam:
    """Adam with its authors' constants (Kingma & Ba 2015); changes `parameters` in place."""

    def __init__(self, parameters: list[Floats], learning_rate: float = 1e-3) -> None:
        self._parameters = parameters
        self._means = [np.zeros_like(parameter) for parameter in parameters]
        self._squares = [np.zeros_like(parameter) for parameter in parameters]
        self._scratch = [np.zeros_like(parameter) for parameter in parameters]
        self.learning_rate = learning_rate
        self._updates = 0

    def apply(self, gradients: list[Floats]) -> None:
        """One update, without temporaries."""
        self._updates += 1
        rate = self.learning_rate * sqrt(1 - 0.999**self._updates) / (1 - 0.9**self._updates)
        arrays = zip(self._parameters, gradients, self._means, self._squares, self._scratch, strict=True)
        for parameter, gradient, mean, square, scratch in arrays:
            mean *= 0.9
            mean += np.multiply(gradient, 0.1, out=scratch)
            square *= 0.999
            square += np.multiply(np.square(gradient, out=scratch), 0.001, out=scratch)
            np.add(np.sqrt(square, out=scratch), 1e-8, out=scratch)
            parameter -= np.multiply(np.divide(mean, scratch, out=scratch), rate, out=scratch)


def cross_entropy(scores: Floats, labels: Integers) -> tuple[float, Floats]:
    """Mean cross entropy in nats of a softmax over `scores` (batch × classes), and its slope."""
    rows = np.arange(len(labels))
    shifted = scores - scores.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    sums = exponentials.sum(axis=1, keepdims=True)
    loss = float(np.mean(np.log(sums[:, 0]) - shifted[rows, labels]))
    slope = exponentials / sums
    slope[rows, labels] -= 1
    return loss, slope / np.float32(len(labels))


def squared_error(predictions: Floats, targets: Floats) -> tuple[float, Floats]:
    """Mean squared error, and its slope."""
    difference = predictions - targets
    return float(np.mean(difference * difference)), difference * np.float32(2 / difference.size)


def log_loss(probabilities: Floats, labels: Integers) -> float:
    """Mean cross entropy in nats of given class probabilities (batch × classes)."""
    right = probabilities[np.arange(len(labels)), labels]
    return float(-np.mean(np.log(np.maximum(right, 1e-12))))
