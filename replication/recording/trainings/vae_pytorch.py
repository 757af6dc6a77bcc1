"""A variational autoencoder of digits in PyTorch: reconstruction and KL loss, 400 hidden and 20 latent units."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from replication.recording.data import SIDE, batches, digits

LATENT = 20


class Learner:
    """Adam with a rate of 0.001 over batches of 128; the loss is a mean a digit, in nats."""

    samples_per_step = 128

    def __init__(self, seed: int, digits_file: Path) -> None:
        images = digits(digits_file).images
        self._images = torch.from_numpy(images.reshape(len(images), -1))
        self._batches = batches(seed, len(images), self.samples_per_step)
        pixels = SIDE * SIDE
        self._encoder = nn.Sequential(nn.Linear(pixels, 400), nn.ReLU(), nn.Linear(400, 2 * LATENT))
        self._decoder = nn.Sequential(nn.Linear(LATENT, 400), nn.ReLU(), nn.Linear(400, pixels))
        weights = [*self._encoder.parameters(), *self._decoder.parameters()]
        self._optimiser = torch.optim.Adam(weights, lr=1e-3)

    def step(self) -> float:
        """One batch."""
        images = self._images[next(self._batches)]
        mean, log_variance = self._encoder(images).chunk(2, dim=1)
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        lost = functional.binary_cross_entropy_with_logits(self._decoder(latent), images, reduction="sum")
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
        loss = (lost + divergence) / len(images)
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        return float(loss.detach())
