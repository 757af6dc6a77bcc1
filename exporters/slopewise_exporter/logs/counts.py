"""Finds out what the counts of a log mean: steps of the whole training, or batches that begin again in each epoch.

`step 120/10000` counts over the whole training. A bar below `Epoch 3/60`, or `Epoch [3/60], Step [120/300]`, counts
within an epoch: 2 * 300 + 120 = 720 of 18,000 steps are done. Counts that begin again at the end of an epoch are counts
within it. While both are possible there is no plan: a plan of one epoch would make a training of 60 look nearly done.
"""

from __future__ import annotations

from typing import NamedTuple

_END_OF_EPOCH = 0.9
"""Of its batches: a count that begins again from here on is the next epoch's, one from before is a new process's. Not
all of them: progress bars skip their last updates."""


class Count(NamedTuple):
    """One count of a log. `length` 0: not known. `epoch`: its number, from 0 or from 1; None: not known."""

    number: float
    length: float
    is_bar: bool
    has_loss: bool
    epoch: float | None
    epochs_planned: float
    fractions: bool
    """Epochs are numbers like 0.35, as Transformers writes them beside a bar of the whole training."""


class Counts:
    """Turns counts into steps of the whole training. Its attributes are what has to be kept when a reader restarts."""

    def __init__(self) -> None:
        self.in_epoch: bool | None = None
        """Whether counts begin again with each epoch; None: not decided yet."""
        self.origin = 1
        """The number of the first epoch, 0 or 1."""
        self.start = 0.0
        """Steps of the epochs before the one that is counted now."""
        self.number = 0.0
        self.length = 0.0
        self.epoch: float | None = None
        self.from_zero = False
        """Whether the first step has the number 0: then number 49 is that of the 50th."""
        self.saw_loss = False
        """Since this bar began: then it is the training's."""
        self.plan: float | None = None
        self.numbered = False
        """Whether there was any count."""
        self.settled = False
        """Whether a higher number of the same epoch and length can only mean more steps of the whole training."""

    def position(self, count: Count) -> float:
        """Steps done in the whole training. The count is not `of_other_work`."""
        if count.epoch == 0:
            self.origin = 0
        self._decide(count)
        if self.in_epoch:
            self._enter_epoch(count)
        if count.number == 0 and count.has_loss and not count.is_bar:
            self.from_zero = True
        self.number = count.number
        self.length = count.length or self.length
        self.epoch = count.epoch
        self.numbered = True
        self.saw_loss = self.saw_loss or count.has_loss
        self.plan = self._plan(count)
        self.settled = self.in_epoch is False or (self.in_epoch is None and count.epoch is None and not count.is_bar)
        return self.start + count.number + self.from_zero

    def of_other_work(self, count: Count) -> bool:
        """Whether a bar is not that of the training but, say, of a validation."""
        if not count.is_bar or not self.length or count.length == self.length or count.epoch != self.epoch:
            return False
        if self.number < self.length:
            return True
        # Transformers evaluates with a bar like that of its training; but a bar of other work may have come first.
        if self.saw_loss and not count.has_loss:
            return True
        return self.in_epoch is True

    def _decide(self, count: Count) -> None:
        if self.in_epoch is not None:
            return
        begins_again = count.number < self.number
        next_epoch = count.epoch is not None and self.epoch is not None and count.epoch > self.epoch
        # Transformers names an epoch when it has ended, and its bar goes on.
        goes_on = 0 < self.number <= count.number
        is_bar_of_epoch = count.is_bar and count.epoch is not None and not goes_on
        if is_bar_of_epoch or (begins_again and (next_epoch or self._was_at_end(count))):
            self.in_epoch = True
        elif goes_on and (next_epoch or (count.is_bar and count.epoch is not None)):
            self.in_epoch = False
        elif not count.is_bar and count.epoch is not None and count.length and count.epochs_planned:
            self._decide_by_share(count, count.epoch - self.origin)

    def _decide_by_share(self, count: Count, epochs_done: float) -> None:
        """In epoch 3 of 60, step 120 of 300 is too far for a count of the whole training; so is 120 of 10,000."""
        share = count.number / count.length
        slack = 1.0 / count.length
        if (
            share > (epochs_done + 1) / count.epochs_planned + slack
            or share < epochs_done / count.epochs_planned - slack
        ):
            self.in_epoch = True

    def _was_at_end(self, count: Count) -> bool:
        return 0 < self.length == count.length and self.number >= _END_OF_EPOCH * self.length

    def _enter_epoch(self, count: Count) -> None:
        last = self.length or self.number + self.from_zero
        length = count.length or last
        if count.epoch is None:
            if count.number < self.number:
                self.start = self.start + last if self._was_at_end(count) else 0.0
        elif self.epoch is None or count.epoch < self.epoch or count.epoch > self.epoch + 1:
            self.start = max(0.0, count.epoch - self.origin) * length
        elif count.epoch > self.epoch:
            self.start += last

    def _plan(self, count: Count) -> float | None:
        if self.in_epoch:
            if not (count.epochs_planned and self.length and count.epoch is not None):
                return None
            left = max(1.0, count.epochs_planned - (count.epoch - self.origin))
            return self.start + left * self.length
        if not count.length:
            return None
        if count.is_bar:
            return count.length if count.fractions else None
        return count.length if self.in_epoch is False or count.epoch is None or count.fractions else None
