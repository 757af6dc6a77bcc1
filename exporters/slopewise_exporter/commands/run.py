"""`slopewise-exporter run -- COMMAND`: starts a training and reports for it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from slopewise_exporter.logs import LineParser, PatternError

SUMMARY = "start a training and report for it"

_CANNOT_EXECUTE, _NOT_FOUND = 126, 127
"""As a shell has them."""


def main(arguments: Sequence[str]) -> int:
    """Become the command, or its parent; returns only where it cannot be started."""
    options = _parser().parse_args(arguments)
    command: list[str] = options.command
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        return _refused("run: no command; write it after --, as in slopewise-exporter run -- python train.py", 2)
    try:
        LineParser(options.pattern)
    except PatternError as error:
        return _refused(f"run: {error}", 2)
    try:
        _start(command, options)
    except FileNotFoundError:
        return _refused(f"run: {command[0]}: there is no such command", _NOT_FOUND)
    except OSError as error:
        return _refused(f"run: {command[0]}: {error.strerror}", _CANNOT_EXECUTE)
    return 0


def _start(command: list[str], options: argparse.Namespace) -> None:
    try:
        from slopewise_exporter.commands.options import patterns_of
        from slopewise_exporter.instrument.launch import start
    except Exception as error:  # an incomplete installation: the training is worth more than its metrics
        sys.stderr.write(f"slopewise-exporter run: nothing is reported ({type(error).__name__}: {error})\n")
        os.execvp(command[0], command)  # noqa: S606 - the command as it is, without a shell
    start(command, patterns_of(options), wrap=options.wrap)


def _refused(message: str, code: int) -> int:
    sys.stderr.write(f"slopewise-exporter {message}\n")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slopewise-exporter run",
        description="Starts a command and reports its loss and progress: by callbacks of the frameworks that it "
        "imports, else from what it prints. Settings of the endpoint are environment variables, such as "
        "SLOPEWISE_EXPORTER_PORT.",
    )
    parser.add_argument(
        "--pattern",
        action="append",
        default=[],
        metavar="REGEX",
        help="finds the loss in the output, where it stands there in no common form; may be repeated",
    )
    parser.add_argument(
        "--wrap",
        action="store_true",
        help="follow, as its parent, also what libraries in C and other programs of a Python command write",
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command, and its arguments"
    )
    return parser
