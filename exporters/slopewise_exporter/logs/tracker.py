"""From what lines say to calls of a `Reporter`: steps and epochs done, the plan, restarts and the end.

A log with counts is read by `counts`. One without any has a step for each loss. A count that falls is a training that
began again, at once where it falls to less than half; else after three lines in a row, because another rank of the same
training may be a little behind.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from slopewise_exporter.logs.counts import Count, Counts
from slopewise_exporter.logs.found import Found

_CONFIRMATIONS = 3
"""Lines in a row that count on from a smaller number than before."""

_LOSSES_WITHOUT_COUNT = 20
"""In a row: the count came from a line like `loaded the checkpoint of step 500`. Each loss is a step from then on."""

_RECENT_LOSSES = 50
"""Kept for a reader that is restarted: as far back as the moving average of the loss reaches."""

_KEPT = (
    *("steps", "epochs", "planned", "_epoch", "_epochs_planned", "_fractions", "_plan_is_counted"),
    *("_plan_is_estimated", "finished", "failed", "_kinds"),
)
_KEPT_COUNTS = ("in_epoch", "origin", "start", "number", "length", "epoch", "saw_loss", "from_zero", "plan", "numbered")


class Progressing(Protocol):
    """What a tracker needs of a `Reporter`."""

    def advance_to(
        self, steps: int, epochs: int, loss: float | None = None, *, at_seconds: float | None = None
    ) -> None:
        """So many are done in all."""

    def plan(self, steps: float | None, *, upper_bound: bool = False) -> None:
        """So many are planned."""

    def evaluate(self, value: float) -> None:
        """An evaluation is done."""

    def begin_again(self) -> None:
        """The training began again."""

    def mark_ended(self, *, failed: bool) -> None:
        """The training ended."""


class Tracker:
    """Takes what is found, in order, and reports it. One for each training; never raises.

    Args:
        reporter: gets the calls.
        planned_steps: of the user, instead of what lines say.
    """

    def __init__(self, reporter: Progressing, *, planned_steps: float | None = None) -> None:
        self.steps = 0
        self.epochs = 0
        self.finished = False
        self.failed = False
        self._recent: deque[float] = deque(maxlen=_RECENT_LOSSES)
        self._reporter = reporter
        self._counts = Counts()
        self._plan_is_fixed = planned_steps is not None
        self.planned: float | None = None
        self._plan_is_counted = False
        self._plan_is_estimated = False
        self._losses_without_count = 0
        self._suspects: list[float] = []
        self._epoch: float | None = None
        self._epochs_planned = 0.0
        self._fractions = False
        self._lines_in_epoch = 0
        self._kinds: dict[str, str] = {}
        """Field of `Found`: the kind of its values that are reported."""
        if planned_steps is not None:
            self._set_plan(planned_steps)

    @property
    def plan_is_reached(self) -> bool:
        """Whether as many steps are done as are planned."""
        return self.planned is not None and self.steps >= self.planned

    @property
    def kept(self) -> dict[str, Any]:
        """What `restore` takes, for a reader that is restarted; plain numbers."""
        counts = {name: getattr(self._counts, name) for name in _KEPT_COUNTS}
        return {**{name: getattr(self, name) for name in _KEPT}, "counts": counts, "recent": list(self._recent)}

    def restore(self, kept: dict[str, Any], at_seconds: float) -> None:
        """Go on where another tracker was, `at_seconds`. KeyError or TypeError where it is not what `kept` was."""
        for name in _KEPT_COUNTS:
            setattr(self._counts, name, kept["counts"][name])
        for name in _KEPT:
            if name != "planned" or not self._plan_is_fixed:
                setattr(self, name, kept[name])
        for loss in kept["recent"]:
            self._recent.append(loss)
            self._reporter.advance_to(self.steps, self.epochs, loss, at_seconds=at_seconds)
        if self.planned is not None:
            self._reporter.plan(self.planned)
        if self.finished:
            self._reporter.mark_ended(failed=self.failed)

    def take(self, found: Found, at_seconds: float | None = None) -> None:
        """One more line; `at_seconds`: when it was written, where that is in the past."""
        loss, evaluation, step, steps_planned, epoch, epochs_planned, batch, batches, finished, *kinds = found
        loss, evaluation = (
            self._of_one_kind("loss", loss, kinds[0]),
            self._of_one_kind("evaluation", evaluation, kinds[1]),
        )
        if epochs_planned:
            self._epochs_planned = epochs_planned
        if epoch is not None:
            self._see_epoch(epoch, with_loss=loss is not None)
        if loss is not None:
            self._recent.append(loss)
        if step is not None:
            self._count(step, steps_planned or 0.0, loss, at_seconds, is_bar=False)
        elif batch is not None:
            self._count(batch, batches or 0.0, loss, at_seconds, is_bar=True)
        else:
            if steps_planned:
                self._plan_is_estimated = False
                self._set_plan(steps_planned)
            if loss is not None:
                self._lone_loss(loss, at_seconds)
        if evaluation is not None:
            self._reporter.evaluate(evaluation)
        if finished:
            self.finish()

    def finish(self, *, failed: bool = False) -> None:
        """The training has ended; a line with progress takes that back."""
        if not failed and self._epochs_planned and self._epoch is not None and not self._fractions:
            self.epochs = max(self.epochs, int(self._epoch) - self._counts.origin + 1)
            self._reporter.advance_to(self.steps, self.epochs)
        self.finished, self.failed = True, failed
        self._reporter.mark_ended(failed=failed)

    def _of_one_kind(self, field: str, value: float | None, kind: str) -> float | None:
        """The first kind of a training stays, up to what its lines just call loss, which begins a series of its own."""
        if value is None or self._kinds.setdefault(field, kind) == kind:
            return value
        if kind:
            return None
        if field == "loss":
            self._recent.clear()
            self._begin_again()
        self._kinds[field] = kind
        return value

    def _see_epoch(self, epoch: float, *, with_loss: bool) -> None:
        if type(epoch) is float:
            self._fractions = True
        if self._fractions:
            self.epochs = int(epoch)
        elif epoch != self._epoch:
            if epoch == 0:
                self._counts.origin = 0
            if self._epoch is not None and epoch > self._epoch:
                done = epoch - self._counts.origin
                # Where the plan is not in the log itself, it comes from the steps of the epochs so far.
                if self._epochs_planned and not self._counts.length and self.steps and self._may_estimate():
                    self._set_plan(max(self.steps, round(self.steps / max(1.0, done) * self._epochs_planned)))
            self._lines_in_epoch = 0
            self.epochs = max(0, int(epoch) - self._counts.origin)
        if with_loss:
            self._lines_in_epoch += 1
        self._epoch = epoch

    def _count(
        self, number: float, length: float, loss: float | None, at_seconds: float | None, *, is_bar: bool
    ) -> None:
        whole_epoch = None if self._fractions else self._epoch
        counts = self._counts
        same = counts.epoch == whole_epoch and (not length or length == counts.length)
        if same and counts.settled and number > counts.number and not (is_bar or self._suspects or self.finished):
            counts.number = number  # all that the rest would do, at a third of its time: most lines of most logs
            self._losses_without_count = 0
            self.steps = int(number) + counts.from_zero
            self._reporter.advance_to(self.steps, self.epochs, loss, at_seconds=at_seconds)
            return
        count = Count(number, length, is_bar, loss is not None, whole_epoch, self._epochs_planned, self._fractions)
        if self._counts.of_other_work(count):
            return
        if self.finished and number < self._counts.number:
            self._counts = Counts()  # another training begins in the same log
            self.steps = self.epochs = 0
            self._suspects.clear()
            self._begin_again()
        position = self._counts.position(count)
        if self._counts.plan is not None or self._plan_is_counted:
            self._plan_is_counted = True
            self._set_plan(self._counts.plan)
        self._losses_without_count = 0
        if self._counts.in_epoch and whole_epoch is not None:
            done = whole_epoch - self._counts.origin + (0 < length <= number)
            self.epochs = max(0, int(done))
        self._move_to(position, loss, at_seconds)

    def _begin_again(self) -> None:
        self.finished = self.failed = False
        self._kinds.clear()
        self._reporter.begin_again()

    def _lone_loss(self, loss: float, at_seconds: float | None) -> None:
        self._losses_without_count += 1
        self._counts.saw_loss = True
        if not self._counts.numbered or self._losses_without_count > _LOSSES_WITHOUT_COUNT:
            if self._lines_in_epoch == 1 and self._epoch is not None and not self._fractions:
                self.epochs = max(0, int(self._epoch) - self._counts.origin + 1)  # one line at the end of each
            self._advance(max(self.steps + 1, self._steps_by_epoch()), loss, at_seconds)
        else:
            self._reporter.advance_to(self.steps, self.epochs, loss, at_seconds=at_seconds)

    def _may_estimate(self) -> bool:
        """Whether no line has a plan of its own."""
        self._plan_is_estimated = self._plan_is_estimated or self.planned is None
        return self._plan_is_estimated

    def _steps_by_epoch(self) -> int:
        """Transformers without a bar writes the plan once, and then how many epochs are done, as 0.35."""
        if not (self._fractions and self._epoch and self._epochs_planned):
            return 0
        plan = None if self._may_estimate() else self.planned
        if plan is None:
            self._set_plan(round((self.steps + 1) / self._epoch * self._epochs_planned))
            return 0
        return round(plan * self._epoch / self._epochs_planned)

    def _move_to(self, position: float, loss: float | None, at_seconds: float | None) -> None:
        steps = int(position)
        if steps >= self.steps:
            self._suspects.clear()
            self._advance(steps, loss, at_seconds)
            return
        if self._suspects and steps <= self._suspects[-1]:
            self._suspects.clear()
        self._suspects.append(steps)
        if steps > self.steps / 2 and len(self._suspects) < _CONFIRMATIONS:
            self._reporter.advance_to(self.steps, self.epochs, loss, at_seconds=at_seconds)
            return
        self._suspects.clear()
        self._begin_again()
        self._advance(steps, loss, at_seconds)

    def _advance(self, steps: int, loss: float | None, at_seconds: float | None) -> None:
        if self.finished and steps > self.steps:
            self._begin_again()
        self.steps = steps
        self._reporter.advance_to(steps, self.epochs, loss, at_seconds=at_seconds)

    def _set_plan(self, steps: float | None) -> None:
        if steps == self.planned or (self._plan_is_fixed and self.planned is not None):
            return
        self.planned = steps
        self._reporter.plan(steps)
