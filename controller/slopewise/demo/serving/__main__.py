"""`python -m slopewise.demo.serving NAME [--seconds S]`: one served model under load, as a process of its own.

With `--without-load` its clients are elsewhere, such as in another pod.

SLOPEWISE_EXPORTER_PORT and SLOPEWISE_EXPORTER_ADDRESS say where it serves, as they do for a training. Exit code 0
when its time is over, 143 at SIGTERM (0 would say that its Job is complete, and a Job that is moved would end), 2 for a
wrong argument, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import monotonic, sleep

from slopewise.demo.job_process import Parser, exit_code_of, number_above_0, use_one_thread, whole_number
from slopewise.demo.serving.catalogue import SERVED_MODELS, SERVING_SECONDS, ServedModel, find_model
from slopewise.demo.serving.load import load_command
from slopewise.demo.serving.server import MAX_IN_FLIGHT, ModelServer
from slopewise.demo.serving.worker import Worker
from slopewise.demo.trainings.catalogue import require_scikit_learn
from slopewise.errors import SlopewiseError
from slopewise_exporter.environment import DEFAULT_PORT, EndpointSettings, endpoint_settings
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
    _serve(model, where, options, end_at)


def _serve(model: ServedModel, where: EndpointSettings, options: argparse.Namespace, end_at: float) -> None:
    """Fit the model, then listen, so that every client that connects gets an answer."""
    rows = options.rows or model.rows_per_request
    worker = Worker(replace(model, rows_per_request=rows).load().answer, options.hang_after, options.fail_ratio)
    # The worker ends first: the server waits for the answers under way.
    with ModelServer(where.address, where.port, worker.answer, options.max_in_flight) as server, worker:
        print(f"{model.name} serves at {server.url}", flush=True)
        if options.without_load:
            sleep(max(0.0, end_at - monotonic()))
            return
        with _load(server.url) as client:
            _wait(client, end_at)


@contextmanager
def _load(url: str) -> Iterator[subprocess.Popen[bytes]]:
    client = subprocess.Popen(load_command(url))
    try:
        yield client
    finally:
        client.terminate()
        client.wait()


def _wait(client: subprocess.Popen[bytes], end_at: float) -> None:
    """Until the time is over; SlopewiseError when the load has gone, since an idle server measures nothing."""
    try:
        status = client.wait(timeout=max(0.0, end_at - monotonic()))
    except subprocess.TimeoutExpired:
        return
    if status != -signal.SIGTERM:  # of a signal to the whole group, the server's own comes a moment later
        raise SlopewiseError(f"the load has ended with status {status} before its time; see what stands above.")


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
    parser.add_argument("--rows", type=whole_number(1), metavar="N", help="images a request; default: the model's")
    parser.add_argument("--without-load", action="store_true", help="start no client")
    parser.add_argument(
        "--max-in-flight",
        type=whole_number(1),
        default=MAX_IN_FLIGHT,
        metavar="N",
        help="refuse more; default: %(default)d",
    )
    parser.add_argument("--hang-after", type=whole_number(1), metavar="N", help="answer none after so many requests")
    parser.add_argument("--fail-ratio", type=_ratio, default=0.0, metavar="R", help="of the requests, answer with 500")
    return parser


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = math.nan
    if not 0 <= ratio <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return ratio


if __name__ == "__main__":
    sys.exit(main())
