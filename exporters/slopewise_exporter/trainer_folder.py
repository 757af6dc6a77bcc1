"""The checkpoints of a trainer that writes a folder for each, not atomically, and removes old ones as it likes.

A manifest says that one is whole. A save of step 16 that is cut short, and the next life:

    checkpoint-8/slopewise.json     whole
    checkpoint-16.saving            put there when the save began; gone once the trainer has written all of it
    _torn-checkpoint-16             what the next life makes of checkpoint-16, out of the trainer's sight

Out of its sight, because a trainer counts the folders that it keeps, whole or not. Told to keep two, it would keep the
torn one and the next, which has no manifest yet: a kill in that moment, and there is nothing to go on from.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Callable

from slopewise_exporter.checkpoint_files import TornCheckpoint, first_whole, flush_folder, read_manifest, seal
from slopewise_exporter.record import Progress

MANIFEST = "slopewise.json"
_PREFIX = "checkpoint-"
_SAVING = ".saving"
_TORN_PREFIX = "_torn-"
"""Not `checkpoint-`, which the trainer would count; with a `_`, what it sends to a hub leaves it out."""


class TrainerFolder:
    """Where one trainer saves. Nothing is kept here that is not on the disk: another process may have written it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def newest(self, tell: Callable[[Path, str], None]) -> tuple[Path, Progress] | None:
        """The one of the most steps that is whole; `tell` hears of the manifest of each that is not, and why.

        OSError: the folder cannot be read, or none is whole and one of them cannot be read.
        """
        if not self._folder.exists():
            return None
        numbers = sorted(self._numbers(""), reverse=True)
        found = first_whole([self._checkpoint(number) / MANIFEST for number in numbers], tell)
        return None if found is None else (found[0].parent, found[1])

    def begin(self, steps: int) -> None:
        """The trainer is about to save: what is found of it without a manifest, after this, was cut short. OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._mark(steps).touch()
        flush_folder(self._folder)

    def seal(self, steps: int, progress: Progress) -> None:
        """The trainer has saved: mark it as whole. OSError."""
        seal(self._checkpoint(steps), MANIFEST, progress)

    def end(self, steps: int) -> None:
        """The trainer has written all there is, sealed or not: where it could not be, it is complete all the same.

        Where this fails, the next life finds a whole one and takes it as it is.
        """
        with suppress(OSError):
            self._mark(steps).unlink(missing_ok=True)

    def remove_torn(self) -> None:
        """One is whole: what was set aside is of no use to anybody. What cannot go stays until the next save."""
        for torn in self._folder.glob(f"{_TORN_PREFIX}{_PREFIX}*"):
            _remove(torn)

    def set_aside_torn(self, loaded_steps: int, tell: Callable[[Path], None]) -> None:
        """Put what a former life has not saved to the end where the trainer does not look; `tell` hears where. OSError.

        Only what is known to have begun: folders of a trainer that did not have us may be whole. Not the one of
        `loaded_steps`, which was loaded all the same, since somebody knew better.
        """
        marked = sorted(self._numbers(_SAVING) - {loaded_steps}) if self._folder.exists() else []
        if marked and self.newest(lambda *_: None) is not None:
            self.remove_torn()  # of lives before: a disk that is full must not get fuller with each
        for number in marked:
            checkpoint, aside = self._checkpoint(number), self._folder / f"{_TORN_PREFIX}{_PREFIX}{number}"
            if checkpoint.exists() and _is_torn(checkpoint):
                _remove(aside)  # of the same step, torn twice: a folder is renamed onto nothing
                checkpoint.rename(aside)
                tell(aside)
            self._mark(number).unlink(missing_ok=True)

    def _numbers(self, suffix: str) -> set[int]:
        names = [path.name for path in self._folder.iterdir() if path.name.startswith(_PREFIX)]
        numbers = [name[len(_PREFIX) : len(name) - len(suffix)] for name in names if name.endswith(suffix)]
        return {int(number) for number in numbers if number.isdecimal()}

    def _checkpoint(self, steps: int) -> Path:
        return self._folder / f"{_PREFIX}{steps}"

    def _mark(self, steps: int) -> Path:
        return self._folder / f"{_PREFIX}{steps}{_SAVING}"


def _remove(torn: Path) -> None:
    with suppress(OSError):
        shutil.rmtree(torn)


def _is_torn(checkpoint: Path) -> bool:
    # A manifest may be there all the same: that of an older save, which this one was overwriting.
    try:
        read_manifest(checkpoint / MANIFEST, checkpoint)
    except TornCheckpoint:
        return True
    return False
