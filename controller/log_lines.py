"""The log: readable lines on stderr, or with `--json-logs` one JSON object a line, whoever writes it.

Beside our own log these are the sentences that a command tells its user, warnings and logs of libraries, and what
Python prints of an exception that was not caught. `cli.py` switches that on before anything else is imported.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from types import TracebackType
from typing import TextIO

import structlog


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
        renderer = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=False)
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
    # Libraries log a retry or a missed run as warnings of their own; what matters of it is in our line.
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)


def only_json_lines() -> None:
    """From now on; for the rest of the process."""
    configure_logging(as_json=True)
    logging.basicConfig(level=logging.WARNING, handlers=[_ToOurLog()], force=True)
    logging.captureWarnings(capture=True)
    warnings.simplefilter("default")
    sys.excepthook = _on_exception
    threading.excepthook = _on_thread_exception


def announce(message: str) -> None:
    """One sentence to the user."""
    structlog.get_logger("slopewise").info("notice", message=message)


def announce_failure(message: str, exit_code: int) -> None:
    """Why the command ends, in the sentence that a person would read."""
    structlog.get_logger("slopewise").error("failed", message=message, exit_code=exit_code)


class _ToOurLog(logging.Handler):
    """What libraries log."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger("slopewise").log(
            record.levelno, "library", logger=record.name, message=record.getMessage(), exc_info=record.exc_info
        )


def _on_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    structlog.get_logger("slopewise").critical("uncaught exception", exc_info=(kind, error, trace))


def _on_thread_exception(told: threading.ExceptHookArgs) -> None:
    if told.exc_value is not None:
        _on_exception(told.exc_type, told.exc_value, told.exc_traceback)
