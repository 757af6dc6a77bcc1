"""What `slopewise replay` prints: the passes that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slopewise.decision_record.reader import Announce, RecordedPass, read
from slopewise.decision_record.replay import ReplayedPass, replay
from slopewise.errors import UsageError
from slopewise.reports.wording import counted

MAX_SHOWN = 10
"""Passes that differ, whose differences are printed; JSON has all of them."""


@dataclass(slots=True)
class Replayed:
    """A whole record that was replayed."""

    file: Path
    observed: int = 0
    held: int = 0
    """Passes that could not observe, and decided nothing."""
    decisions: int = 0
    different: list[ReplayedPass] = field(default_factory=list)

    @property
    def is_same(self) -> bool:
        """Every pass gave the recorded result, bit for bit."""
        return not self.different

    def count(self, passes: Iterable[RecordedPass]) -> Iterator[RecordedPass]:
        """The passes, of which those that could not observe are counted."""
        for each in passes:
            self.held += each.recorded.inputs is None
            yield each

    def add(self, again: ReplayedPass) -> None:
        """One more pass that was run again."""
        self.observed += 1
        self.decisions += len(again.recorded.result.decided)
        if again.differences:
            self.different.append(again)


def replay_file(path: Path, announce: Announce, done: Callable[[int], None]) -> Replayed:
    """Replay a record, and call `done` with the passes so far; UsageError for a bad file."""
    whole = Replayed(path)
    for again in replay(whole.count(read(path, announce))):
        whole.add(again)
        done(whole.observed)
    if not whole.observed and not whole.held:
        raise UsageError(f"{path}: the record holds no pass yet.")
    return whole


def as_json(whole: Replayed) -> dict[str, Any]:
    """For `--output json`."""
    different = [
        {"where": each.where, "at": each.recorded.taken_at_seconds, "differences": each.differences}
        for each in whole.different
    ]
    return {
        "file": str(whole.file),
        "passes": whole.observed,
        "held": whole.held,
        "decisions": whole.decisions,
        "same": whole.is_same,
        "different": different,
    }


def summary(whole: Replayed) -> str:
    """The result in one sentence."""
    held = f"; {counted(whole.held, 'pass', 'passes')} could not observe" if whole.held else ""
    passes = f"{counted(whole.observed, 'pass', 'passes')}, {counted(whole.decisions, 'decision')}{held}"
    if whole.is_same:
        return f"{passes}. All was decided the same again, bit for bit."
    return f"{passes}. {counted(len(whole.different), 'pass', 'passes')} decided something else:"


def differences(whole: Replayed) -> list[str]:
    """The first passes that differ, a line each."""
    return [f"{each.where}: {'; '.join(each.differences)}" for each in whole.different[:MAX_SHOWN]]
