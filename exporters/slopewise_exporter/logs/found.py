"""What one line of a log, one row of a CSV file or one event says of a training."""

from __future__ import annotations

from typing import NamedTuple


class Found(NamedTuple):
    """The numbers of one line; None: it does not say. Losses may be NaN or infinite, all others are finite and >= 0."""

    loss: float | None = None
    """Of the training."""
    evaluation: float | None = None
    """A validation loss, or the score that the user named."""
    step: float | None = None
    """As the line counts them."""
    steps_planned: float | None = None
    epoch: int | float | None = None
    """As the line counts them, from 0 or from 1. A float, also 1.0, is a number that grows within an epoch, as that of
    Transformers does; an int is none."""
    epochs_planned: float | None = None
    batch: float | None = None
    """Position of a progress bar, within an epoch or within the whole training: `tracker` finds out which."""
    batches: float | None = None
    finished: bool = False
    """The line is one that a framework writes when the training has ended."""
    loss_kind: str = ""
    """`mse`, `nll` and so on, where the line does not just call it a loss."""
    evaluation_kind: str = ""
    """As `loss_kind`."""

    @property
    def said(self) -> dict[str, float | bool]:
        """The numbers in it, by field, and whether it is finished."""
        return {
            name: value
            for name, value in self._asdict().items()
            if value is not None and value is not False and type(value) is not str
        }


NOTHING = Found()
