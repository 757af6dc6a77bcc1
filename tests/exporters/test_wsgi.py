"""Response times of WSGI applications: call by call, behind a real wsgiref, and in forked workers."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.request import Request, urlopen
from wsgiref.validate import validator

import pytest
from support.serving import statuses_of, wsgiref_of
from support.training_fixtures import Scrape

from slopewise_exporter.responses import ResponseReporter
from slopewise_exporter.wsgi import Environ, ResponseTimes, StartResponse

COUNT = 'inference_response_duration_seconds_count{outcome="%s"}'
IN_FLIGHT = "inference_requests_in_flight"


@pytest.fixture
def reporter() -> Iterator[ResponseReporter]:
    one = ResponseReporter(0, address="127.0.0.1")
    yield one
    one.close()


def counts(reporter: ResponseReporter) -> tuple[int, int, int]:
    """Responses that succeeded, that failed, and requests in flight."""
    record = reporter.record
    return sum(record.counts["ok"]), sum(record.counts["failed"]), record.in_flight


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


def begin(app: Any, reporter: ResponseReporter, *, path: str = "/predict", **options: Any) -> Any:
    """The answer of the middleware, which the server has not taken yet."""
    environ = {"PATH_INFO": path, "REQUEST_METHOD": "GET"}
    return ResponseTimes(app, reporter=reporter, **options)(environ, lambda *_: lambda _: None)


def test_an_answer_is_passed_on_as_it_is_and_counted_when_the_server_has_taken_it(reporter: ResponseReporter) -> None:
    body = Closing(b"a", b"b")
    taken = begin(answering(body), reporter)
    assert counts(reporter) == (0, 0, 1)
    assert list(taken) == [b"a", b"b"]
    assert counts(reporter) == (1, 0, 0)
    taken.close()
    assert (counts(reporter), body.closed) == ((1, 0, 0), 1)


@pytest.mark.parametrize(("status", "failed"), [("200 OK", 0), ("304 x", 0), ("400 x", 1), ("503 x", 1), ("odd", 1)])
def test_a_status_of_400_or_more_is_a_failure(reporter: ResponseReporter, status: str, failed: int) -> None:
    list(begin(answering([b"a"], status), reporter))
    assert counts(reporter) == (1 - failed, failed, 0)


def test_a_stream_is_timed_to_its_last_byte_or_to_its_first(reporter: ResponseReporter) -> None:
    began = time.monotonic()
    list(begin(answering(Closing(b"", b"a", b"b", wait_seconds=0.1)), reporter))
    to_its_last = reporter.record.seconds["ok"]
    assert 0.2 <= to_its_last <= time.monotonic() - began
    began = time.monotonic()
    list(begin(answering(Closing(b"", b"a", b"b", wait_seconds=0.1)), reporter, until="first-byte"))
    assert 0.1 <= reporter.record.seconds["ok"] - to_its_last <= time.monotonic() - began - 0.1
    assert counts(reporter) == (2, 0, 0)


def test_a_generator_that_starts_its_response_late_has_its_status(reporter: ResponseReporter) -> None:
    def app(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response("500 Internal Server Error", [])
        yield b"a"

    list(begin(app, reporter))
    assert counts(reporter) == (0, 1, 0)


def test_an_application_that_raises_has_failed_whenever_it_does(reporter: ResponseReporter) -> None:
    def app(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        raise ValueError("bad input")

    with pytest.raises(ValueError, match="bad input"):
        begin(app, reporter)
    with pytest.raises(OSError, match="half way"):
        list(begin(answering(Closing(b"a", OSError("half way"))), reporter))
    assert counts(reporter) == (0, 2, 0)


def test_what_the_server_closes_in_mid_answer_or_forgets_has_failed(reporter: ResponseReporter) -> None:
    body = Closing(b"a", b"b")
    taken = begin(answering(body), reporter)
    assert next(taken) == b"a"
    taken.close()
    assert (counts(reporter), body.closed) == ((0, 1, 0), 1)
    begin(answering([b"a"]), reporter)
    assert counts(reporter) == (0, 2, 0)


def test_an_answer_that_is_not_taken_at_all_is_complete(reporter: ResponseReporter) -> None:
    begin(answering([b"a"]), reporter).close()
    assert counts(reporter) == (1, 0, 0)


def test_the_length_of_a_list_is_passed_on_because_servers_make_content_length_of_it(
    reporter: ResponseReporter,
) -> None:
    assert len(begin(answering([b"a"]), reporter)) == 1
    assert not hasattr(begin(answering(Closing(b"a")), reporter), "__len__")


def test_health_checks_are_not_timed_and_their_answer_is_not_wrapped(reporter: ResponseReporter) -> None:
    body = [b"ok"]
    assert begin(answering(body), reporter, path="/healthz") is body
    assert counts(reporter) == (0, 0, 0)
    assert reporter.port is not None


def model(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """What wsgiref serves."""
    path = environ["PATH_INFO"]
    if path == "/raises":
        raise RuntimeError("no such model")
    time.sleep(0.05)
    start_response("503 Service Unavailable" if path == "/busy" else "200 OK", [("Content-Type", "text/plain")])
    return [b"{}"] if path != "/endless" else (b"x" * 65536 for _ in range(10_000))


@pytest.fixture
def served(reporter: ResponseReporter) -> Iterator[str]:
    """With the standard library's own checker around the middleware."""
    with wsgiref_of(validator(ResponseTimes(model, reporter=reporter))) as url:
        yield url


@pytest.mark.processes
def test_a_real_server_under_load_is_counted_to_the_last_request(
    served: str, reporter: ResponseReporter, scrape: Scrape
) -> None:
    paths = ["/predict"] * 40 + ["/busy"] * 10 + ["/raises"] * 10 + ["/healthz"] * 4
    assert sorted(set(statuses_of(served, paths))) == [200, 500, 503]
    page = scrape(reporter.port)
    assert (page[COUNT % "ok"], page[COUNT % "failed"], page[IN_FLIGHT]) == (40, 20, 0)


@pytest.mark.processes
def test_a_client_that_gives_up_in_mid_answer_is_a_failure(served: str, reporter: ResponseReporter) -> None:
    host, _, port = served.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"GET /endless HTTP/1.0\r\nHost: x\r\n\r\n")
        assert client.recv(1000)
        assert counts(reporter) == (0, 0, 1)
    give_up_at = time.monotonic() + 180
    while counts(reporter) != (0, 1, 0) and time.monotonic() < give_up_at:
        time.sleep(0.01)
    assert counts(reporter) == (0, 1, 0)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_worker_counts_its_own_requests_on_a_port_of_its_own(
    reporter: ResponseReporter, scrape: Scrape
) -> None:
    list(begin(answering([b"a"]), reporter))
    before = reporter.port
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # what a pre-forking server's worker does
        try:
            assert reporter.port is None
            list(begin(answering([b"a"]), reporter))
            list(begin(answering([b"a"]), reporter))
            with urlopen(Request(f"http://127.0.0.1:{reporter.port}/metrics"), timeout=20) as answer:
                os.write(writer, f"{reporter.port != before} {answer.read().count(b'} 2.0') > 0}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    assert os.read(reader, 100) == b"True True"
    os.close(reader)
    os.waitpid(child, 0)
    assert scrape(before)[COUNT % "ok"] == 1
