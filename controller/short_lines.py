"""The log of a run on this machine as short lines for people: one a change, one an event, one a job and minute.

`telemetry.py`, the supervisor and `progress_log.py` log the same events as ever; this is how they are written where
neither a terminal shows the live table nor `--json-logs` asks for something to be parsed.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO, cast

import structlog

from controller.demo.wording import of_bound, plain
from controller.log_lines import configure_logging
from controller.texts import bounded

LONGEST_LINE = 300
"""Characters; a policy's reason has about 120."""

_DETAILS = ("status", "node", "by")
_NOT_TOLD = frozenset({"cpu is given by"})
"""What the command says by itself."""

_ONLY_NODE = "local"


class CurrentStderr:
    """stderr as it is when something is written: beside a live table rich has put itself in its place."""

    def write(self, text: str) -> int:
        """Write it where stderr is now."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Flush what stderr is now."""
        sys.stderr.flush()


def configure_short_lines(*, namespace: str, stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Log short lines; jobs of `namespace` are named without it."""
    here = cast(TextIO, CurrentStderr())  # all that structlog asks of it
    configure_logging(stream=stream or here, renderer=_ShortLines(namespace), level=level)


class _ShortLines:
    """A structlog renderer."""

    def __init__(self, namespace: str) -> None:
        self._prefix = f"{namespace}/"

    def __call__(self, _logger: object, _method: str, event: Mapping[str, Any]) -> str:
        """One line, or one for each change of a pass; DropEvent where there is nothing to say."""
        texts = self._texts(dict(event))
        if not texts:
            raise structlog.DropEvent
        stamp = f"{event['timestamp'][:19]}Z"
        return "\n".join(f"{stamp} {bounded(plain(text), LONGEST_LINE)}" for text in texts)

    def _texts(self, event: dict[str, Any]) -> Sequence[str]:
        what = event["event"]
        if what in _NOT_TOLD:
            return []
        if what == "pass":
            return [str(each).removeprefix(self._prefix) for each in (*event["changes"], *event["moves"])]
        if what == "job progress":
            return [_progress(event)]
        mark = "" if event["level"] == "info" else f"{event['level']}: "
        return [f"{mark}{self._sentence(what, event)}{_trace(event)}"]

    def _sentence(self, what: str, event: dict[str, Any]) -> str:
        job = event.get("job") or (event.get("name") if what.startswith("job") else None)
        subject = f"{str(job).removeprefix(self._prefix)}: " if job else ""
        why = event.get("warning") or event.get("reason") or _last_line(event.get("last_words"))
        details = [f"{key} {event[key]}" for key in _DETAILS if event.get(key) not in (None, _ONLY_NODE)]
        said = ", ".join([*([] if what == "job" else [what]), *details])
        return f"{subject}{said}{': ' if said and why else ''}{why}"


def _progress(event: Mapping[str, Any]) -> str:
    parts = [event["state"]]
    parts += [f"{event['progress']:.0%}".replace("%", " %")] if event.get("progress") is not None else []
    parts += [f"loss {event['loss']:.3g}"] if event.get("loss") is not None else []
    if (objective := event.get("objective_seconds")) is not None:
        parts.append(of_bound(event.get("seconds"), objective))
    parts.append(_cores(event.get("cores_used"), event.get("cores_allotted")))
    parts += [str(event[key]) for key in ("job_class", "meaning", "note") if event.get(key)]
    return f"{event['name']}: {', '.join(part for part in parts if part)}"


def _cores(used: float | None, allotted: float | None) -> str:
    if allotted is None:
        return ""
    return f"has {allotted:.2f} cores" if used is None else f"used {used:.2f} of {allotted:.2f} cores"


def _last_line(text: object) -> str:
    """Of what a job wrote before it failed only the end is telling."""
    lines = str(text or "").strip().splitlines()
    return lines[-1] if lines else ""


def _trace(event: Mapping[str, Any]) -> str:
    """A mistake of ours is told with all that is known of it, on one line."""
    trace = event.get("exception")
    return f": {_last_line(trace)} ({' | '.join(str(trace).splitlines()[-7:-1])})" if trace else ""
