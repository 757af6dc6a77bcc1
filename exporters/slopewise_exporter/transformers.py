"""Loss, progress and checkpoints of a training by the Transformers `Trainer`; `ReportCallback` leaves the last out.

    trainer = Trainer(model, arguments, callbacks=[ReportCallback()], ...)

    callback = SlopewiseCallback(output_dir, reporter=Reporter(framework="transformers"))
    trainer = Trainer(model, TrainingArguments(output_dir, save_total_limit=2), callbacks=[callback], ...)
    trainer.train(resume_from_checkpoint=callback.resume_path)

The trainer saves its own checkpoints (model, optimiser, scheduler, random numbers, and the place in the data) in
folders of its own, and not atomically; `trainer_folder` marks one as whole. The loss comes as often as the trainer logs
it (`logging_steps`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic, perf_counter, time
from types import TracebackType
from typing import Any

from transformers import TrainerCallback

from slopewise_exporter.checkpoint_files import passing_over
from slopewise_exporter.checkpoints import DEFAULT_EVERY_SECONDS, CheckpointError
from slopewise_exporter.fit_report import FitReport, harmless, loss_among, stops_early
from slopewise_exporter.pytorch import agree, distributed
from slopewise_exporter.record import Progress
from slopewise_exporter.reporter import Reporter
from slopewise_exporter.termination import Termination
from slopewise_exporter.trainer_folder import TrainerFolder
from slopewise_exporter.values import Checker


class _NotSaved(Exception):  # noqa: N818 - what it is; it ends a save that did not come
    pass


class ReportCallback(TrainerCallback):  # type: ignore[misc] # of a package that is not installed here
    """Reports each step, the loss as often as it is logged, and evaluations. `reporter`: None: that of this process."""

    _saves = False

    def __init__(self, reporter: Reporter | None = None) -> None:
        self._report = FitReport(reporter, "transformers", saves=self._saves)
        self._planned = 0

    @harmless
    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The trainer has loaded its checkpoint, if it was given one."""
        self._planned = state.max_steps
        self._report.begin(
            state.max_steps,
            done=state.global_step,
            epochs_done=int(state.epoch or 0),
            upper_bound=_stops_early(state),
            first_rank=state.is_world_process_zero,
        )

    @harmless
    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The batches of a step are here."""
        self._report.waits.busy()

    @harmless
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An optimiser step. Another callback may have changed the plan."""
        self._report.step()
        self._report.waits.idle()
        if state.max_steps != self._planned:
            self._planned = state.max_steps
            self._report.plan(state.max_steps)

    @harmless
    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        """The mean loss since the last log, if this is not that of an evaluation or of the whole training."""
        self._report.loss((logs or {}).get("loss"))
        self._report.waits.idle()

    @harmless
    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """One pass over the data."""
        self._report.epoch()

    @harmless
    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        """The loss of the evaluation."""
        self._report.evaluate(loss_among(metrics or {}, "evaluation"))
        self._report.waits.interrupt()

    @harmless
    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A save is no wait for data."""
        self._report.waits.interrupt()

    @harmless
    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The end, early or not."""
        self._report.end()


class SlopewiseCallback(ReportCallback):
    """Reports each step; makes the trainer save on SIGTERM and from time to time, and leave with exit code 143.

    The trainer reports no error in `train` to a callback: a process that goes on after one writes `with callback:`
    around it, which gives SIGTERM back.

    Args:
        output_dir: the same as that of the TrainingArguments.
        reporter: is told of every save, and its counters go on from the checkpoint.
        every_seconds: save when so much time has passed, beside what `save_strategy` says; None: not by time.
    """

    _saves = True

    def __init__(
        self,
        output_dir: str | os.PathLike[str],
        *,
        reporter: Reporter | None = None,
        every_seconds: float | None = DEFAULT_EVERY_SECONDS,
    ) -> None:
        super().__init__(reporter)
        self._folder = Path(output_dir).expanduser()  # as the trainer does
        self._checkpoints = TrainerFolder(self._folder)
        self._reporter = reporter
        self._every_seconds = every_seconds
        self._due_at_seconds = self._next_due()
        self._check = Checker()
        self._unsaved = False
        self._stopping = False
        self._saving = ExitStack()
        self._saving_since: float | None = None
        self._termination = Termination(self._nothing_to_lose, reporter)
        listening = self._termination.install()
        if reporter is not None:
            reporter.saves_on_sigterm = listening

    @property
    def resume_path(self) -> str | None:
        """For `train(resume_from_checkpoint=...)`: the last checkpoint that is whole; None: start from step 0.

        CheckpointError: none is whole, and one could not be read.
        """
        try:
            found = self._checkpoints.newest(passing_over(self._check))
        except OSError as error:
            raise CheckpointError(f"the checkpoints in {self._folder} cannot be read ({error}).") from error
        return None if found is None else str(found[0])

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Before the trainer looks for a checkpoint by itself (`resume_from_checkpoint=True`), whole or not.

        The trainer is only just being made: what `train` will be told to resume from is not known. A torn checkpoint
        that is named there has another name by then, which the log says.
        """
        self._set_aside_torn(state)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The trainer has loaded its checkpoint, if it was given one. It may not be the first time that it trains."""
        self._set_aside_torn(state)  # again: a callback that was added later has heard of no `on_init_end`
        self._abandon_save()
        self._unsaved = self._stopping = False
        self._due_at_seconds = self._next_due()
        if not self._termination.installed and self._termination.install():
            self._objective(True)
        if self._reporter is not None:
            self._reporter.resume(self._progress_at(state.global_step))
        super().on_train_begin(args, state, control)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An optimiser step; decides whether it is saved, and whether it is the last one here."""
        super().on_step_end(args, state, control)
        self._unsaved = True
        # One answer of all ranks: each of them takes part in saving.
        if self._agreed(self._termination.asked or monotonic() >= self._due_at_seconds):
            control.should_save = True
            if self._agreed(self._termination.asked):
                self._stopping = True
                control.should_training_stop = True
                control.should_evaluate = False  # it may outlast the grace period
        self._begin_saving_if_next(state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """One pass over the data."""
        super().on_epoch_end(args, state, control)
        self._begin_saving_if_next(state, control)

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        """The loss of the evaluation."""
        super().on_evaluate(args, state, control, metrics)
        if control.should_save:
            self._begin_saving(state)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The trainer has saved: mark it as whole. SystemExit(143) where SIGTERM was the reason."""
        super().on_save(args, state, control)
        self._agreed(True)  # wait for the other ranks, whose random numbers are files of the same folder
        if state.is_world_process_zero:
            self._seal(state.global_step)
        self._due_at_seconds = self._next_due()
        if self._stopping:
            self._agreed(True)  # wait until rank 0 has marked it
            self._termination.leave()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The end of the training, well or not."""
        super().on_train_end(args, state, control)
        self._termination.restore()

    def __enter__(self) -> SlopewiseCallback:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._abandon_save()
        self._termination.restore()
        if error is not None:
            self._objective(False)

    def _begin_saving_if_next(self, state: Any, control: Any) -> None:
        # An evaluation comes before the save, and may take minutes: `on_evaluate` then begins it.
        if control.should_save and not control.should_evaluate:
            self._begin_saving(state)

    def _begin_saving(self, state: Any) -> None:
        # Again where it has begun: an evaluation of several data sets ends several times, and one save follows.
        self._abandon_save()
        self._saving_since = perf_counter()
        if self._reporter is not None:
            self._saving.enter_context(self._reporter.checkpoint())
        if state.is_world_process_zero:
            with suppress(OSError):  # the save itself will tell
                self._checkpoints.begin(state.global_step)

    def _abandon_save(self) -> None:
        self._saving_since = None
        with suppress(_NotSaved), self._saving.pop_all():
            raise _NotSaved

    def _seal(self, steps: int) -> None:
        progress = Progress(steps) if self._reporter is None else self._reporter.progress(steps)
        began = self._saving_since
        duration_seconds = None if began is None else perf_counter() - began
        try:
            with self._saving.pop_all():
                self._checkpoints.seal(
                    steps, Progress(steps, progress.samples, progress.epochs, time(), duration_seconds)
                )
        except OSError as error:
            self._check.warn("save", f"the checkpoint of step {steps} was not saved ({error})")
            self._objective(False)
            return
        finally:
            self._saving_since = None
            self._checkpoints.end(steps)
        if not self._stopping:  # it may outlast the grace period; the next life removes them as well
            self._checkpoints.remove_torn()
        self._check.forget("save")
        self._unsaved = False
        self._objective(self._termination.installed)

    def _objective(self, on_sigterm: bool) -> None:
        if self._reporter is not None:
            self._reporter.saves_on_sigterm = on_sigterm

    def _progress_at(self, steps: int) -> Progress:
        """What the checkpoint says that was loaded; where it is none of ours, so many steps, and no more is known."""
        with suppress(OSError):  # it was raised by `resume_path`, if that was asked
            found = self._checkpoints.newest(passing_over(self._check))
            if found is not None and found[1].steps == steps:
                return found[1]
        return Progress(steps)

    def _set_aside_torn(self, state: Any) -> None:
        try:
            if state.is_world_process_zero:
                self._checkpoints.set_aside_torn(state.global_step, self._tell_cut_short)
        except OSError as error:
            self._check.warn("torn", f"what is left of a save that was cut short cannot be set aside ({error})")
        finally:
            self._agreed(False)  # every rank waits: none may look for the newest while rank 0 still renames

    def _tell_cut_short(self, torn: Path) -> None:
        self._check.warn(
            str(torn),
            f"a save was cut short in a former life; what there is of it is in {torn}, until another one is whole",
        )

    def _agreed(self, mine: bool) -> bool:
        return agree(mine) if distributed() else mine

    def _next_due(self) -> float:
        return float("inf") if self._every_seconds is None else monotonic() + self._every_seconds

    def _nothing_to_lose(self) -> bool:
        # A save of a step that is saved already, where an epoch ends, must not be left in its middle either.
        return not (distributed() or self._unsaved or self._stopping or self._saving_since is not None)


def _stops_early(state: Any) -> bool:
    # The callbacks that have a state of their own, by their names; early stopping is one since 4.42.
    return stops_early(getattr(state, "stateful_callbacks", None) or ())
