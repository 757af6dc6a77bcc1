"""Response times behind real servers, uvicorn and wsgiref: under load, and where a client gives up."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterable, Iterator
from wsgiref.validate import validator

import pytest
from support.serving import counts, statuses_of, uvicorn_of, wsgiref_of
from support.training_fixtures import Scrape
from support.waiting import eventually

from slopewise_exporter import asgi, wsgi
from slopewise_exporter.responses import ResponseReporter

pytestmark = pytest.mark.processes


async def asgi_model(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
    """It waits, streams, fails, or hears that its client is gone."""
    if scope["type"] != "http":
        for _ in range(2):
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
        return
    if scope["path"] == "/raises":
        raise RuntimeError("no such model")
    if scope["path"] == "/endless":
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    await asyncio.sleep(0.05)
    await send({"type": "http.response.start", "status": 503 if scope["path"] == "/busy" else 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}", "more_body": True})
    await asyncio.sleep(0.05)
    await send({"type": "http.response.body", "body": b"{}"})


def wsgi_model(environ: wsgi.Environ, start_response: wsgi.StartResponse) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    if path == "/raises":
        raise RuntimeError("no such model")
    time.sleep(0.1)
    start_response("503 Service Unavailable" if path == "/busy" else "200 OK", [("Content-Type", "text/plain")])
    return [b"{}"] if path != "/endless" else (b"x" * 65536 for _ in range(10_000))


@pytest.fixture(params=["asgi", "wsgi"])
def served(request: pytest.FixtureRequest, responses: ResponseReporter) -> Iterator[str]:
    """That of WSGI with the standard library's own checker around the middleware."""
    if request.param == "asgi":
        server = uvicorn_of(asgi.ResponseTimes(asgi_model, reporter=responses))
    else:
        server = wsgiref_of(validator(wsgi.ResponseTimes(wsgi_model, reporter=responses)))
    with server as url:
        yield url


def test_under_load_each_request_is_counted_to_the_last_one(
    served: str, responses: ResponseReporter, scrape: Scrape
) -> None:
    paths = ["/predict"] * 40 + ["/busy"] * 10 + ["/raises"] * 10 + ["/healthz"] * 4
    assert sorted(set(statuses_of(served, paths))) == [200, 500, 503]
    page, name = scrape(responses.port), "inference_response_duration_seconds"
    answered = page[f'{name}_count{{outcome="ok"}}']
    assert (answered, page[f'{name}_count{{outcome="failed"}}'], page["inference_requests_in_flight"]) == (40, 20, 0)
    assert 0.1 < page[f'{name}_sum{{outcome="ok"}}'] / answered < 5.0
    assert page[f'{name}_bucket{{le="+Inf",outcome="ok"}}'] == answered


def test_a_client_that_gives_up_is_in_flight_until_then_and_a_failure_after_it(
    served: str, responses: ResponseReporter
) -> None:
    host, _, port = served.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
        assert eventually(lambda: counts(responses) == (0, 0, 1)), counts(responses)
    assert eventually(lambda: counts(responses) == (0, 1, 0)), counts(responses)
