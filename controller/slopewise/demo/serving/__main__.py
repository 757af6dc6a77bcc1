"""`python -m slopewise.demo.serving NAME [--seconds S]`: one served model under load, as a process of its own.

SLOPEWISE_EXPORTER_PORT and SLOPEWISE_EXPORTER_ADDRESS say where it serves, as they do for a training. Exit code 0
when its time is over, 143 at SIGTERM (0 would say that its Job is complete, and a Job that is moved would end), 2 for a
wrong argument, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from functools import partial
from time import monotonic

from slopewise.demo.job_process import Parser, exit_code_of, number_above_0, use_one_thread
from slopewise.demo.serving.catalogue import SERVED_MODELS, SERVING_SECONDS, find_model
from slopewise.demo.serving.server import ModelServer, keep_busy
from slopewise.demo.trainings.catalogue import require_scikit_learn
from slopewise_exporter.environment import DEFAULT_PORT, endpoint_settings
from slopewise_exporter.values import Checker

EXIT_ON_SIGTERM = 128 + signal.SIGTERM
_LOOPBACK = "127.0.0.1"


def main(arguments: list[str] | None = None) -> int:
    """Serve one model for its time; the process's exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_ON_SIGTERM))
    return exit_code_of(partial(_run, arguments))


def _run(arguments: list[str] | None) -> None:
    end_at = monotonic()
    options = _parser().parse_args(arguments)
    end_at += options.seconds
    model = find_model(options.name)
    require_scikit_learn("the served models")
    use_one_thread()
    where = endpoint_settings(os.environ, Checker(), port=DEFAULT_PORT, address=_LOOPBACK, linger_seconds=0.0)
    # The model is fitted before the port listens, so that every client that connects gets an answer.
    with ModelServer(where.address, where.port, model.load().answer) as server:
        print(f"{model.name} serves at {server.url}", flush=True)
        keep_busy(server.url, end_at)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m slopewise.demo.serving",
        description="One of the served models of `slopewise demo --policy dqoes`, and its load.",
        epilog="\n".join(f"{model.name:20} {model.summary}" for model in SERVED_MODELS.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help="one of those below")
    parser.add_argument(
        "--seconds", type=number_above_0, default=SERVING_SECONDS, metavar="S", help="default: %(default)g"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
