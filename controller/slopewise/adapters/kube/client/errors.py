"""ApiError: everything that can go wrong with one request to the API server.

`client/client.py` raises it. Callers decide by its properties (`is_conflict`, `maybe_done`, …), never by its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import urllib3

from slopewise.adapters.http.answers import KNOWN_FAILURES, known_failure
from slopewise.errors import SlopewiseError
from slopewise.text import bounded

_MESSAGE_CHARACTERS = 400

_DENIED = re.compile(r"denied (?:the )?request(?:: (?P<why>.*))?")
_OUR_POLICIES = "ValidatingAdmissionPolicy 'slopewise-"
_WEBHOOK = "admission webhook "
_FIRST_SERVER_ERROR = 500

_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


class CredentialsError(OSError):
    """The token could not be read, so nothing was sent."""


_NEVER_SENT = (
    CredentialsError,
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.ProxyError,
)
_KNOWN_WORDS: Mapping[str, str] = {
    **KNOWN_FAILURES,
    "IncompleteRead": "it closed the connection in mid-answer",
    _UNTRUSTED: "its certificate is not one that the configuration trusts",
}


class Cause(NamedTuple):
    """One entry of a Status's `details.causes`, e.g. ("NodeCapacity", "node didn't have enough …", "spec")."""

    reason: str
    message: str
    field: str


class ApiError(SlopewiseError):
    """The API server refused a request, or did not confirm it.

    `status` is the HTTP status, 0 without a response. `message` is one bounded line: the server's message, or the
    connection's error. `maybe_done`: a write that may have been carried out all the same; read before it is sent again.
    `retry_after_seconds`: the server's Retry-After (429, 503).
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        causes: tuple[Cause, ...] = (),
        maybe_done: bool = False,
        retry_after_seconds: float | None = None,
        request: str = "",
    ) -> None:
        """`request`: the request in words, e.g. `patch /api/v1/namespaces/n/pods/p/resize`."""
        self.status = status
        self.reason = reason
        self.message = _bounded(message)
        self.causes = causes
        self.maybe_done = maybe_done
        self.retry_after_seconds = retry_after_seconds
        kind = f" {reason}" if reason else ""
        target = f" to {request}" if request else ""
        answer = f"The API server answered {status}{kind}{target}" if status else f"No answer{target}"
        super().__init__(f"{answer}: {self.message}")

    @property
    def is_unanswered(self) -> bool:
        """No response came: further requests would wait as long for theirs."""
        return self.status == 0

    @property
    def is_conflict(self) -> bool:
        """Another client wrote first, or a precondition does not hold: read and decide again."""
        return self.status == 409 and self.reason != "AlreadyExists"

    @property
    def already_exists(self) -> bool:
        """The object to be created exists."""
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def is_not_found(self) -> bool:
        """There is no such object, or no such kind of objects."""
        return self.status == 404

    @property
    def is_outdated(self) -> bool:
        """Another client has made, changed or deleted the object since it was read."""
        return self.status in (404, 409)

    @property
    def is_forbidden(self) -> bool:
        """RBAC, a quota, an admission policy or a node's capacity: `message` and `causes` say which."""
        return self.status == 403

    @property
    def is_denied(self) -> bool:
        """An admission policy or a webhook refused it, with whatever status."""
        return _DENIED.search(self.message) is not None

    @property
    def denial_and_answer(self) -> tuple[str, str]:
        """Why a policy or webhook refused it, with the remedy; and the message, empty for Slopewise's own policies."""
        found = _DENIED.search(self.message)
        if found is not None and found["why"] and _OUR_POLICIES in self.message:
            return found["why"], ""
        who = "webhook" if _WEBHOOK in self.message else "policy"
        return f"an admission {who} denies it; allow it there for our account", self.message

    @property
    def is_invalid(self) -> bool:
        """The object would not be valid; repeating the request gives the same."""
        return self.status == 422

    @property
    def is_expired(self) -> bool:
        """The resource version or the page has expired: list again."""
        return self.status == 410

    @property
    def is_throttled(self) -> bool:
        """Too many requests: wait, for `retry_after_seconds` if given."""
        return self.status == 429


def refused(
    status: int, http_reason: str, headers: Mapping[str, str], body: bytes, *, request: str, writes: bool
) -> ApiError:
    """The ApiError of an unsuccessful response. Not every body is a Status: proxies respond too."""
    answer = status_of(body)
    # What failed inside the server, or on the way back from it, may have been done before it failed.
    maybe_done = writes and status >= _FIRST_SERVER_ERROR
    text = answer.get("message") or body[: 4 * _MESSAGE_CHARACTERS].decode(errors="replace") or http_reason
    return ApiError(
        status,
        _text(answer.get("reason")) or http_reason,
        _text(text),
        causes=_causes(answer),
        maybe_done=maybe_done,
        retry_after_seconds=_retry_after(headers, answer),
        request=request,
    )


def reported_in_stream(answer: Mapping[str, Any], request: str) -> ApiError:
    """The ApiError of an ERROR event of a watch, whose object is a Status."""
    code = answer.get("code")
    return ApiError(
        code if isinstance(code, int) else 500,
        _text(answer.get("reason")),
        _text(answer.get("message")),
        request=request,
    )


def unanswered(error: Exception, *, request: str, writes: bool) -> ApiError:
    """The ApiError of a request without a response. It may have been carried out, unless it was never sent."""
    never_sent = isinstance(error, _NEVER_SENT) or _UNTRUSTED in str(error)
    return ApiError(0, "", message_of(error), maybe_done=writes and not never_sent, request=request)


def message_of(error: Exception) -> str:
    """The innermost message of a wrapped error, e.g. `connection refused`."""
    text = str(error)
    known_words = known_failure(text, _KNOWN_WORDS)
    if known_words is None and isinstance(error, TimeoutError | urllib3.exceptions.TimeoutError):
        # urllib3 counts "no route to host" as a timeout too, and its text has more detail
        is_refused = isinstance(error, urllib3.exceptions.NewConnectionError)
        return _bounded(text) if is_refused else "nothing came in time"
    return known_words or _bounded(text)


def status_of(body: bytes) -> Mapping[str, Any]:
    """The Status in a body; an empty one where the body is something else."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _bounded(text: object) -> str:
    return bounded(text, _MESSAGE_CHARACTERS)


def _causes(answer: Mapping[str, Any]) -> tuple[Cause, ...]:
    causes = _details(answer).get("causes")
    return tuple(
        Cause(_text(each.get("reason")), _bounded(_text(each.get("message"))), _text(each.get("field")))
        for each in (causes if isinstance(causes, list) else [])
        if isinstance(each, dict)
    )


def _details(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    details = answer.get("details")
    return details if isinstance(details, dict) else {}


def _retry_after(headers: Mapping[str, str], answer: Mapping[str, Any]) -> float | None:
    """Seconds; the header may also be a date, which nothing in a cluster sends."""
    try:
        return float(headers.get("Retry-After") or _details(answer)["retryAfterSeconds"])
    except (KeyError, TypeError, ValueError):
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
