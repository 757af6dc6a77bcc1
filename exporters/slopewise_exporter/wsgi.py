"""Times the responses of a WSGI application: Flask, Django, Bottle, Falcon.

    from slopewise_exporter.wsgi import ResponseTimes

    application = ResponseTimes(application)  # with Flask: app.wsgi_app = ResponseTimes(app.wsgi_app)

`http://HOST:9464/metrics` then has `inference_response_duration_seconds{outcome}` and `inference_requests_in_flight`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any, Callable

from slopewise_exporter.responses import FIRST_FAILED_STATUS, Middleware, Request

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], Any]]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


class ResponseTimes(Middleware):
    """Middleware around a WSGI application.

    A response is timed from the call of the application until the server has taken its last byte. It failed with a
    status of 400 or more, when the application raises, and when the server closes it before its end, as it does when
    the client is gone. The paths of `exclude` are not timed. The metrics are served from the first request on, so that
    they are those of the worker that answers it.

    Its arguments are those of `responses.Middleware`.
    """

    app: Application

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Handle one request."""
        if not self._times(environ.get("PATH_INFO")):
            self.reporter.open()
            return self.app(environ, start_response)
        exchange = _Exchange(self.reporter.begin(), start_response)
        try:
            body = self.app(environ, exchange.start_response)
        except BaseException:
            exchange.request.end(failed=True)
            raise
        return (_SizedBody if isinstance(body, Sized) else _Body)(body, exchange, first_byte=self._first_byte)


class _Exchange:
    """One request, and the last status that the application gave."""

    def __init__(self, request: Request, start_response: StartResponse) -> None:
        self.request = request
        self._start_response = start_response
        self._status = ""

    def start_response(self, status: str, *arguments: Any) -> Callable[[bytes], Any]:
        """The server's, which may be called again with another status after an error."""
        self._status = status
        return self._start_response(status, *arguments)

    def answered(self) -> None:
        """The answer is complete: its status says whether it failed."""
        code = self._status[:3]
        self.request.end(failed=not (code.isdigit() and int(code) < FIRST_FAILED_STATUS))


class _Body:
    """The application's answer, as the server takes it."""

    def __init__(self, body: Iterable[bytes], exchange: _Exchange, *, first_byte: bool) -> None:
        self._body = body
        self._chunks: Iterator[bytes] | None = None
        self._exchange = exchange
        self._first_byte = first_byte

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            if self._chunks is None:
                self._chunks = iter(self._body)
            chunk = next(self._chunks)
        except StopIteration:
            self._exchange.answered()
            raise
        except BaseException:
            self._exchange.request.end(failed=True)
            raise
        if self._first_byte and chunk:
            self._exchange.answered()
        return chunk

    def close(self) -> None:
        """The server is done with it. Not taken at all, as for HEAD, it is complete; taken in part, it failed."""
        if self._chunks is None:
            self._exchange.answered()
        else:
            self._exchange.request.end(failed=True)
        if callable(close := getattr(self._body, "close", None)):
            close()

    def __del__(self) -> None:
        """A server that never calls `close` has left it where it is."""
        self._exchange.request.end(failed=True)


class _SizedBody(_Body):
    """One of which servers make a Content-Length, when it has a single chunk."""

    def __len__(self) -> int:
        return len(self._body)  # type: ignore[arg-type]
