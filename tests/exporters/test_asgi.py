"""Response times of ASGI applications: message by message, and behind a real uvicorn."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.serving import statuses_of, uvicorn_of
from support.training_fixtures import Scrape

from slopewise_exporter.asgi import Message, Receive, ResponseTimes, Scope, Send
from slopewise_exporter.responses import ResponseReporter

COUNT = 'inference_response_duration_seconds_count{outcome="%s"}'
SUM = 'inference_response_duration_seconds_sum{outcome="%s"}'
IN_FLIGHT = "inference_requests_in_flight"

START: Message = {"type": "http.response.start", "status": 200, "headers": []}
BODY: Message = {"type": "http.response.body", "body": b"{}"}


@pytest.fixture
def reporter() -> Iterator[ResponseReporter]:
    one = ResponseReporter(0, address="127.0.0.1")
    yield one
    one.close()


def counts(reporter: ResponseReporter) -> tuple[int, int, int]:
    """Responses that succeeded, that failed, and requests in flight."""
    record = reporter.record
    return sum(record.counts["ok"]), sum(record.counts["failed"]), record.in_flight


def call(
    app: Callable[[Scope, Receive, Send], Any],
    reporter: ResponseReporter,
    *,
    path: str = "/predict",
    kind: str = "http",
    received: list[Message] | None = None,
    **options: Any,
) -> list[Message]:
    """What the server is sent; the middleware has `options`."""
    sent: list[Message] = []
    messages = iter(received or [{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Message:
        return next(messages)

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(ResponseTimes(app, reporter=reporter, **options)({"type": kind, "path": path}, receive, send))
    return sent


def answering(*messages: Message, wait_seconds: float = 0.0) -> Callable[[Scope, Receive, Send], Any]:
    """An application that sends these, with a wait before each but the first."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        for number, message in enumerate(messages):
            if number:
                await asyncio.sleep(wait_seconds)
            await send(message)

    return app


def test_an_answer_is_passed_on_as_it_is_and_counted(reporter: ResponseReporter) -> None:
    assert call(answering(START, BODY), reporter) == [START, BODY]
    assert counts(reporter) == (1, 0, 0)


@pytest.mark.parametrize(("status", "failed"), [(200, 0), (304, 0), (399, 0), (400, 1), (404, 1), (503, 1)])
def test_a_status_of_400_or_more_is_a_failure(reporter: ResponseReporter, status: int, failed: int) -> None:
    call(answering({**START, "status": status}, BODY), reporter)
    assert counts(reporter) == (1 - failed, failed, 0)


def test_a_stream_is_timed_to_its_last_byte_or_to_its_first(reporter: ResponseReporter) -> None:
    stream = [START, {**BODY, "body": b"", "more_body": True}, {**BODY, "more_body": True}, BODY]
    began = time.monotonic()
    call(answering(*stream, wait_seconds=0.1), reporter)
    to_its_last = reporter.record.seconds["ok"]
    assert 0.3 <= to_its_last <= time.monotonic() - began
    began = time.monotonic()
    call(answering(*stream, wait_seconds=0.1), reporter, until="first-byte")
    assert 0.2 <= reporter.record.seconds["ok"] - to_its_last <= time.monotonic() - began - 0.1
    assert counts(reporter) == (2, 0, 0)


def test_what_runs_after_the_answer_is_not_timed(reporter: ResponseReporter) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answering(START, BODY)(scope, receive, send)
        assert counts(reporter) == (1, 0, 0)
        await asyncio.sleep(0.2)
        raise RuntimeError("in the background")

    began = time.monotonic()
    with pytest.raises(RuntimeError, match="in the background"):
        call(app, reporter)
    assert counts(reporter) == (1, 0, 0)
    assert reporter.record.seconds["ok"] <= time.monotonic() - began - 0.2


@pytest.mark.parametrize("sent", [[], [START], [START, {**BODY, "more_body": True}]])
@pytest.mark.parametrize("error", [ValueError("bad input"), asyncio.CancelledError(), None])
def test_an_application_that_raises_or_returns_before_its_answer_is_complete_has_failed(
    reporter: ResponseReporter, sent: list[Message], error: BaseException | None
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answering(*sent)(scope, receive, send)
        if error is not None:
            raise error

    with suppress(ValueError, asyncio.CancelledError):
        call(app, reporter)
    assert counts(reporter) == (0, 1, 0)


def test_a_client_that_is_gone_before_the_end_has_no_answer_and_one_that_is_gone_after_it_has(
    reporter: ResponseReporter,
) -> None:
    gone: list[Message] = [{"type": "http.disconnect"}]

    async def leaves(scope: Scope, receive: Receive, send: Send) -> None:
        await answering(START, {**BODY, "more_body": True}, BODY)(scope, receive, send)

    async def answers_first(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send(BODY)
        await receive()

    call(leaves, reporter, received=gone)
    assert counts(reporter) == (0, 1, 0)
    call(answers_first, reporter, received=gone)
    assert counts(reporter) == (1, 1, 0)


def test_a_server_that_raises_for_a_client_that_is_gone_is_passed_on_as_a_failure(reporter: ResponseReporter) -> None:
    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        raise OSError("client disconnected")

    middleware = ResponseTimes(answering(START, BODY), reporter=reporter)
    with pytest.raises(OSError, match="client disconnected"):
        asyncio.run(middleware({"type": "http", "path": "/"}, receive, send))
    assert counts(reporter) == (0, 1, 0)


@pytest.mark.parametrize("path", ["/healthz", "/healthz/", "/metrics", "/v2/health/ready"])
def test_the_paths_of_kubelets_and_prometheus_are_not_timed(reporter: ResponseReporter, path: str) -> None:
    assert call(answering(START, BODY), reporter, path=path) == [START, BODY]
    assert counts(reporter) == (0, 0, 0)
    assert reporter.port is not None


@pytest.mark.parametrize(
    ("path", "timed"), [("/docs/a", 0), ("/docs", 1), ("/ready", 0), ("/ready/", 0), ("/healthz", 1), ("/", 1)]
)
def test_which_paths_are_not_timed_is_a_setting(reporter: ResponseReporter, path: str, timed: int) -> None:
    call(answering(START, BODY), reporter, path=path, exclude=["/docs/*", "/ready"])
    assert counts(reporter) == (timed, 0, 0)


@pytest.mark.parametrize("options", [{"exclude": "/healthz"}, {"exclude": 3}, {"exclude": [5]}, {"until": "soon"}])
def test_an_argument_that_cannot_be_used_is_logged_once_and_left_out(
    reporter: ResponseReporter, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    assert call(answering(START, BODY), reporter, path="/healthz", **options) == [START, BODY]
    call(answering(START, BODY), reporter, **options)
    assert counts(reporter) == (1, 0, 0)
    (message,) = caplog.messages
    assert message.startswith(next(iter(options)))
    assert "is not" in message


def test_a_websocket_is_passed_on_untimed_and_the_lifespan_opens_the_endpoint(
    reporter: ResponseReporter, scrape: Scrape
) -> None:
    call(answering(), reporter, kind="websocket")
    assert (counts(reporter), reporter.port) == ((0, 0, 0), None)
    call(answering({"type": "lifespan.startup.complete"}), reporter, kind="lifespan")
    page = scrape(reporter.port)
    assert (page[COUNT % "ok"], page[COUNT % "failed"], page[IN_FLIGHT]) == (0, 0, 0)
    assert page["process_start_time_seconds"] > 0


def test_a_port_in_use_leaves_the_application_as_it_is_and_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        reporter = ResponseReporter(taken.getsockname()[1], address="127.0.0.1")
        assert call(answering(START, BODY), reporter) == [START, BODY]
        assert call(answering(START, BODY), reporter) == [START, BODY]
    assert reporter.port is None
    (message,) = caplog.messages
    assert "give this server ResponseTimes(port=...) or SLOPEWISE_EXPORTER_PORT with another one" in message
    assert message.endswith("Requests are answered without metrics")


def test_the_port_that_was_taken_is_written_to_a_file_or_that_fails_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for file in (tmp_path / "port", tmp_path / "missing" / "port"):
        monkeypatch.setenv("SLOPEWISE_EXPORTER_PORT_FILE", str(file))
        reporter = ResponseReporter(0, address="127.0.0.1")
        call(answering(START, BODY), reporter)
        if file.parent == tmp_path:
            assert (file.read_text(), caplog.messages) == (f"{reporter.port}\n", [])
        reporter.close()
    (message,) = caplog.messages
    assert message.startswith("cannot write the port")


def test_it_can_be_switched_off(reporter: ResponseReporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOPEWISE_EXPORTER_DISABLED", "1")
    assert call(answering(START, BODY), reporter) == [START, BODY]
    assert reporter.port is None


async def model(scope: Scope, receive: Receive, send: Send) -> None:
    """What uvicorn serves: it waits, streams, fails, or hears that its client is gone."""
    if scope["type"] != "http":
        for _ in range(2):
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
        return
    path = scope["path"]
    if path == "/raises":
        raise RuntimeError("no such model")
    if path == "/waits":
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    await asyncio.sleep(0.05)
    await send({**START, "status": 503 if path == "/busy" else 200})
    await send({**BODY, "more_body": True})
    await asyncio.sleep(0.05)
    await send(BODY)


@pytest.fixture
def served(reporter: ResponseReporter) -> Iterator[str]:
    with uvicorn_of(ResponseTimes(model, reporter=reporter)) as url:
        yield url


@pytest.mark.processes
def test_a_real_server_under_load_is_counted_to_the_last_request(
    served: str, reporter: ResponseReporter, scrape: Scrape
) -> None:
    paths = ["/predict"] * 40 + ["/busy"] * 10 + ["/raises"] * 10 + ["/healthz"] * 4
    assert sorted(set(statuses_of(served, paths))) == [200, 500, 503]
    page = scrape(reporter.port)
    assert (page[COUNT % "ok"], page[COUNT % "failed"], page[IN_FLIGHT]) == (40, 20, 0)
    assert 0.1 < page[SUM % "ok"] / 40 < 5.0
    assert page[COUNT % "ok"] == page['inference_response_duration_seconds_bucket{le="+Inf",outcome="ok"}']


@pytest.mark.processes
def test_a_client_that_gives_up_is_in_flight_until_then_and_a_failure_after_it(
    served: str, reporter: ResponseReporter
) -> None:
    def wait_until(expected: tuple[int, int, int]) -> None:
        give_up_at = time.monotonic() + 180
        while counts(reporter) != expected and time.monotonic() < give_up_at:
            time.sleep(0.01)
        assert counts(reporter) == expected

    host, _, port = served.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"GET /waits HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until((0, 0, 1))
    wait_until((0, 1, 0))
