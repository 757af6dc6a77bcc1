"""How the processes of one training save and stop together.

Before it: whatever connects them (`torch.distributed`, a strategy of Lightning). After it: `checkpoints`, which asks at
every step, in every rank. A rank that asks alone waits for good: each question here is put by all of them or by none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable


@dataclass(frozen=True)
class Ranks:
    """What one of the processes knows of the others."""

    first: bool
    """This is rank 0, whose file is the checkpoint."""
    agree: Callable[[bool], bool]
    """Makes one answer of each rank's yes or no, yes where one says yes; asked by all of them at every step."""
    save_together: bool = False
    """Every rank calls `save`, as some frameworks want it."""

    def all_done(self, mine: bool) -> bool:
        """Whether every rank has done its part. Yes only for all: the next save must not find one of them alone."""
        return not self.agree(not mine)
