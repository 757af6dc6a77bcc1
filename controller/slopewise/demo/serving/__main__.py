"""`python -m slopewise.demo.serving NAME [--seconds S]`: one served model under load, as a process of its own.

SLOPEWISE_EXPORTER_PORT and SLOPEWISE_EXPORTER_ADDRESS say where it serves, as they do for a training. Exit code 0
when its time is over, 143 at SIGTERM (0 would say that its Job is complete, and a Job that is moved would end), 2 for a
wrong argument, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic

from slopewise.demo.job_process import Parser, exit_code_of, number_above_0, use_one_thread
from slopewise.demo.serving.catalogue import SERVED_MODELS, SERVING_SECONDS, ServedModel, find_model
from slopewise.demo.serving.load import load_command
from slopewise.demo.serving.server import ModelServer
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
    _serve(model, where, end_at)


def _serve(model: ServedModel, where: EndpointSettings, end_at: float) -> None:
    """Fit the model, then listen, so that every client that connects gets an answer."""
    with ModelServer(where.address, where.port, model.load().answer) as server:
        print(f"{model.name} serves at {server.url}", flush=True)
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
    return parser


if __name__ == "__main__":
    sys.exit(main())
