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
from time import monotonic

from slopewise.demo.job_process import exit_code_of, use_one_thread
from slopewise.demo.serving.catalogue import SERVED_MODELS, SERVING_SECONDS
from slopewise.demo.serving.server import ModelServer, keep_busy
from slopewise_exporter.environment import DEFAULT_PORT, endpoint_settings
from slopewise_exporter.values import Checker

EXIT_ON_SIGTERM = 128 + signal.SIGTERM


def main() -> None:
    """Serve one model for its time."""
    began_at = monotonic()
    parser = argparse.ArgumentParser(prog="python -m slopewise.demo.serving")
    parser.add_argument("name", choices=SERVED_MODELS)
    parser.add_argument("--seconds", type=float, default=SERVING_SECONDS, help="default: %(default)g")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_ON_SIGTERM))
    use_one_thread()
    where = endpoint_settings(os.environ, Checker(), port=DEFAULT_PORT, address="127.0.0.1", linger_seconds=0.0)
    # The model is fitted before the port listens, so that every client that connects gets an answer.
    with ModelServer(where.address, where.port, SERVED_MODELS[options.name].load().answer) as server:
        print(f"{options.name} serves at {server.url}", flush=True)
        keep_busy(server.url, began_at + options.seconds)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
