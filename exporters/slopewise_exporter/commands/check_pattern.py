"""`slopewise-exporter check-pattern FILE`: shows line by line what is found in a log, with or without patterns."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Callable, cast

from slopewise_exporter.commands.options import add_pattern_options, names_of, patterns_of
from slopewise_exporter.logs import Found, LineParser, PatternError, Tracker
from slopewise_exporter.logs.patterns import engine_name
from slopewise_exporter.tail.followed_file import BLOCK_BYTES, Block
from slopewise_exporter.tail.log_source import LogLines

SUMMARY = "show line by line what is found in a log"

_SHOWN_CHARACTERS = 100


def main(arguments: Sequence[str]) -> int:
    """0 where a training loss is found, 1 where none is, 2 for a pattern or a file that cannot be used."""
    options = _parser().parse_args(arguments)
    try:
        parser = LineParser(patterns_of(options), names_of(options), may_use_signals=True)
    except PatternError as error:
        return _refused(str(error))
    reporter = _Silent()
    shown = _Lines(parser, Tracker(cast("Any", reporter)), every=options.all)
    try:
        for block in _blocks(options.file):
            shown.feed(block)
        shown.flush()
        shown.summary(reporter.restarts)
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has enough; what Python has still to write goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        return _refused(f"cannot read {options.file}: {error.strerror}")
    return 0 if shown.fields["loss"] else 1


class _Silent:
    """Takes all that a `Reporter` would be given."""

    restarts = 0

    def begin_again(self) -> None:
        self.restarts += 1

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class _Lines(LogLines):
    """Prints each line with what is found in it."""

    def __init__(self, parser: LineParser, tracker: Tracker, *, every: bool) -> None:
        super().__init__(parser, tracker.take)
        self._tracker = tracker
        self.fields: Counter[str] = Counter()
        self._every = every
        self._number = 0

    def _lines(self, lines: list[str], at_seconds: float | None) -> None:
        for line in lines:
            self._number += 1
            found = self._parser.parse(line)
            if found is not None:
                self._take(found, at_seconds)
                self.fields.update(found.said.keys())
            if found is not None or self._every:
                _print(f"{self._number:>6}  {_values(found):<40}  {_shown(line)}")

    def summary(self, restarts: int) -> None:
        """What a training with this log would report at its end."""
        counted = ", ".join(f"{name} {count} times" for name, count in sorted(self.fields.items()))
        tracker = self._tracker
        plan = "no plan" if tracker.planned is None else f"{tracker.planned:g} planned"
        end = ", ended" if tracker.finished else ""
        again = f", began again {restarts} times" if restarts else ""
        _print(f"{self._number} lines; found: {counted or 'nothing'} (patterns by {engine_name()})")
        _print(f"a training with this log: {tracker.steps} steps, {plan}, {tracker.epochs} epochs{end}{again}")


def _values(found: Found | None) -> str:
    if found is None:
        return "-"
    return " ".join(name if value is True else f"{name}={value:g}" for name, value in found.said.items())


def _shown(line: str) -> str:
    """The beginning of a line, without characters that move the cursor."""
    plain = "".join(letter if letter.isprintable() else " " for letter in line[:_SHOWN_CHARACTERS])
    return plain + ("…" if len(line) > _SHOWN_CHARACTERS else "")


def _blocks(path: str) -> Iterator[Block]:
    descriptor = 0 if path == "-" else os.open(path, os.O_RDONLY)
    begins = True
    while data := os.read(descriptor, BLOCK_BYTES):
        yield Block(data, begins, None)
        begins = False


def _print(line: str) -> None:
    sys.stdout.write(line.encode("utf-8", "replace").decode("utf-8") + "\n")


def _refused(reason: str) -> int:
    sys.stderr.write(f"slopewise-exporter check-pattern: {reason}\n")
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slopewise-exporter check-pattern", description=SUMMARY)
    parser.add_argument("file", metavar="FILE", help="a log; - is standard input")
    parser.add_argument("--all", action="store_true", help="also the lines in which nothing is found")
    add_pattern_options(parser)
    return parser
