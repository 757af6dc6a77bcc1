"""A bidirectional recurrent network in PyTorch that reads digits row by row: softmax, cross entropy."""

from __future__ import annotations

from pathlib import Path

from torch import nn
from torch.nn import functional

from replication.recording.data import CLASSES, SIDE, Sequences, digits
from replication.recording.trainings._recurrent_pytorch import RecurrentLearner


class Learner(RecurrentLearner):
    """An LSTM with 128 hidden units in each direction over 28 rows."""

    def __init__(self, seed: int, digits_file: Path) -> None:
        layer = nn.LSTM(SIDE, 128, batch_first=True, bidirectional=True)
        super().__init__(seed, Sequences(*digits(digits_file)), layer, 256, CLASSES, functional.cross_entropy)
