"""Response times of ASGI applications, message by message; behind a real server: test_response_servers.py."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from support.serving import counts
from support.training_fixtures import Scrape

from slopewise_exporter.asgi import Message, Receive, ResponseTimes, Scope, Send
from slopewise_exporter.responses import ResponseReporter

COUNT = 'inference_response_duration_seconds_count{outcome="%s"}'
IN_FLIGHT = "inference_requests_in_flight"

START: Message = {"type": "http.response.start", "status": 200, "headers": []}
BODY: Message = {"type": "http.response.body", "body": b"{}"}


def call(
    app: Callable[[Scope, Receive, Send], Any],
    responses: ResponseReporter,
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

    asyncio.run(ResponseTimes(app, reporter=responses, **options)({"type": kind, "path": path}, receive, send))
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


def test_an_answer_is_passed_on_as_it_is_and_counted(responses: ResponseReporter) -> None:
    assert call(answering(START, BODY), responses) == [START, BODY]
    assert counts(responses) == (1, 0, 0)


@pytest.mark.parametrize(("status", "failed"), [(200, 0), (304, 0), (399, 0), (400, 1), (404, 1), (503, 1)])
def test_a_status_of_400_or_more_is_a_failure(responses: ResponseReporter, status: int, failed: int) -> None:
    call(answering({**START, "status": status}, BODY), responses)
    assert counts(responses) == (1 - failed, failed, 0)


def test_a_stream_is_timed_to_its_last_byte_or_to_its_first(responses: ResponseReporter) -> None:
    stream = [START, {**BODY, "body": b"", "more_body": True}, {**BODY, "more_body": True}, BODY]
    began = time.monotonic()
    call(answering(*stream, wait_seconds=0.1), responses)
    to_its_last = responses.record.seconds["ok"]
    assert 0.3 <= to_its_last <= time.monotonic() - began
    began = time.monotonic()
    call(answering(*stream, wait_seconds=0.1), responses, until="first-byte")
    assert 0.2 <= responses.record.seconds["ok"] - to_its_last <= time.monotonic() - began - 0.1
    assert counts(responses) == (2, 0, 0)


def test_what_runs_after_the_answer_is_not_timed(responses: ResponseReporter) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answering(START, BODY)(scope, receive, send)
        assert counts(responses) == (1, 0, 0)
        await asyncio.sleep(0.2)
        raise RuntimeError("in the background")

    began = time.monotonic()
    with pytest.raises(RuntimeError, match="in the background"):
        call(app, responses)
    assert counts(responses) == (1, 0, 0)
    assert responses.record.seconds["ok"] <= time.monotonic() - began - 0.2


@pytest.mark.parametrize("sent", [[], [START], [START, {**BODY, "more_body": True}]])
@pytest.mark.parametrize("error", [ValueError("bad input"), asyncio.CancelledError(), None])
def test_an_application_that_raises_or_returns_before_its_answer_is_complete_has_failed(
    responses: ResponseReporter, sent: list[Message], error: BaseException | None
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answering(*sent)(scope, receive, send)
        if error is not None:
            raise error

    with suppress(ValueError, asyncio.CancelledError):
        call(app, responses)
    assert counts(responses) == (0, 1, 0)


def test_a_client_that_is_gone_before_the_end_has_no_answer_and_one_that_is_gone_after_it_has(
    responses: ResponseReporter,
) -> None:
    gone: list[Message] = [{"type": "http.disconnect"}]

    async def leaves(scope: Scope, receive: Receive, send: Send) -> None:
        await answering(START, {**BODY, "more_body": True}, BODY)(scope, receive, send)

    async def answers_first(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send(BODY)
        await receive()

    call(leaves, responses, received=gone)
    assert counts(responses) == (0, 1, 0)
    call(answers_first, responses, received=gone)
    assert counts(responses) == (1, 1, 0)


def test_a_server_that_raises_for_a_client_that_is_gone_is_passed_on_as_a_failure(responses: ResponseReporter) -> None:
    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        raise OSError("client disconnected")

    middleware = ResponseTimes(answering(START, BODY), reporter=responses)
    with pytest.raises(OSError, match="client disconnected"):
        asyncio.run(middleware({"type": "http", "path": "/"}, receive, send))
    assert counts(responses) == (0, 1, 0)


@pytest.mark.parametrize("path", ["/healthz", "/healthz/", "/metrics", "/v2/health/ready"])
def test_the_paths_of_kubelets_and_prometheus_are_not_timed(responses: ResponseReporter, path: str) -> None:
    assert call(answering(START, BODY), responses, path=path) == [START, BODY]
    assert counts(responses) == (0, 0, 0)
    assert responses.port is not None


@pytest.mark.parametrize(
    ("path", "timed"), [("/docs/a", 0), ("/docs", 1), ("/ready", 0), ("/ready/", 0), ("/healthz", 1), ("/", 1)]
)
def test_which_paths_are_not_timed_is_a_setting(responses: ResponseReporter, path: str, timed: int) -> None:
    call(answering(START, BODY), responses, path=path, exclude=["/docs/*", "/ready"])
    assert counts(responses) == (timed, 0, 0)


@pytest.mark.parametrize("options", [{"exclude": "/healthz"}, {"exclude": 3}, {"exclude": [5]}, {"until": "soon"}])
def test_an_argument_that_cannot_be_used_is_logged_once_and_left_out(
    responses: ResponseReporter, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    assert call(answering(START, BODY), responses, path="/healthz", **options) == [START, BODY]
    call(answering(START, BODY), responses, **options)
    assert counts(responses) == (1, 0, 0)
    (message,) = caplog.messages
    assert message.startswith(next(iter(options)))
    assert "is not" in message


def test_a_websocket_is_passed_on_untimed_and_the_lifespan_opens_the_endpoint(
    responses: ResponseReporter, scrape: Scrape
) -> None:
    call(answering(), responses, kind="websocket")
    assert (counts(responses), responses.port) == ((0, 0, 0), None)
    call(answering({"type": "lifespan.startup.complete"}), responses, kind="lifespan")
    page = scrape(responses.port)
    assert (page[COUNT % "ok"], page[COUNT % "failed"], page[IN_FLIGHT]) == (0, 0, 0)
    assert page["process_start_time_seconds"] > 0


def test_a_port_in_use_leaves_the_application_as_it_is_and_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        responses = ResponseReporter(taken.getsockname()[1], address="127.0.0.1")
        assert call(answering(START, BODY), responses) == [START, BODY]
        assert call(answering(START, BODY), responses) == [START, BODY]
    assert responses.port is None
    (message,) = caplog.messages
    assert "give this server ResponseTimes(port=...) or SLOPEWISE_EXPORTER_PORT with another one" in message
    assert message.endswith("Requests are answered without metrics")


def test_it_can_be_switched_off(responses: ResponseReporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOPEWISE_EXPORTER_DISABLED", "1")
    assert call(answering(START, BODY), responses) == [START, BODY]
    assert responses.port is None
