"""Renders the log of a local run as short lines: one a change, one an event, one a job and minute.

It is used where neither a terminal shows the live table nor `--json-logs` is set.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO, cast

import structlog

from slopewise.reports.wording import of_bound, plain
from slopewise.telemetry.log_lines import configure_logging
from slopewise.text import bounded

MAX_LINE = 300
"""Characters; a policy's reason has about 120."""

_DETAILS = ("status", "node", "by")
_NOT_SHOWN = frozenset({"cpu is given by"})
"""The command prints it itself."""

_ONLY_NODE = "local"


class CurrentStderr:
    """stderr at the moment of each write, because rich replaces it beside a live table."""

    def write(self, text: str) -> int:
        """Write to the present stderr."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Flush the present stderr."""
        sys.stderr.flush()


def configure_short_lines(*, namespace: str, stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Log short lines; jobs of `namespace` are named without it."""
    here = cast(TextIO, CurrentStderr())  # all that structlog uses of it
    configure_logging(stream=stream or here, renderer=_ShortLines(namespace), level=level)


class _ShortLines:
    """A structlog renderer."""

    def __init__(self, namespace: str) -> None:
        self._prefix = f"{namespace}/"

    def __call__(self, _logger: object, _method: str, event: Mapping[str, Any]) -> str:
        """One line, or one for each change of a pass; DropEvent where there is none."""
        texts = self._texts(dict(event))
        if not texts:
            raise structlog.DropEvent
        stamp = f"{event['timestamp'][:19]}Z"
        return "\n".join(f"{stamp} {bounded(plain(text), MAX_LINE)}" for text in texts)

    def _texts(self, event: dict[str, Any]) -> Sequence[str]:
        what = event["event"]
        if what in _NOT_SHOWN:
            return []
        if what == "pass completed":
            return [str(each).removeprefix(self._prefix) for each in (*event["changes"], *event["moves"])]
        if what == "job progress":
            return [_progress(event)]
        mark = "" if event["level"] == "info" else f"{event['level']}: "
        return [f"{mark}{self._message(what, event)}{_trace(event)}"]

    def _message(self, what: str, event: dict[str, Any]) -> str:
        job = event.get("job") or (event.get("name") if what.startswith("job") else None)
        subject = f"{str(job).removeprefix(self._prefix)}: " if job else ""
        reason = event.get("warning") or event.get("reason") or _last_line(event.get("last_output_lines"))
        details = [f"{key} {event[key]}" for key in _DETAILS if event.get(key) not in (None, _ONLY_NODE)]
        event_text = ", ".join([*([] if what == "job warning raised" else [what]), *details])
        return f"{subject}{event_text}{': ' if event_text and reason else ''}{reason}"


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
    """The last line of a job's output."""
    lines = str(text or "").strip().splitlines()
    return lines[-1] if lines else ""


def _trace(event: Mapping[str, Any]) -> str:
    """The traceback of a bug in the controller, on one line."""
    trace = event.get("exception")
    return f": {_last_line(trace)} ({' | '.join(str(trace).splitlines()[-7:-1])})" if trace else ""
