"""How far a training is, as a checkpoint keeps it. Apart from `checkpoint_files`, which a reporter need not load."""

from __future__ import annotations

from typing import NamedTuple


class Progress(NamedTuple):
    """How far a training was when it was saved; times in Unix seconds."""

    steps: int = 0
    samples: float = 0.0
    epochs: int = 0
    saved_at_seconds: float = 0.0
    duration_seconds: float | None = 0.0
    """How long putting the state on the disk took; None: its begin was not seen."""
