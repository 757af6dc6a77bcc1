"""Times the responses of an ASGI application: FastAPI, Starlette, Litestar, Quart, BentoML.

    from slopewise_exporter.asgi import ResponseTimes

    app = ResponseTimes(app)  # or, with Starlette and FastAPI: app.add_middleware(ResponseTimes)

`http://HOST:9464/metrics` then has `inference_response_duration_seconds{outcome}` and `inference_requests_in_flight`.
"""

from __future__ import annotations

from collections.abc import Awaitable, MutableMapping
from typing import Any, Callable

from slopewise_exporter.responses import FIRST_FAILED_STATUS, Middleware, Request

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class ResponseTimes(Middleware):
    """Middleware around an ASGI application.

    A response is timed from the call of the application until its last byte was given to the server, what runs in the
    background after that not included. It failed with a status of 400 or more, when the application raises or is
    cancelled, and when the client is gone before the end, as far as server and application see that. Websockets and
    the paths of `exclude` are not timed.

    Its arguments are those of `responses.Middleware`.
    """

    app: Application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, or the lifespan, with whose start the metrics are served."""
        if scope.get("type") != "http":
            if scope.get("type") == "lifespan":
                self.reporter.open()
            await self.app(scope, receive, send)
        elif self._times(scope.get("path")):
            await self._timed(scope, receive, send)
        else:
            self.reporter.open()
            await self.app(scope, receive, send)

    async def _timed(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _Exchange(self.reporter.begin(), receive, send, first_byte=self._first_byte)
        try:
            await self.app(scope, exchange.receive, exchange.send)
        finally:
            exchange.request.end(failed=True)  # unless it was answered before


class _Exchange:
    """The messages of one request."""

    def __init__(self, request: Request, receive: Receive, send: Send, *, first_byte: bool) -> None:
        self.request = request
        self._receive, self._send = receive, send
        self._first_byte = first_byte
        self._failed = False

    async def receive(self) -> Message:
        """What the server has; a client that is gone before the end of its answer has none."""
        message = await self._receive()
        if message.get("type") == "http.disconnect":
            self.request.end(failed=True)
        return message

    async def send(self, message: Message) -> None:
        """To the server, which may raise for a client that is gone: that is the application's to handle."""
        kind = message.get("type")
        if kind == "http.response.start":
            self._failed = not 0 < message.get("status", 0) < FIRST_FAILED_STATUS
        await self._send(message)
        if kind == "http.response.body":
            ended = not message.get("more_body", False) or (self._first_byte and bool(message.get("body")))
        else:
            ended = kind == "http.response.pathsend"
        if ended:
            self.request.end(failed=self._failed)
