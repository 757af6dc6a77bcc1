"""`slopewise-exporter tail FILE|-|FOLDER`: follows what a training writes and serves it as metrics."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from slopewise_exporter.commands.options import add_pattern_options, names_of, patterns_of
from slopewise_exporter.environment import DEFAULT_LINGER_SECONDS, DEFAULT_PORT, reports_here
from slopewise_exporter.instrument.channels import write_all
from slopewise_exporter.logs import LineParser, PatternError, Tracker
from slopewise_exporter.logs.patterns import compiled
from slopewise_exporter.tail.follower import End, FollowedTraining, Follower, StateFile, resume
from slopewise_exporter.tail.opening import FORMATS, Opening
from slopewise_exporter.tail.source import SourceError
from slopewise_exporter.values import Checker

SUMMARY = "follow a training's log or run folder and report for it"


def main(arguments: Sequence[str]) -> int:
    """Follow until SIGTERM; 1 where nothing can be served, 2 for options that cannot be used."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="slopewise-exporter: %(message)s")
    check = Checker()
    # What reads them must not end before the training does, which would wait for a reader, or for room.
    is_pipe = options.source == "-" or Path(options.source).is_fifo()
    try:
        parser = LineParser(patterns_of(options), names_of(options), may_use_signals=True)
        finished = compiled(options.finished) if options.finished else None
    except PatternError as error:
        return _refused(str(error))
    if not reports_here(os.environ, check):
        check.warn("rank", "this process does not report (another rank, or switched off); it waits for SIGTERM")
        return _wait_without_reports(options.source, is_pipe=is_pipe)
    state = StateFile(Path(options.state) if options.state else None, options.source, check)
    kept = state.read()
    training = FollowedTraining(
        started_at_seconds=kept.get("started_at_seconds") if kept else None,
        port=options.port,
        address=options.address,
        objective=options.objective,
        framework=options.framework,
        model=options.model,
        linger_seconds=options.linger_seconds,
    )
    if training.port is None and not is_pipe:
        return 1
    tracker = Tracker(training, planned_steps=options.planned_steps)
    last_bytes = None if options.last_mb is None else int(options.last_mb * 1e6)
    opening = Opening(parser, tracker.take, check, finished, options.echo, last_bytes, options.format)
    try:
        source = opening.open(options.source)
        problem = resume(kept, source, tracker, options.state)
        if problem is not None:
            check.warn("state", problem)
        check.inform(f"follows {source.where}")
        end = End(options.idle_seconds, options.pid, options.until_finished or options.source == "-")
        return Follower(source, training, tracker, state, end).run()
    except SourceError as error:  # also later, of what comes into a folder
        training.leave()
        return _refused(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slopewise-exporter tail", description=SUMMARY)
    parser.add_argument("source", metavar="FILE|-|FOLDER", help="a log, a CSV file, event files, or a folder with runs")
    parser.add_argument("--format", choices=FORMATS, default="auto", help="what it is, where its name does not show it")
    add_pattern_options(parser)
    parser.add_argument(
        "--objective", choices=("min", "max"), default="min", help="whether a lower evaluation is better"
    )
    parser.add_argument("--planned-steps", type=float, metavar="N", help="instead of a plan that is found")
    parser.add_argument("--framework", default="", help="label of training_info")
    parser.add_argument("--model", default="", help="label of training_info")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help=f"{DEFAULT_PORT} without it; 0: any that is free"
    )
    parser.add_argument("--address", default="0.0.0.0", help="where to listen")  # noqa: S104 - scraped from outside
    parser.add_argument("--linger-seconds", type=float, default=DEFAULT_LINGER_SECONDS, help="for a last scrape")
    parser.add_argument("--state", metavar="FILE", help="where a restarted sidecar finds how far it was")
    parser.add_argument("--last-mb", type=float, metavar="N", help="of a log that is there already, only its last N MB")
    parser.add_argument("--echo", action=argparse.BooleanOptionalAction, help="pass the log on to standard output")
    parser.add_argument("--finished", metavar="PATTERN", help="a line that it matches ends the training")
    parser.add_argument("--idle-seconds", type=float, metavar="N", help="so long without output ends the training")
    parser.add_argument("--pid", type=int, metavar="N", help="the end of this process ends the training")
    parser.add_argument("--until-finished", action="store_true", help="end with the training")
    return parser


def _refused(reason: str) -> int:
    sys.stderr.write(f"slopewise-exporter tail: {reason}\n")
    return 2


def _wait_without_reports(source: str, *, is_pipe: bool) -> int:
    """Pipes are read, and standard input is passed on: a training whose pipe is full stands still."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if is_pipe:
        descriptor = 0 if source == "-" else os.open(source, os.O_RDONLY)
        while data := os.read(descriptor, 65_536):
            if source == "-":
                write_all(1, data)
        return 0
    while True:
        signal.pause()
