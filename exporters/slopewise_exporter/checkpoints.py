"""A training that can be moved: saves on SIGTERM and from time to time, and goes on where it was.

    with Reporter(planned_steps=STEPS) as reporter, Checkpoints(FOLDER, reporter=reporter) as checkpoints:
        learner = checkpoints.resume() or Learner(seed=0)
        for step in range(checkpoints.steps, STEPS):
            loss = learner.step()
            reporter.step(loss=loss)
            checkpoints.step(lambda: learner)

What saving needs and cannot have is reported once in the log and never raised: the training goes on, and its metrics
say that it would lose its work.
"""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Callable

from slopewise_exporter.checkpoint_files import CheckpointFolder, Found, passing_over
from slopewise_exporter.environment import checkpoint_folder, is_first_rank
from slopewise_exporter.record import Progress
from slopewise_exporter.reporter import Reporter
from slopewise_exporter.termination import Termination
from slopewise_exporter.values import Checker

DEFAULT_EVERY_SECONDS = 300.0
"""What a node that dies takes with it. A checkpoint of 3 s every 300 s costs 1 % of the training."""

DEFAULT_KEEP = 2
"""The last, and the one before it for when the disk has not kept the last as it was."""


class CheckpointError(Exception):
    """A checkpoint that is whole and of no use to the training, or one, or a folder, that cannot be read.

    Raised and not logged: to begin again would overwrite, two saves later, all the work that there is.
    """


@dataclass(frozen=True)
class Ranks:
    """What one of the processes of a training knows of the others, so that they save and stop together.

    `Checkpoints` asks at every step, in every rank. A rank that asks alone waits for good: each question here is put by
    all of them or by none.
    """

    first: bool
    """This is rank 0, whose file is the checkpoint."""
    agree: Callable[[bool], bool]
    """Makes one answer of each rank's yes or no, yes where one says yes; asked by all of them at every step."""
    save_together: bool = False
    """Every rank calls `save`, as some frameworks want it."""

    def all_done(self, mine: bool) -> bool:
        """Whether every rank has done its part. Yes only for all: the next save must not find one of them alone."""
        return not self.agree(not mine)


class Checkpoints:
    """Saves the state of a training and finds it again. Use it as a context manager, or call `close` at the end.

    Where there is no folder, every method does nothing but count steps. Only global rank 0 saves; every rank resumes.
    The SIGTERM handler is set where this is made (in the main thread; elsewhere the log says so) and taken away at the
    end; forked children never have it.

    Args:
        folder: of this training alone, on storage that every node reads. `SLOPEWISE_CHECKPOINT_FOLDER` overrides it.
        reporter: is told of every save, and its counters go on from the checkpoint.
        every_seconds: save when so much time has passed since the last save; None: not by time.
        every_steps: save after so many steps; None: not by steps.
        keep: how many checkpoints stay on the disk, at least 1.
        save: puts a state into the file of this path; pickle, unless given.
        load: the state from the file of this path. Unpickling runs what the file says: keep the folder your own.
        suffix: of the files, where `save` looks at it.
        ranks: of a training of several processes; None: which one saves is what the launcher's variables say.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        reporter: Reporter | None = None,
        every_seconds: float | None = DEFAULT_EVERY_SECONDS,
        every_steps: int | None = None,
        keep: int = DEFAULT_KEEP,
        save: Callable[[Path, Any], None] | None = None,
        load: Callable[[Path], Any] | None = None,
        suffix: str = ".checkpoint",
        ranks: Ranks | None = None,
    ) -> None:
        self._check = Checker()
        self._reporter = reporter
        self._every_seconds = every_seconds
        self._every_steps = every_steps
        self._save = save or _save_pickle
        self._load = load or _load_pickle
        self._ranks = ranks
        self._steps = 0
        self._saved_steps = 0
        self._tried_steps = 0
        self._due_at_seconds = self._next_due()
        self._state: Callable[[], Any] | None = None
        self._saving = False
        self._searched = False
        self._closed = False
        self._termination = Termination(self._nothing_to_lose, self._reporter)
        place = checkpoint_folder(os.environ, folder)
        self._folder = None if place is None else CheckpointFolder(place, suffix, max(1, keep))
        self._first_rank = is_first_rank(os.environ, self._check) if ranks is None else ranks.first
        if self._folder is not None:
            self._open(self._folder)

    @property
    def steps(self) -> int:
        """Steps done, in all lives of this training."""
        return self._steps

    @property
    def stopping(self) -> bool:
        """This process was told to end: the next `step` saves and leaves."""
        return self._termination.asked

    def resume(self) -> Any | None:
        """The state of the last checkpoint that is whole, or None: start from step 0. Called once, before any step.

        One that is not whole is told and passed over. CheckpointError for one that is whole and cannot be loaded, and
        for a folder that cannot be read, or a checkpoint that cannot be where no other is whole.
        """
        self._searched = True
        found = self._find()
        if found is None:
            return None
        try:
            state = self._load(found.path)
        except Exception as error:
            raise CheckpointError(
                f"{found.path} is whole, but cannot be loaded ({type(error).__name__}: {error}); it may be of another "
                "version of this training: start with an empty folder, or with the version that saved it."
            ) from error
        self.count_from(found.progress)
        return state

    def count_from(self, progress: Progress) -> None:
        """So much is done already, in a state that the training has loaded by itself. Call it before the first step."""
        self._steps = self._saved_steps = self._tried_steps = progress.steps
        self._due_at_seconds = self._next_due()
        if self._reporter is not None:
            self._reporter.resume(progress)

    def step(self, state: Callable[[], Any] | None = None, steps: int = 1) -> None:
        """Steps are done, and `reporter.step` was called. Saves where that is due; `state` is asked for it only then.

        None is that of the step before. SystemExit(143) after SIGTERM, once the state is saved, or could not be.
        """
        self._steps += steps
        self._state = state or self._state
        self.check(state)

    def check(self, state: Callable[[], Any] | None = None) -> None:
        """What `step` does, without a step: for long evaluations between two steps, which outlast a grace period."""
        if not self._closed and self._agreed(self._termination.asked or self._is_due()):
            self.save(state)
            # Asked again: it may have come during the save. And the ranks wait here until rank 0 has saved, because a
            # launcher that sees one of them end kills the others.
            if self._agreed(self._termination.asked):
                self._termination.leave()

    def save(self, state: Callable[[], Any] | None = None) -> bool:
        """Save now, unless this step was saved already. False where it could not be; the log says why."""
        state = state or self._state
        if self._steps == self._saved_steps and self._steps > 0:
            return True
        self._saving = True
        self._tried_steps = self._steps
        try:
            if self._folder is None or state is None or not self._saved(self._folder, state):
                return False
            self._saved_steps = self._steps
            return True
        finally:
            self._saving = False
            self._due_at_seconds = self._next_due()

    def close(self) -> None:
        """The training came to its end: save what is not saved, and let go of SIGTERM. A second call does nothing.

        With the end saved, a process that is started again has nothing left to do and ends well.
        """
        self._end(save=True)

    def reopen(self) -> None:
        """After `close`: hear SIGTERM again and count on, as for a second `fit`. Nothing where it is open."""
        if self._closed:
            self._closed = False
            if self._folder is not None:
                self._open(self._folder)

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error the state may be that of half a step; the last checkpoint is better.
        self._end(save=error is None)

    def _end(self, *, save: bool) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            # Not tried, rather than not saved: in a collective save no rank may be alone.
            if save and self._steps > self._tried_steps:
                self.save()
        finally:
            self._state = None
            self._termination.restore()
            if not save and self._folder is not None and self._first_rank:
                self._tell_reporter(False)  # the process may go on without us

    def _agreed(self, mine: bool) -> bool:
        return mine if self._ranks is None else self._ranks.agree(mine)

    def _open(self, folder: CheckpointFolder) -> None:
        problem = None
        if not self._termination.install():
            problem = "Checkpoints was not made in the main thread, which alone hears SIGTERM: nothing is saved then"
            self._check.warn("SIGTERM", problem)
        if not self._first_rank:
            return
        try:
            folder.prepare()
        except OSError as error:
            problem = f"checkpoints cannot be written ({error}): when the training is ended, work is lost"
            self._check.warn("save", problem)
        self._tell_reporter(problem is None)

    def _tell_reporter(self, on_sigterm: bool) -> None:
        if self._reporter is not None:
            self._reporter.saves_on_sigterm = on_sigterm

    def _find(self) -> Found | None:
        if self._folder is None:
            return None
        try:
            return self._folder.newest(passing_over(self._check))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(f"the checkpoints, or their folder, cannot be read ({error}).") from error

    def _saved(self, folder: CheckpointFolder, state: Callable[[], Any]) -> bool:
        """What this rank does for a save, and whether it is done."""
        if self._ranks is None or not self._ranks.save_together:
            return self._first_rank and self._write(folder, state)
        return self._ranks.all_done(self._write(folder, state) if self._first_rank else self._take_part(folder, state))

    def _write(self, folder: CheckpointFolder, state: Callable[[], Any]) -> bool:
        self._warn_of_forgotten_resume(folder)
        begun = False

        def save(path: Path) -> None:
            nonlocal begun
            begun = True
            self._save(path, state())

        try:
            if self._reporter is None:
                folder.write(save, Progress(steps=self._steps))
            else:
                with self._reporter.checkpoint():
                    folder.write(save, self._reporter.progress(self._steps))
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            self._check.warn("save", f"the checkpoint of step {self._steps} was not saved ({problem})")
            self._tell_reporter(False)
            if self._ranks is not None and self._ranks.save_together and not begun:
                self._take_part(folder, state)  # the others are in the middle of it, and wait for this rank
            return False
        self._check.forget("save")
        self._tell_reporter(self._termination.installed)
        return True

    def _take_part(self, folder: CheckpointFolder, state: Callable[[], Any]) -> bool:
        """Do what `save` does together with the other ranks; the file is nothing. False where it failed."""
        try:
            folder.discard(lambda path: self._save(path, state()))
        except Exception as error:
            self._check.warn("save", f"taking part in a checkpoint failed ({type(error).__name__}: {error})")
            return False
        return True

    def _is_due(self) -> bool:
        # Since the last try, not the last success: a full disk must not cost a save at every step.
        if self._every_steps is not None and self._steps - self._tried_steps >= self._every_steps:
            return True
        return monotonic() >= self._due_at_seconds

    def _next_due(self) -> float:
        return float("inf") if self._every_seconds is None else monotonic() + self._every_seconds

    def _nothing_to_lose(self) -> bool:
        """All that was done is saved, and no other rank waits for this one."""
        if self._ranks is not None or self._saving or self._steps != self._saved_steps:
            return False
        return self._reporter is None or self._reporter.steps in (0, self._steps)

    def _warn_of_forgotten_resume(self, folder: CheckpointFolder) -> None:
        if not self._searched and folder.any():
            self._check.warn(
                "resume",
                "there are checkpoints of a former life, and this one did not begin there (resume() was not called, "
                "or another one was loaded): they will be overwritten",
            )
        self._searched = True


def _save_pickle(path: Path, state: Any) -> None:
    with path.open("wb") as file:
        pickle.dump(state, file, protocol=pickle.HIGHEST_PROTOCOL)


def _load_pickle(path: Path) -> Any:
    with path.open("rb") as file:
        return pickle.load(file)  # noqa: S301 - written by this training, in a folder of its own
