"""A gated recurrent unit in PyTorch that continues waves: quadratic loss."""

from __future__ import annotations

from pathlib import Path

from torch import nn
from torch.nn import functional

from replication.recording.data import waves
from replication.recording.trainings._recurrent_pytorch import RecurrentLearner


class Learner(RecurrentLearner):
    """64 hidden units over 40 values."""

    def __init__(self, seed: int, _digits_file: Path) -> None:
        super().__init__(seed, waves(seed), nn.GRU(1, 64, batch_first=True), 64, 1, functional.mse_loss)
