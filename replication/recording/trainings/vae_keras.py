"""A variational autoencoder of digits in Keras: reconstruction and KL loss, 400 hidden and 20 latent units."""

from __future__ import annotations

from pathlib import Path

import keras
import torch
from keras import layers, ops

from replication.recording.data import SIDE, batches, digits

LATENT = 20


class Learner:
    """Adam with a rate of 0.001 over batches of 128; the loss is a mean a digit, in nats.

    The step is written out, as Keras' guide to training loops on its PyTorch backend has it.
    """

    samples_per_step = 128

    def __init__(self, seed: int, digits_file: Path) -> None:
        images = digits(digits_file).images
        self._images = torch.from_numpy(images.reshape(len(images), -1))
        self._batches = batches(seed, len(images), self.samples_per_step)
        pixels = SIDE * SIDE
        dense, entry = layers.Dense, layers.Input
        self._encoder = keras.Sequential([entry((pixels,)), dense(400, activation="relu"), dense(2 * LATENT)])
        self._decoder = keras.Sequential([entry((LATENT,)), dense(400, activation="relu"), dense(pixels)])
        self._weights = [*self._encoder.trainable_weights, *self._decoder.trainable_weights]
        self._optimiser = keras.optimizers.Adam(1e-3)

    def step(self) -> float:
        """One batch."""
        images = self._images[next(self._batches)]
        mean, log_variance = ops.split(self._encoder(images, training=True), 2, axis=1)
        latent = mean + keras.random.normal(mean.shape) * ops.exp(0.5 * log_variance)
        lost = ops.binary_crossentropy(images, self._decoder(latent, training=True), from_logits=True)
        divergence = -0.5 * ops.sum(1 + log_variance - mean**2 - ops.exp(log_variance))
        loss = (ops.sum(lost) + divergence) / len(images)
        for weight in self._weights:
            weight.value.grad = None
        loss.backward()
        with torch.no_grad():
            self._optimiser.apply([weight.value.grad for weight in self._weights], self._weights)
        return float(loss.detach())
