"""A recurrent network in PyTorch that reads digits row by row: softmax, cross entropy."""

from __future__ import annotations

from pathlib import Path

from torch import nn
from torch.nn import functional

from replication.recording.data import CLASSES, SIDE, Sequences, digits
from replication.recording.trainings._recurrent_pytorch import RecurrentLearner


class Learner(RecurrentLearner):
    """An LSTM with 128 hidden units over 28 rows."""

    def __init__(self, seed: int, digits_file: Path) -> None:
        data = Sequences(*digits(digits_file))
        super().__init__(seed, data, nn.LSTM(SIDE, 128, batch_first=True), 128, CLASSES, functional.cross_entropy)
