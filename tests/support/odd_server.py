"""A served model whose clients are elsewhere, and which hangs or errs on purpose: `python3 -P -c TEXT MODEL ...`.

A program for the trainer's image, of which it takes the demo's models and their server's base.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from http import HTTPStatus
from itertools import count
from threading import BoundedSemaphore, Event, Lock
from time import perf_counter

from slopewise.demo.job_process import use_one_thread
from slopewise.demo.serving.catalogue import SERVED_MODELS
from slopewise.demo.serving.server import OK, Handler, ModelServer

MAX_IN_FLIGHT = 64
"""Requests that wait for their answers at once; each is a thread."""

FAILED = "failed"
PORT = int(os.environ.get("SLOPEWISE_EXPORTER_PORT", "9464"))
EXIT_ON_SIGTERM = 128 + signal.SIGTERM


class RequestFailedError(Exception):
    """The request gets no predictions; the server answers 500."""


class OddHandler(Handler):
    """Refuses requests beyond the server's bound, and counts responses that fail apart from those that succeed."""

    server: OddServer

    def predict(self, request: int) -> None:
        """A client that hangs up before its answer counts as a response that failed."""
        began, outcome = perf_counter(), FAILED
        admitted = self.server.slots.acquire(blocking=False)
        try:
            if admitted:
                with self.server.in_flight.track_inprogress():
                    self.send_predictions(request)
                outcome = OK
            else:
                self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
        except RequestFailedError:
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
        finally:
            if admitted:
                self.server.slots.release()
            self.server.durations.labels(outcome).observe(perf_counter() - began)


class OddServer(ModelServer):
    """Bounded, so that it does not fill up with threads when it is offered more than it can answer."""

    handler = OddHandler
    request_queue_size = 128

    def __init__(
        self, address: str, port: int, answer: Callable[[int], Sequence[int]], most: int = MAX_IN_FLIGHT
    ) -> None:
        self.slots = BoundedSemaphore(most)
        super().__init__(address, port, answer)
        self.durations.labels(FAILED)  # a series that begins at 0 says that nothing has failed


class Worker:
    """One worker of a model server: while it computes an answer the other requests wait.

    `hang_after`: requests that are answered before all others hang, until it closes. `fail_ratio`: of the requests,
    those that fail at once, evenly spread.
    """

    def __init__(
        self, answer: Callable[[int], Sequence[int]], hang_after: float = math.inf, fail_ratio: float = 0.0
    ) -> None:
        self._answer, self._hang_after, self._fail_ratio = answer, hang_after, fail_ratio
        self._requests, self._turn, self._closing = count(1), Lock(), Event()

    def answer(self, request: int) -> Sequence[int]:
        """The predictions; RequestFailedError."""
        number = next(self._requests)
        if number > self._hang_after:
            self._closing.wait()
        if math.floor(number * self._fail_ratio) > math.floor((number - 1) * self._fail_ratio):
            raise RequestFailedError
        with self._turn:
            if self._closing.is_set():
                raise RequestFailedError
            return self._answer(request)

    def close(self) -> None:
        """Requests that still wait fail, so that the server can be closed."""
        self._closing.set()


def main() -> None:
    """Serve for as long as the pod lives; a Job that is moved must not end well."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_ON_SIGTERM))
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=SERVED_MODELS)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--max-in-flight", type=int, default=MAX_IN_FLIGHT)
    parser.add_argument("--hang-after", type=float, default=math.inf)
    parser.add_argument("--fail-ratio", type=float, default=0.0)
    options = parser.parse_args()
    use_one_thread()
    model = SERVED_MODELS[options.model]
    model = replace(model, rows_per_request=options.rows or model.rows_per_request)
    worker = Worker(model.load().answer, options.hang_after, options.fail_ratio)
    with OddServer("0.0.0.0", PORT, worker.answer, options.max_in_flight) as server:
        print(server.url, flush=True)
        try:
            while True:
                time.sleep(3600)
        finally:
            worker.close()


if __name__ == "__main__":
    main()
