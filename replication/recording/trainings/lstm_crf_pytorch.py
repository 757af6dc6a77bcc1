"""A bidirectional LSTM with a conditional random field on it, in PyTorch, which tags the words of sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from replication.recording.data import TAGS, WORDS, batches, sentences


class Learner:
    """Adam with a rate of 0.005 over batches of 32; the loss is the negative log likelihood of a sentence, in nats."""

    samples_per_step = 32

    def __init__(self, seed: int, _digits_file: Path) -> None:
        words, tags = sentences(seed)
        self._words, self._tags = torch.from_numpy(words), torch.from_numpy(tags)
        self._batches = batches(seed, len(words), self.samples_per_step)
        self._embedding, self._last = nn.Embedding(WORDS, 32), nn.Linear(64, TAGS)
        self._lstm = nn.LSTM(32, 32, batch_first=True, bidirectional=True)
        self._follows = nn.Parameter(torch.zeros(TAGS, TAGS))
        layers = nn.ModuleList([self._embedding, self._lstm, self._last])
        self._optimiser = torch.optim.Adam([*layers.parameters(), self._follows], lr=5e-3)

    def step(self) -> float:
        """One batch."""
        rows = next(self._batches)
        tags = self._tags[rows]
        scores = self._last(self._lstm(self._embedding(self._words[rows]))[0])
        loss = (self._log_of_all(scores) - self._score(scores, tags)).mean()
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        return float(loss.detach())

    def _score(self, scores: Any, tags: Any) -> Any:
        """Of the right tags of each sentence."""
        emitted = scores.gather(2, tags[:, :, None])[:, :, 0].sum(1)
        return emitted + self._follows[tags[:, :-1], tags[:, 1:]].sum(1)

    def _log_of_all(self, scores: Any) -> Any:
        """The logarithm of the sum over all tags that each sentence could have: the forward algorithm."""
        forward = scores[:, 0]
        for place in range(1, scores.shape[1]):
            forward = (forward[:, :, None] + self._follows).logsumexp(1) + scores[:, place]
        return forward.logsumexp(1)
