"""Random numbers addressed by seed, job, stream and block, independent of the order in which they are drawn.

Philox is counter-based: the same place always holds the same number. So an observation's noise and a tie's outcome are
the same under every policy, in whatever order the world and `observer.py` come to ask.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

BLOCK_SCRAPES = 64
"""Random numbers are drawn for so many scrapes at once: one at a time takes fifty times as long."""


class Stream(IntEnum):
    """What random numbers are for; no two uses share any."""

    PHASE = 1
    SCRAPES = 2
    TIES = 3


def generator(seed: int, job_index: int, stream: Stream, block: int = 0) -> np.random.Generator:
    """The numbers of one job and one use; each block has 2^64 of them to itself."""
    return np.random.Generator(np.random.Philox(key=[seed, job_index], counter=[0, block, stream, 0]))


class ScrapeLuck:
    """One job's noise and gaps, by the number of the scrape from the start of the run."""

    def __init__(self, seed: int, job_index: int) -> None:
        self._seed = seed
        self._job_index = job_index
        self._block = -1
        self._noise: list[float] = []
        self._luck: list[float] = []
        self.phase_ratio = float(generator(seed, job_index, Stream.PHASE).random())
        """Where in the scrape interval the job's scrapes fall, 0 to 1."""

    def of(self, scrape: int) -> tuple[float, float]:
        """(standard normal, uniform from 0 to 1) of one scrape."""
        block, place = divmod(scrape, BLOCK_SCRAPES)
        if block != self._block:
            numbers = generator(self._seed, self._job_index, Stream.SCRAPES, block)
            self._noise = numbers.standard_normal(BLOCK_SCRAPES).tolist()
            self._luck = numbers.random(BLOCK_SCRAPES).tolist()
            self._block = block
        return self._noise[place], self._luck[place]
