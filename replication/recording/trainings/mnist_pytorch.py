"""A convolutional network of digits in PyTorch, as PyTorch's own MNIST example: two convolutions, dropout, softmax."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from replication.recording.data import CLASSES, batches, digits


class Learner:
    """Stochastic gradient descent with a rate of 0.01 and momentum of 0.5 over batches of 64; cross entropy."""

    samples_per_step = 64

    def __init__(self, seed: int, digits_file: Path) -> None:
        images, labels = digits(digits_file)
        self._images, self._labels = torch.from_numpy(images[:, None]), torch.from_numpy(labels)
        self._batches = batches(seed, len(images), self.samples_per_step)
        self._network = nn.Sequential(
            nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(),
            nn.Conv2d(10, 20, 5), nn.Dropout2d(), nn.MaxPool2d(2), nn.ReLU(),
            nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Dropout(), nn.Linear(50, CLASSES),
        )  # fmt: skip
        self._optimiser = torch.optim.SGD(self._network.parameters(), lr=0.01, momentum=0.5)

    def step(self) -> float:
        """One batch."""
        rows = next(self._batches)
        loss = functional.cross_entropy(self._network(self._images[rows]), self._labels[rows])
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        return float(loss.detach())
