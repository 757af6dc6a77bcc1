"""Configures the log: readable lines on stderr, or with `--json-logs` one JSON object a line.

The JSON lines include the messages of commands, warnings and logs of libraries, and uncaught exceptions.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from types import TracebackType
from typing import TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from slopewise.text import printable


def configure_logging(
    *,
    stream: TextIO | None = None,
    as_json: bool = False,
    level: int = logging.INFO,
    renderer: structlog.typing.Processor | None = None,
) -> None:
    """Log to stderr (data goes to stdout): readable lines, or one JSON object a line for log collectors.

    `renderer`: makes other lines of the events.
    """
    if renderer is None:
        renderer = structlog.processors.JSONRenderer() if as_json else _readable_lines
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(stream or sys.stderr),
    )
    # Its warnings about missed runs repeat `pass skipped`.
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)


def _readable_lines(logger: WrappedLogger, method: str, event: EventDict) -> str:
    """A line for people; names and messages of others drive no terminal."""
    return printable(_LINES(logger, method, event))


_LINES = structlog.dev.ConsoleRenderer(colors=False)


def only_json_lines() -> None:
    """Switch to JSON lines for the rest of the process."""
    configure_logging(as_json=True)
    logging.basicConfig(level=logging.WARNING, handlers=[_ToOurLog()], force=True)
    logging.captureWarnings(capture=True)
    warnings.simplefilter("default")
    sys.excepthook = _on_exception
    threading.excepthook = _on_thread_exception


def announce(message: str) -> None:
    """Log a message to the user."""
    structlog.get_logger("slopewise").info("notice given", message=message)


def announce_failure(message: str, exit_code: int) -> None:
    """Log why the command fails."""
    structlog.get_logger("slopewise").error("command failed", message=message, exit_code=exit_code)


class _ToOurLog(logging.Handler):
    """Passes the logs of libraries to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger("slopewise").log(
            record.levelno, "library logged", logger=record.name, message=record.getMessage(), exc_info=record.exc_info
        )


def _on_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    structlog.get_logger("slopewise").critical("exception not caught", exc_info=(kind, error, trace))


def _on_thread_exception(caught: threading.ExceptHookArgs) -> None:
    if caught.exc_value is not None:
        _on_exception(caught.exc_type, caught.exc_value, caught.exc_traceback)
