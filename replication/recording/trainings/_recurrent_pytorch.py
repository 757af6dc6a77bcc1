"""The recurrent trainings in PyTorch: a recurrent layer, a linear one after its last output, Adam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from replication.recording.data import Sequences, batches

Loss = Callable[[Any, Any], Any]


class RecurrentLearner:
    """Batches of 64 through `layer`, whose output has `width` features, to `outputs` values; rate 0.001."""

    samples_per_step = 64

    def __init__(self, seed: int, data: Sequences, layer: nn.Module, width: int, outputs: int, loss: Loss) -> None:
        self._inputs, self._targets = torch.from_numpy(data.inputs), torch.from_numpy(data.targets)
        self._batches = batches(seed, len(data.inputs), self.samples_per_step)
        self._layer, self._last, self._loss = layer, nn.Linear(width, outputs), loss
        self._optimiser = torch.optim.Adam([*layer.parameters(), *self._last.parameters()], lr=1e-3)

    def step(self) -> float:
        """One batch."""
        rows = next(self._batches)
        loss = self._loss(self._last(self._read(self._inputs[rows])), self._targets[rows])
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        return float(loss.detach())

    def _read(self, inputs: Any) -> Any:
        """The layer's output after the last step of each sequence."""
        return self._layer(inputs)[0][:, -1]
