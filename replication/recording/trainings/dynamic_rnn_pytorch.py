"""A recurrent network over sequences of different length in PyTorch, which separates lines from noise: softmax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

from replication.recording.data import ramps
from replication.recording.trainings._recurrent_pytorch import RecurrentLearner


class Learner(RecurrentLearner):
    """An LSTM with 64 hidden units over 5 to 20 values."""

    def __init__(self, seed: int, _digits_file: Path) -> None:
        super().__init__(seed, ramps(seed), nn.LSTM(1, 64, batch_first=True), 64, 2, functional.cross_entropy)

    def _read(self, inputs: Any) -> Any:
        """The state after the last value of each sequence; what fills it up is not read."""
        lengths = (inputs[:, :, 0] != 0).sum(1)
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        return self._layer(packed)[1][0][-1]
