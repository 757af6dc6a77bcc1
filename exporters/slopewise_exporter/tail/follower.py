"""The loop of `slopewise-exporter tail`: hands what a source has to the tracker, keeps the state, and finds the end.

The training has finished when its output says so (a framework's last line, the pattern of `--finished`, the status of a
run), when standard input ends, when the process of `--pid` has gone, after `--idle-seconds` without output, or when all
planned steps are done and nothing was written for a minute. It has failed where a traceback is the last that was
written. The endpoint goes on serving that until SIGTERM, because Kubernetes starts a sidecar again that ends by itself.
On SIGTERM, what is known is served for one more scrape; a training of which no end is known has no end then either: its
pod may be on its way to another node.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from types import FrameType
from typing import TYPE_CHECKING, Any

from slopewise_exporter.environment import write_file
from slopewise_exporter.logs import Tracker
from slopewise_exporter.reporter import Reporter
from slopewise_exporter.tail.source import Source
from slopewise_exporter.values import Checker

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

_STATE_VERSION = 2

POLL_SECONDS = 0.5
KEEP_SECONDS = 5.0
"""Between two writes of the state."""

QUIET_AFTER_PLAN_SECONDS = 60.0
"""Longer than the last evaluation of a small training, and than two scrapes."""

DRAIN_SECONDS = 5.0
"""For what was written before SIGTERM; the rest of the 30 s that Kubernetes gives is for the last scrape."""


@dataclass(frozen=True)
class End:
    """When the training counts as ended, beyond what its output says."""

    idle_seconds: float | None = None
    pid: int | None = None
    leave_when_ended: bool = False
    """Whether this process ends with the training; a sidecar does not."""


class StateFile:
    """The small file from which a restarted reader goes on: where it was in the source, and what the counters were.

    It is written in one atomic move. What cannot be read or written is logged once, and the log is read from its start.
    """

    def __init__(self, path: Path | None, source: str, check: Checker) -> None:
        """`source`: what is followed; the state of another source is not used."""
        self._path = path
        self._source = source
        self._check = check
        self._written = ""

    def read(self) -> dict[str, Any] | None:
        """What was written last; None: nothing of use."""
        if self._path is None:
            return None
        try:
            state = json.loads(self._path.read_text(encoding="utf-8"))
            if state["version"] == _STATE_VERSION and state["source"] == self._source:
                return dict(state)
            problem = "it is of another source or version"
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = str(error) or type(error).__name__
        self._check.warn("state", f"the state in {self._path} is not used ({problem}); everything is read again")
        return None

    def write(self, state: dict[str, Any]) -> None:
        """Keep this, if it has changed."""
        text = json.dumps({"version": _STATE_VERSION, "source": self._source, **state})
        if text != self._written:
            write_file(self._path, text, "the state", self._check)
            self._written = text


class FollowedTraining(Reporter):
    """A training that runs in another process, and is known from what it writes.

    It serves `training_*` as any reporter does. Of `process_*` there is only the start of the training.

    The CPU and the memory of this process are not the training's. `process_start_time_seconds` is what distinguishes a
    restart from a loss that jumped: it changes when the training begins again, and stays when this process does.
    """

    def __init__(self, *, started_at_seconds: float | None = None, **arguments: Any) -> None:
        self.started_at_seconds = time() if started_at_seconds is None else started_at_seconds
        super().__init__(**arguments)

    def begin_again(self) -> None:
        """The training began again, in a new process."""
        self.started_at_seconds = time()
        super().begin_again()

    def _process_metrics(self) -> Collector | None:
        return _start_of(self)


def _start_of(training: FollowedTraining) -> Collector:
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector as Base

    class Start(Base):
        def collect(self) -> Iterable[Metric]:
            help_text = "Start time of the training's process, as far as its log shows it, since unix epoch in seconds."
            yield GaugeMetricFamily("process_start_time_seconds", help_text, value=training.started_at_seconds)

    return Start()


class Follower:
    """Runs until it is asked to end."""

    def __init__(
        self, source: Source, training: FollowedTraining, tracker: Tracker, state: StateFile, end: End = End()
    ) -> None:
        self._source = source
        self._training = training
        self._tracker = tracker
        self._state = state
        self._end = end
        self._asked = False
        self._last_seen = monotonic()
        self._kept_at = monotonic()

    def run(self) -> int:
        """Follow; the exit code is 0."""
        self._listen()
        while not self._asked:
            if self._source.poll():
                self._last_seen = monotonic()
            elif self._look_for_end() and self._end.leave_when_ended:
                break
            else:
                self._source.wait(POLL_SECONDS)
            if monotonic() - self._kept_at > KEEP_SECONDS:
                self._keep()
        self._leave()
        return 0

    def ask(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """End soon; a signal handler."""
        self._asked = True

    def _listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(ValueError):  # not the main thread
                signal.signal(number, self.ask)

    def _look_for_end(self) -> bool:
        """Whether the training has ended, now that there is nothing more to read."""
        if not self._tracker.finished and self._has_ended():
            self._source.poll()
            self._tracker.finish(failed=self._source.failed)
        return self._tracker.finished

    def _has_ended(self) -> bool:
        if self._source.ended:
            return True
        if self._end.pid is not None and not _runs(self._end.pid):
            return not self._source.poll()
        quiet = monotonic() - self._last_seen
        if self._end.idle_seconds is not None and quiet >= self._end.idle_seconds:
            return True
        return self._tracker.plan_is_reached and quiet >= QUIET_AFTER_PLAN_SECONDS

    def _keep(self) -> None:
        self._kept_at = monotonic()
        self._state.write(
            {
                "position": self._source.position,
                "tracker": self._tracker.kept,
                "started_at_seconds": self._training.started_at_seconds,
                "at_seconds": time() - (monotonic() - self._last_seen),
            }
        )

    def _leave(self) -> None:
        give_up_at = monotonic() + DRAIN_SECONDS
        while monotonic() < give_up_at and self._source.poll():
            pass
        self._keep()
        self._source.close()
        finished = self._tracker.finished or self._tracker.plan_is_reached
        if self._source.failed:
            self._training.end(failed=True)
        elif finished:
            self._training.end(failed=False)
        else:
            self._training.leave(linger=True)


def resume(state: dict[str, Any] | None, source: Source, tracker: Tracker, state_name: str) -> str | None:
    """Bring both to where they were. A sentence where that is not possible."""
    if state is None:
        return None
    try:
        source.resume(state["position"])
        tracker.restore(state["tracker"], float(state["at_seconds"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"the state in {state_name} is not used ({type(error).__name__}: {error})"
    return None


def _runs(pid: int) -> bool:
    """Whether there is such a process; one that has ended and waits for its parent is none."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return not status.rpartition(")")[2].lstrip().startswith("Z")
