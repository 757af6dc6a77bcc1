"""Response times of WSGI applications: call by call, and in forked workers; real servers: test_response_servers.py."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest
from support.serving import counts
from support.training_fixtures import Scrape

from slopewise_exporter.responses import ResponseReporter
from slopewise_exporter.wsgi import Environ, ResponseTimes, StartResponse

COUNT = 'inference_response_duration_seconds_count{outcome="%s"}'


class Closing:
    """A body that is taken chunk by chunk, and reports when it was closed."""

    def __init__(self, *chunks: bytes | Exception, wait_seconds: float = 0.0) -> None:
        self._chunks = chunks
        self._wait_seconds = wait_seconds
        self.closed = 0

    def __iter__(self) -> Iterator[bytes]:
        for number, chunk in enumerate(self._chunks):
            if number:
                time.sleep(self._wait_seconds)
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    def close(self) -> None:
        self.closed += 1


def answering(body: Iterable[bytes], status: str = "200 OK") -> Callable[[Environ, StartResponse], Iterable[bytes]]:
    def app(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response(status, [("Content-Type", "text/plain")])
        return body

    return app


def begin(app: Any, responses: ResponseReporter, *, path: str = "/predict", **options: Any) -> Any:
    """The answer of the middleware, which the server has not taken yet."""
    environ = {"PATH_INFO": path, "REQUEST_METHOD": "GET"}
    return ResponseTimes(app, reporter=responses, **options)(environ, lambda *_: lambda _: None)


def test_an_answer_is_passed_on_as_it_is_and_counted_when_the_server_has_taken_it(responses: ResponseReporter) -> None:
    body = Closing(b"a", b"b")
    taken = begin(answering(body), responses)
    assert counts(responses) == (0, 0, 1)
    assert list(taken) == [b"a", b"b"]
    assert counts(responses) == (1, 0, 0)
    taken.close()
    assert (counts(responses), body.closed) == ((1, 0, 0), 1)


@pytest.mark.parametrize(("status", "failed"), [("200 OK", 0), ("304 x", 0), ("400 x", 1), ("503 x", 1), ("odd", 1)])
def test_a_status_of_400_or_more_is_a_failure(responses: ResponseReporter, status: str, failed: int) -> None:
    list(begin(answering([b"a"], status), responses))
    assert counts(responses) == (1 - failed, failed, 0)


def test_a_stream_is_timed_to_its_last_byte_or_to_its_first(responses: ResponseReporter) -> None:
    began = time.monotonic()
    list(begin(answering(Closing(b"", b"a", b"b", wait_seconds=0.1)), responses))
    to_its_last = responses.record.seconds["ok"]
    assert 0.2 <= to_its_last <= time.monotonic() - began
    began = time.monotonic()
    list(begin(answering(Closing(b"", b"a", b"b", wait_seconds=0.1)), responses, until="first-byte"))
    assert 0.1 <= responses.record.seconds["ok"] - to_its_last <= time.monotonic() - began - 0.1
    assert counts(responses) == (2, 0, 0)


def test_a_generator_that_starts_its_response_late_has_its_status(responses: ResponseReporter) -> None:
    def app(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response("500 Internal Server Error", [])
        yield b"a"

    list(begin(app, responses))
    assert counts(responses) == (0, 1, 0)


def test_an_application_that_raises_has_failed_whenever_it_does(responses: ResponseReporter) -> None:
    def app(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        raise ValueError("bad input")

    with pytest.raises(ValueError, match="bad input"):
        begin(app, responses)
    with pytest.raises(OSError, match="half way"):
        list(begin(answering(Closing(b"a", OSError("half way"))), responses))
    assert counts(responses) == (0, 2, 0)


def test_what_the_server_closes_in_mid_answer_or_forgets_has_failed(responses: ResponseReporter) -> None:
    body = Closing(b"a", b"b")
    taken = begin(answering(body), responses)
    assert next(taken) == b"a"
    taken.close()
    assert (counts(responses), body.closed) == ((0, 1, 0), 1)
    begin(answering([b"a"]), responses)
    assert counts(responses) == (0, 2, 0)


def test_an_answer_that_is_not_taken_at_all_is_complete(responses: ResponseReporter) -> None:
    begin(answering([b"a"]), responses).close()
    assert counts(responses) == (1, 0, 0)


def test_the_length_of_a_list_is_passed_on_because_servers_make_content_length_of_it(
    responses: ResponseReporter,
) -> None:
    assert len(begin(answering([b"a"]), responses)) == 1
    assert not hasattr(begin(answering(Closing(b"a")), responses), "__len__")


def test_health_checks_are_not_timed_and_their_answer_is_not_wrapped(responses: ResponseReporter) -> None:
    body = [b"ok"]
    assert begin(answering(body), responses, path="/healthz") is body
    assert counts(responses) == (0, 0, 0)
    assert responses.port is not None


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_worker_counts_its_own_requests_on_a_port_of_its_own(
    responses: ResponseReporter, scrape: Scrape
) -> None:
    list(begin(answering([b"a"]), responses))
    before = responses.port
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # what a pre-forking server's worker does
        try:
            assert responses.port is None
            list(begin(answering([b"a"]), responses))
            list(begin(answering([b"a"]), responses))
            with urlopen(Request(f"http://127.0.0.1:{responses.port}/metrics"), timeout=20) as answer:
                os.write(writer, f"{responses.port != before} {answer.read().count(b'} 2.0') > 0}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    assert os.read(reader, 100) == b"True True"
    os.close(reader)
    os.waitpid(child, 0)
    assert scrape(before)[COUNT % "ok"] == 1
