"""Uses a Prometheus that the user runs: writes the file from which it reads the targets of a run.

The user's scrape configuration reads the file (`file_sd_configs`). Each target carries the label of the run, so that
jobs of the same name on another machine or of an earlier run are kept apart.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from slopewise.adapters.local.prometheus_server import TargetGroup
from slopewise.adapters.local.stored_files import made_folder, replace_file
from slopewise.adapters.prometheus.client import Target
from slopewise.errors import ObservationError, SlopewiseError, UsageError

RUN_LABEL = "slopewise_run"
"""The label on every target of a run, and in every query about it."""

_KNOWN_WITHIN_SECONDS = 15.0
"""Prometheus reads a changed file at once, and takes changed targets over every 5 s."""

_POLL_SECONDS = 0.5


@dataclass(slots=True)
class GivenPrometheus:
    """A context manager: its entry writes the file and its exit removes it. Prometheus itself is not changed."""

    url: str
    run_id: str
    file: Path
    targets: Sequence[TargetGroup]
    """Those to scrape."""
    ask_targets: Callable[[], Sequence[Target]]
    """Returns the targets that Prometheus scrapes now, or raises ObservationError."""
    announce: Callable[[str], None]
    needs_restart: ClassVar[bool] = False
    """The user runs it."""

    def __enter__(self) -> Self:
        """UsageError for a file that no run has written."""
        check_owner(self.file)
        self.set_targets(self.targets)
        return self

    def set_targets(self, groups: Sequence[TargetGroup]) -> None:
        """Replace what is scraped."""
        labelled = [
            TargetGroup(targets=group["targets"], labels={**group["labels"], RUN_LABEL: self.run_id})
            for group in groups
        ]
        try:
            made_folder(self.file.parent)
            replace_file(self.file, json.dumps(labelled, indent=1).encode(), 0o644)  # Prometheus is another user
        except SlopewiseError as error:
            raise UsageError(f"--targets-file {error}") from error
        self.targets = groups

    def __exit__(self, *_: object) -> None:
        self.file.unlink(missing_ok=True)

    def wait_for_targets(self, timeout_seconds: float = _KNOWN_WITHIN_SECONDS) -> None:
        """Wait until it scrapes the jobs; when it does not, announce what it needs, and continue without losses."""
        deadline = time.monotonic() + timeout_seconds
        while not self._is_known():
            if time.monotonic() >= deadline:
                wanted = f"`file_sd_configs: [{{files: ['{self.file.absolute()}']}}]`"
                self.announce(
                    f"Prometheus at {self.url} does not scrape the jobs, as far as it says; "
                    f"let one of its scrape_configs have {wanted}."
                )
                return
            time.sleep(_POLL_SECONDS)

    def restart(self) -> None:
        """Nothing: the user runs it."""

    def _is_known(self) -> bool:
        expected = sum(len(group["targets"]) for group in self.targets)
        try:
            targets = self.ask_targets()
        except ObservationError:  # one that only stores what others scrape has no such API
            return False
        return sum(target.labels.get(RUN_LABEL) == self.run_id for target in targets) >= expected


def check_owner(file: Path) -> None:
    """UsageError when the file exists and no run has written it: it may hold other targets."""
    try:
        groups = json.loads(file.read_text(encoding="utf-8") or "[]")
        ours = all(RUN_LABEL in group["labels"] for group in groups)
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError, TypeError, KeyError):
        ours = False
    if not ours:
        raise UsageError(f"--targets-file {file}: holds targets of another program; name a file of its own.")
