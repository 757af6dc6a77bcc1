"""A client that sends requests at a fixed rate, whether or not the former ones were answered: open-loop load.

`python -m slopewise.demo.serving.open_loop URL --rate R` is a process of its own, outside of the server's CPU limit.
Requests wait in the server as soon as it is offered more than it can answer, as they do with clients that do not know
of each other. `load.py` is the other kind: its next request waits for the last answer, so that nothing piles up.
"""

from __future__ import annotations

import argparse
import math
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from time import monotonic, sleep
from urllib.parse import urlsplit

from slopewise.demo.job_process import Parser, exit_code_of, number_above_0
from slopewise.errors import SlopewiseError

MAX_IN_FLIGHT = 200
"""Requests that wait at once; each is a thread. Those beyond are not sent, and counted as such."""

START_SECONDS = 60.0
"""How long the server may take to fit its model and to listen."""

REPORT_SECONDS = 10.0
_POLL_SECONDS = 0.2


@dataclass
class Sent:
    """The outcomes of the requests since the last line."""

    outcomes: Counter[str] = field(default_factory=Counter)
    """`ok`, `failed` (another status than 200, or hung up), `timed out`, `not sent`."""
    ok_seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, outcome: str, seconds: float = 0.0) -> None:
        """One request has ended."""
        with self._lock:
            self.outcomes[outcome] += 1
            self.ok_seconds += seconds if outcome == "ok" else 0.0

    def line(self) -> str:
        """E.g. `38 ok in 0.213 s each, 2 failed`; the counts begin again."""
        with self._lock:
            outcomes, seconds = dict(self.outcomes), self.ok_seconds
            self.outcomes.clear()
            self.ok_seconds = 0.0
        answered = outcomes.pop("ok", 0)
        mean = f" in {seconds / answered:.3g} s each" if answered else ""
        return ", ".join([f"{answered} ok{mean}", *(f"{number} {what}" for what, number in sorted(outcomes.items()))])


class OpenLoop:
    """Sends to one server. `timeout_seconds`: how long a request waits for its answer."""

    def __init__(self, url: str, rate_per_second: float, timeout_seconds: float) -> None:
        self._netloc = urlsplit(url).netloc
        self._period_seconds = 1 / rate_per_second
        self._timeout_seconds = timeout_seconds
        self._slots = threading.BoundedSemaphore(MAX_IN_FLIGHT)
        self.sent = Sent()

    def wait_until_it_listens(self, seconds: float = START_SECONDS) -> None:
        """SlopewiseError when nothing listens there within that time."""
        give_up_at = monotonic() + seconds
        while (refusal := self._refusal()) is not None:
            if monotonic() >= give_up_at:
                raise SlopewiseError(
                    f"{self._netloc} does not listen within {seconds:g} s ({refusal}); start the served model first."
                )
            sleep(_POLL_SECONDS)

    def _refusal(self) -> OSError | None:
        try:
            with closing(HTTPConnection(self._netloc, timeout=1.0)) as connection:
                connection.connect()
        except OSError as error:
            return error
        return None

    def run(self, seconds: float, report: Callable[[str], None]) -> None:
        """Send for so long, or until the process ends; report a line about the outcomes every 10 s."""
        began, reported = monotonic(), 0.0
        number = 0
        while (due := number * self._period_seconds) < seconds:
            if due - reported >= REPORT_SECONDS:
                report(self.sent.line())
                reported = due
            sleep(max(0.0, began + due - monotonic()))
            self._send(number)
            number += 1

    def _send(self, number: int) -> None:
        if not self._slots.acquire(blocking=False):
            self.sent.add("not sent")
            return
        # Daemons: the process ends without waiting for a server that hangs.
        threading.Thread(target=self._request, args=(number,), daemon=True).start()

    def _request(self, number: int) -> None:
        began = monotonic()
        try:
            with closing(HTTPConnection(self._netloc, timeout=self._timeout_seconds)) as connection:
                connection.request("GET", f"/predict/{number}")
                answer = connection.getresponse()
                answer.read()
            self.sent.add("ok" if answer.status == HTTPStatus.OK else "failed", monotonic() - began)
        except TimeoutError:
            self.sent.add("timed out")
        except (OSError, HTTPException):
            self.sent.add("failed")
        finally:
            self._slots.release()


def main(arguments: list[str] | None = None) -> int:
    """Send for the time that was asked for; the process's exit code."""
    return exit_code_of(partial(_run, arguments))


def _run(arguments: list[str] | None) -> None:
    options = _parser().parse_args(arguments)
    load = OpenLoop(options.url, options.rate, options.timeout)
    load.wait_until_it_listens()
    load.run(options.seconds, partial(print, flush=True))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m slopewise.demo.serving.open_loop", description="Requests at a fixed rate to a served model."
    )
    parser.add_argument("url", metavar="URL", help="of the served model, e.g. http://127.0.0.1:9464")
    parser.add_argument("--rate", type=number_above_0, required=True, metavar="R", help="requests a second")
    parser.add_argument("--seconds", type=number_above_0, default=math.inf, metavar="S", help="default: without end")
    parser.add_argument(
        "--timeout", type=number_above_0, default=30.0, metavar="S", help="of a request; default: %(default)g s"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
