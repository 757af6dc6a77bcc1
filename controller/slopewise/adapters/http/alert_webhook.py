"""The endpoint that Alertmanager calls: authenticates, reads a bounded body, and answers once everything is stored.

    POST /alerts
    Authorization: Bearer TOKEN

The token is checked before the body is read, in constant time, and its file is read for each call, so that a rotated
Secret counts at once. 401, 405, 411, 413 and 400 change nothing. 503 asks for another try, which Alertmanager makes.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from slopewise.errors import UsageError
from slopewise.text import bounded, printable

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

PATH = "/alerts"

MAX_BODY_BYTES = 1024 * 1024
"""A thousand alerts have 0.6 MB."""

BODY_SECONDS = 10.0
"""A body that takes longer is given up: its sender would keep one of few turns."""

MAX_CALLS = 4
"""Calls that are handled at the same time; the next one is asked to come again."""

MIN_TOKEN_CHARACTERS = 16

_CHUNK_BYTES = 64 * 1024

CallOutcome = Literal["accepted", "unauthorised", "refused", "busy", "failed"]


class Reply(NamedTuple):
    """The answer to one call."""

    status: str
    text: str
    outcome: CallOutcome


Handle = Callable[[bytes], str]
"""Carries out a body and returns what was done, for people.

UsageError for what it cannot use, any other error for what another try may do.
"""


def check_token_file(path: Path) -> None:
    """UsageError where no token can be read of it, or one that could be guessed."""
    if len(_token(path)) < MIN_TOKEN_CHARACTERS:
        raise UsageError(
            f"--alert-token-file {path}: the token has fewer than {MIN_TOKEN_CHARACTERS} characters; "
            "write a random one."
        )


def _token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(4096).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--alert-token-file {path}: no token can be read of it ({error}).") from error
    return text


@dataclass(eq=False)
class AlertWebhook:
    """A WSGI application for `PATH`."""

    token_file: Path
    handle: Handle
    on_call: Callable[[CallOutcome], None] = lambda _: None
    """Gets the outcome of each call."""
    on_error: Callable[[Exception], None] = lambda _: None
    """Gets what an outcome `failed` was caused by."""
    _turns: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(MAX_CALLS))

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one call."""
        reply = self._reply(environ)
        self.on_call(reply.outcome)
        headers = [("Content-Type", "text/plain; charset=utf-8")]
        headers += [("WWW-Authenticate", "Bearer")] if reply.status.startswith("401") else []
        headers += [("Allow", "POST")] if reply.status.startswith("405") else []
        headers += [("Retry-After", "5")] if reply.status.startswith("503") else []
        start_response(reply.status, headers)
        return [(printable(reply.text) + "\n").encode()]

    def _reply(self, environ: WSGIEnvironment) -> Reply:
        if environ["REQUEST_METHOD"] != "POST":
            return Reply("405 Method Not Allowed", "use POST", "refused")
        try:
            token = _token(self.token_file)
        except UsageError as error:
            self.on_error(error)
            return Reply("503 Service Unavailable", "the token cannot be read", "failed")
        if len(token) < MIN_TOKEN_CHARACTERS or not _is_authorised(environ.get("HTTP_AUTHORIZATION", ""), token):
            return Reply("401 Unauthorized", "send the token as Authorization: Bearer TOKEN", "unauthorised")
        size = environ.get("CONTENT_LENGTH") or ""
        if not (size.isascii() and size.isdigit()):
            return Reply("411 Length Required", "send Content-Length", "refused")
        if len(size) > len(str(MAX_BODY_BYTES)) or int(size) > MAX_BODY_BYTES:
            _read(environ, 4 * _CHUNK_BYTES)  # a connection that is closed on unread data loses the answer
            more = f"the body has more than {MAX_BODY_BYTES} bytes; set max_alerts of the receiver"
            return Reply("413 Content Too Large", more, "refused")
        if not self._turns.acquire(blocking=False):
            return Reply("503 Service Unavailable", f"{MAX_CALLS} calls are under way", "busy")
        try:
            return self._handled(environ, int(size))
        finally:
            self._turns.release()

    def _handled(self, environ: WSGIEnvironment, size: int) -> Reply:
        body = _read(environ, size)
        if body is None:
            return Reply("400 Bad Request", "the body is shorter than Content-Length, or took too long", "refused")
        try:
            return Reply("200 OK", self.handle(body), "accepted")
        except UsageError as error:
            return Reply("400 Bad Request", bounded(error, 2000), "refused")
        except Exception as error:
            self.on_error(error)
            return Reply("503 Service Unavailable", "it could not be stored; try again", "failed")


def _is_authorised(header: str, token: str) -> bool:
    scheme, _, given = header.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def _read(environ: WSGIEnvironment, size: int) -> bytes | None:
    """The body; None when it ends early, stalls, or comes too slowly."""
    deadline, parts, left = time.monotonic() + BODY_SECONDS, [], size
    while left:
        try:
            part = environ["wsgi.input"].read1(min(left, _CHUNK_BYTES))
        except OSError:
            return None
        if not part or time.monotonic() > deadline:
            return None
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
