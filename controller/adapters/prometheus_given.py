"""A Prometheus of the user's, in the place of one of our own: a file names what it is to scrape.

`session.py` plugs it in where `--prometheus-url` was given, and `prometheus_server.py` elsewhere. The user's scrape
configuration reads the file (`file_sd_configs`). Each target in it carries the label of the run, so that jobs of the
same name on another machine, or of an earlier run, are never mistaken for ours.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from controller.adapters.prometheus_http import Target
from controller.adapters.prometheus_server import TargetGroup
from controller.errors import ObservationError, UsageError

RUN_LABEL = "slopewise_run"
"""On every target of a run, and forced on all that is asked about it."""

_KNOWN_WITHIN_SECONDS = 15.0
"""Prometheus reads a changed file at once, and takes changed targets over every 5 s."""

_LOOK_SECONDS = 0.5

Announce = Callable[[str], None]


class GivenPrometheus:
    """A context manager: the file is written on entry and removed on exit. Prometheus itself is never touched."""

    needs_restart = False
    """It is not ours to start."""

    def __init__(
        self,
        url: str,
        run_id: str,
        file: Path,
        groups: Sequence[TargetGroup],
        ask_targets: Callable[[], Sequence[Target]],
        announce: Announce,
    ) -> None:
        """`ask_targets`: what Prometheus scrapes now, or ObservationError; `groups`: what it is to scrape."""
        self.url = url
        self._run_id = run_id
        self._file = file
        self._groups = groups
        self._ask_targets = ask_targets
        self._announce = announce

    def __enter__(self) -> GivenPrometheus:
        """UsageError for a file that is somebody else's."""
        check_ours(self._file)
        labelled = [
            TargetGroup(targets=group["targets"], labels={**group["labels"], RUN_LABEL: self._run_id})
            for group in self._groups
        ]
        draft = self._file.with_name(f".{self._file.name}.new")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps(labelled, indent=1), encoding="utf-8")
            draft.chmod(0o644)  # Prometheus is another user
            draft.replace(self._file)
        except OSError as error:
            raise UsageError(
                f"--targets-file {self._file}: cannot be written ({error.strerror}); name another place."
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._file.unlink(missing_ok=True)

    def wait_for_targets(self, timeout_seconds: float = _KNOWN_WITHIN_SECONDS) -> None:
        """Wait until it scrapes the jobs; when it does not, say what it needs, and go on without losses."""
        deadline = time.monotonic() + timeout_seconds
        while not self._is_known():
            if time.monotonic() >= deadline:
                wanted = f"`file_sd_configs: [{{files: ['{self._file.absolute()}']}}]`"
                self._announce(
                    f"Prometheus at {self.url} does not scrape the jobs, as far as it says; "
                    f"let one of its scrape_configs have {wanted}."
                )
                return
            time.sleep(_LOOK_SECONDS)

    def restart(self) -> None:
        """Nothing: it is not ours."""

    def _is_known(self) -> bool:
        expected = sum(len(group["targets"]) for group in self._groups)
        try:
            targets = self._ask_targets()
        except ObservationError:  # one that only stores, and is told by others what they scrape, has no such API
            return False
        return sum(target.labels.get(RUN_LABEL) == self._run_id for target in targets) >= expected


def check_ours(file: Path) -> None:
    """UsageError when there is a file that no run of ours has written: it may hold somebody else's targets."""
    try:
        groups = json.loads(file.read_text(encoding="utf-8") or "[]")
        ours = all(RUN_LABEL in group["labels"] for group in groups)
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError, TypeError, KeyError):
        ours = False
    if not ours:
        raise UsageError(f"--targets-file {file}: holds targets that are not ours; name a file of its own.")
