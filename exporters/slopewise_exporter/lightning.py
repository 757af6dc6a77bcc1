"""Loss, progress and checkpoints of a Lightning training; `ReportCallback` leaves the checkpoints out.

    trainer = Trainer(callbacks=[ReportCallback()], ...)

    callback = SlopewiseCallback(FOLDER, reporter=Reporter(framework="lightning"))
    trainer = Trainer(callbacks=[callback], ...)
    trainer.fit(module, ckpt_path=callback.resume_path)

Lightning itself ends on SIGTERM with exit code 0 and saves nothing; while it trains, this callback's handler stands in
for its own. Where a DataLoader is in its epoch is not saved (`order`), and each draws from the common random numbers
whenever it is made, unless it has a `generator` of its own.
"""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback

from slopewise_exporter.checkpoint_files import CheckpointFolder
from slopewise_exporter.checkpoints import DEFAULT_EVERY_SECONDS, DEFAULT_KEEP, CheckpointError, Checkpoints, Ranks
from slopewise_exporter.environment import checkpoint_folder
from slopewise_exporter.fit_report import FitReport, harmless, loss_among, names_of, stops_early
from slopewise_exporter.pytorch import random_state, set_random_state
from slopewise_exporter.record import Progress
from slopewise_exporter.reporter import Reporter
from slopewise_exporter.termination import EXIT_CODE

_SUFFIX = ".ckpt"
_RANDOM = "slopewise_random"


class ReportCallback(Callback):  # type: ignore[misc] # of a package that is not installed here
    """Reports each optimiser step, the epochs, and each validation. `reporter`: None: the one of this process."""

    _saves = False

    def __init__(self, reporter: Reporter | None = None) -> None:
        self._report = FitReport(reporter, "lightning", saves=self._saves)
        self._global_step = 0
        self._epoch_began_at: int | None = None

    @harmless
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Everything is loaded."""
        self._global_step = trainer.global_step
        self._epoch_began_at = None
        self._report.begin(
            _planned(trainer),
            done=trainer.global_step,
            epochs_done=trainer.current_epoch,
            upper_bound=_stops_early(trainer),
            first_rank=trainer.is_global_zero,
        )

    @harmless
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """The batch is here. The first is that of an epoch which no former process has begun."""
        self._report.waits.busy()
        if batch_idx == 0:
            self._epoch_began_at = trainer.global_step

    @harmless
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A step of each optimiser that made one; none while gradients are being added up."""
        steps = trainer.global_step - self._global_step
        if steps > 0:
            self._global_step = trainer.global_step
            loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
            self._report.step(loss, steps)
        self._report.waits.idle()

    @harmless
    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """A save is no wait for data."""
        self._report.waits.interrupt()

    @harmless
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """`val_loss` or the like, where the module logs one."""
        self._report.waits.interrupt()
        if not trainer.sanity_checking:
            self._report.evaluate(loss_among(trainer.callback_metrics, "evaluation"))

    @harmless
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """One pass over the data; its steps are the plan of those that follow."""
        self._report.epoch()
        if self._epoch_began_at is not None:
            self._report.plan(_planned(trainer, trainer.global_step - self._epoch_began_at))

    @harmless
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The end, early or not."""
        self._report.end()


class SlopewiseCallback(ReportCallback):
    """Reports each optimiser step, saves on SIGTERM and from time to time. The arguments are those of `Checkpoints`."""

    _saves = True

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        reporter: Reporter | None = None,
        every_seconds: float | None = DEFAULT_EVERY_SECONDS,
        every_steps: int | None = None,
        keep: int = DEFAULT_KEEP,
    ) -> None:
        super().__init__(reporter)
        self._folder = checkpoint_folder(os.environ, folder)
        self._reporter = reporter
        self._every_seconds = every_seconds
        self._every_steps = every_steps
        self._keep = keep
        self._checkpoints: Checkpoints | None = None
        self._random: Mapping[str, Any] | None = None
        self._asks_in_validation = True

    @property
    def resume_path(self) -> str | None:
        """For `fit(ckpt_path=...)`: the last checkpoint that is whole; None: start from step 0.

        CheckpointError: none is whole, and one could not be read.
        """
        try:
            if self._folder is None or not self._folder.exists():
                return None
            found = CheckpointFolder(self._folder, _SUFFIX, self._keep).newest(lambda *_: None)
        except OSError as error:
            raise CheckpointError(f"the checkpoints in {self._folder} cannot be read ({error}).") from error
        return None if found is None else str(found.path)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Before a checkpoint is loaded: what an earlier `fit` has loaded and not used is no matter of this one."""
        self._random = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Everything is loaded; from here on SIGTERM is ours. SystemExit(143) where it has come before."""
        if trainer.received_sigterm:
            self._leave()
        if threading.current_thread() is threading.main_thread():
            # Of Lightning: with several ranks it broadcasts in the handler, which hangs, and it makes the code 0.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._checkpoints = Checkpoints(
            self._folder,
            reporter=self._reporter,
            every_seconds=self._every_seconds,
            every_steps=self._every_steps,
            keep=self._keep,
            save=_save,
            load=lambda path: path,
            suffix=_SUFFIX,
            ranks=_ranks(trainer),
        )
        if trainer.ckpt_path is not None and str(trainer.ckpt_path) == self.resume_path:
            self._checkpoints.resume()
        else:
            # A file that somebody else has written, an older one of ours, or none: the trainer knows where it is.
            self._checkpoints.count_from(Progress(trainer.global_step, epochs=trainer.current_epoch))
        super().on_train_start(trainer, pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A step, unless gradients are still being added up; SystemExit(143) after SIGTERM, once it is saved."""
        steps = trainer.global_step - self._global_step
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        if steps > 0 and self._checkpoints is not None:
            self._checkpoints.step(lambda: trainer, steps)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Of ranks with other numbers of batches, or unknown ones, the last would ask alone, and wait for good."""
        super().on_validation_start(trainer, pl_module)
        if self._checkpoints is not None and trainer.world_size > 1:
            allowed = "allow_zero_length_dataloader_with_multiple_devices"
            if any(getattr(each, allowed, False) for each in (pl_module, trainer.datamodule)):
                self._asks_in_validation = False  # nor compared: a rank without a batch has no validation at all
                return
            batches = trainer.num_val_batches
            same = batches == trainer.strategy.broadcast(batches) and math.isfinite(sum(batches))
            self._asks_in_validation = bool(trainer.strategy.reduce_boolean_decision(same))

    def on_validation_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """An evaluation must not outlast the grace period."""
        if self._checkpoints is not None and self._asks_in_validation:
            self._checkpoints.check(lambda: trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Save the end, so that a process that is started again has nothing left to do."""
        super().on_train_end(trainer, pl_module)
        self._let_go(None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Let go of SIGTERM, and save nothing: the state may be that of half a step. The process may go on without us.

        Lightning ends with 0 where SIGTERM came while it still loaded: that would count as complete.
        """
        self._let_go(exception)
        if isinstance(exception, SystemExit) and exception.code is None and trainer.received_sigterm:
            self._leave()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Lightning saves no random numbers."""
        super().on_save_checkpoint(trainer, pl_module, checkpoint)
        checkpoint[_RANDOM] = random_state()

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Mapping[str, Any]) -> None:
        """Keep them until the first batch: making data loaders draws some."""
        if trainer.is_global_zero:
            self._random = checkpoint.get(_RANDOM)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Draw on from where the former life ended, in the rank whose random numbers they are."""
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
        if self._random is not None:
            set_random_state(self._random)
            self._random = None

    def _let_go(self, error: BaseException | None) -> None:
        # And forget it: a `validate` or a second `fit` that follows must not save the state of this one.
        checkpoints, self._checkpoints = self._checkpoints, None
        if checkpoints is not None:
            checkpoints.__exit__(None if error is None else type(error), error, None)

    def _leave(self) -> None:
        if self._reporter is not None:
            self._reporter.leave()
        raise SystemExit(EXIT_CODE)


def _save(path: Path, trainer: Any) -> None:
    try:
        trainer.save_checkpoint(path)
    except Exception:
        # On a full disk only rank 0 fails, and the others wait for it where `save_checkpoint` ends: go there as well.
        trainer.strategy.barrier("Trainer.save_checkpoint")
        raise


def _ranks(trainer: Any) -> Ranks | None:
    def agree(mine: bool) -> bool:
        return bool(trainer.strategy.reduce_boolean_decision(mine, all=False))

    return None if trainer.world_size == 1 else Ranks(trainer.is_global_zero, agree, save_together=True)


@harmless
def _planned(trainer: Any, steps_an_epoch: int | None = None) -> int | None:
    """Steps in all, by the last epoch where there was one: two optimisers take two steps a batch. None: not known."""
    if steps_an_epoch is None or trainer.max_epochs in (None, -1):
        estimate = trainer.estimated_stepping_batches
        return int(estimate) if 0 < estimate < math.inf else None
    # At the end of an epoch it still has the number of that one.
    steps = trainer.global_step + steps_an_epoch * (trainer.max_epochs - trainer.current_epoch - 1)
    return int(steps if trainer.max_steps == -1 else min(steps, trainer.max_steps))


@harmless
def _stops_early(trainer: Any) -> bool:
    names = names_of(trainer.callbacks)
    return stops_early(names) or "Timer" in names  # of `max_time`
