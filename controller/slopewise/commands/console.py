"""Prints the output of the commands: data to stdout, messages and progress to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, RenderableType

from slopewise.telemetry import log_lines
from slopewise.text import escaped_json, printable

if TYPE_CHECKING:
    from slopewise.commands.options import OutputFormat, RowsFormat
    from slopewise.reports.ranking import Ranking

out = Console()
err = Console(stderr=True)

JSON_LOGS = "--json-logs"


def announce(message: str) -> None:
    """Print one line on stderr; foreign text is not interpreted as markup."""
    with suppress(OSError, ValueError):  # a terminal that was closed is no reason to stop
        if wants_json():
            log_lines.announce(message)
        else:
            err.print(printable(message), markup=False, highlight=False, soft_wrap=True)


def announce_failure(message: str, exit_code: int) -> None:
    """Print on stderr why the command failed."""
    if wants_json():
        log_lines.announce_failure(message, exit_code)
    else:
        announce(f"slopewise: {message}")


def wants_json() -> bool:
    """True with `--json-logs`; reads `sys.argv`, because the options may be what cannot be parsed.

    What is after `--` is the command of a job.
    """
    return JSON_LOGS in takewhile("--".__ne__, sys.argv[1:])


def print_line(text: str) -> None:
    """Print one line to stdout, also where it is longer than the terminal; foreign text is not markup."""
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def print_json(data: Any) -> None:
    """One JSON object to stdout; NaN is not JSON and raises ValueError. What would drive a terminal is escaped."""
    typer.echo(escaped_json(json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False)))


def print_result(data: Any, text: RenderableType, output: OutputFormat) -> None:
    """One JSON object, or the text or table for people."""
    if output == "json":
        print_json(data)
    elif isinstance(text, str):
        print_line(text)
    else:
        out.print(text)


def print_rankings(rankings: Sequence[Ranking], output: RowsFormat) -> None:
    """Studies as tables with their figures below, as one JSON object, or as a line of CSV for each trial."""
    from slopewise.reports.columns import csv_text, fitting, table_of
    from slopewise.reports.wording import plain

    if output == "json":
        print_json({"studies": [each.as_json() for each in rankings]})
    elif output == "csv":
        rows = [row for each in rankings for row in each.rows()]
        typer.echo(csv_text(rows, list(rows[0])), nl=False)
    else:
        for each in rankings:
            print_unpadded(table_of(fitting(each.columns(), each.order(), out.width), each.shown_rows()))
            print_line("\n".join(map(plain, each.sentences())))


def print_unpadded(renderable: RenderableType) -> None:
    """Print a table; without a terminal its lines end with their text, and not with spaces up to its width."""
    if out.is_terminal:
        out.print(renderable)
        return
    with out.capture() as captured:
        out.print(renderable)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))
