"""What can go wrong with one request to the API server, as one exception.

`api.py` raises it; whoever asked decides by its properties (`is_conflict`, `maybe_done`, …), never by its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import urllib3

from controller.adapters.answers import KNOWN_WORDS, words_for
from controller.errors import SlopewiseError
from controller.texts import bounded

_MESSAGE_CHARACTERS = 400

_DENIED = re.compile(r"denied (?:the )?request(?:: (?P<why>.*))?")
_OUR_POLICIES = "ValidatingAdmissionPolicy 'slopewise-"
_WEBHOOK = "admission webhook "
_FIRST_SERVER_ERROR = 500

_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


class CredentialsError(OSError):
    """The token cannot be read or had just now, so that nothing was sent."""


_NEVER_SENT = (
    CredentialsError,
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.ProxyError,
)
_KNOWN_WORDS: Mapping[str, str] = {
    **KNOWN_WORDS,
    "IncompleteRead": "it closed the connection in mid-answer",
    _UNTRUSTED: "its certificate is not one that the configuration trusts",
}


class Cause(NamedTuple):
    """One entry of a Status's `details.causes`, e.g. ("NodeCapacity", "node didn't have enough …", "spec")."""

    reason: str
    message: str
    field: str


class ApiError(SlopewiseError):
    """The API server did not do what was asked, or did not say that it did.

    `status` is the HTTP status, 0 when there was no answer. `message` is one bounded line: the server's own words, or
    what became of the connection. `maybe_done`: a write that may have been carried out all the same; read before it is
    sent again. `retry_after_seconds`: what the server asked for (429, 503).
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
        asked: str = "",
    ) -> None:
        """`asked`: the request in words, e.g. `patch /api/v1/namespaces/n/pods/p/resize`."""
        self.status = status
        self.reason = reason
        self.message = _bounded(message)
        self.causes = causes
        self.maybe_done = maybe_done
        self.retry_after_seconds = retry_after_seconds
        kind = f" {reason}" if reason else ""
        request = f" to {asked}" if asked else ""
        told = f"The API server answered {status}{kind}{request}" if status else f"No answer{request}"
        super().__init__(f"{told}: {self.message}")

    @property
    def is_conflict(self) -> bool:
        """Somebody else wrote first, or a precondition does not hold: read again, and think again."""
        return self.status == 409 and self.reason != "AlreadyExists"

    @property
    def already_exists(self) -> bool:
        """What was to be created is there."""
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def is_gone(self) -> bool:
        """There is no such object, or no such kind of objects."""
        return self.status == 404

    @property
    def is_forbidden(self) -> bool:
        """RBAC, a quota, an admission policy or a node's capacity: `message` and `causes` say which."""
        return self.status == 403

    @property
    def is_denied(self) -> bool:
        """An admission policy or a webhook refused it, with whatever status."""
        return _DENIED.search(self.message) is not None

    @property
    def denial(self) -> str:
        """Why that refused it, and what to do. A policy of ours says so itself."""
        what, said = self.denial_and_answer
        return f"{what} ({said})" if said else what

    @property
    def denial_and_answer(self) -> tuple[str, str]:
        """The same, and the server's own words apart; those are empty where a policy of ours has said it all."""
        found = _DENIED.search(self.message)
        if found is not None and found["why"] and _OUR_POLICIES in self.message:
            return found["why"], ""
        who = "webhook" if _WEBHOOK in self.message else "policy"
        return f"an admission {who} denies it; allow it there for our account", self.message

    @property
    def is_invalid(self) -> bool:
        """The object would not be valid; asking the same again gives the same."""
        return self.status == 422

    @property
    def is_expired(self) -> bool:
        """The resource version or the page is older than what the server remembers: list anew."""
        return self.status == 410

    @property
    def is_throttled(self) -> bool:
        """Too many requests: wait, `retry_after_seconds` if it says so."""
        return self.status == 429


def refused(
    status: int, http_reason: str, headers: Mapping[str, str], body: bytes, *, asked: str, writes: bool
) -> ApiError:
    """The ApiError of an answer that is no success. Not every body is a Status: proxies answer too."""
    told = status_of(body)
    # What failed inside the server, or on the way back from it, may have been done before it failed.
    maybe_done = writes and status >= _FIRST_SERVER_ERROR
    text = told.get("message") or body[: 4 * _MESSAGE_CHARACTERS].decode(errors="replace") or http_reason
    return ApiError(
        status,
        _text(told.get("reason")) or http_reason,
        _text(text),
        causes=_causes(told),
        maybe_done=maybe_done,
        retry_after_seconds=_retry_after(headers, told),
        asked=asked,
    )


def told_in_stream(told: Mapping[str, Any], asked: str) -> ApiError:
    """The ApiError of an ERROR event of a watch, whose object is a Status."""
    code = told.get("code")
    return ApiError(
        code if isinstance(code, int) else 500, _text(told.get("reason")), _text(told.get("message")), asked=asked
    )


def unanswered(error: Exception, *, asked: str, writes: bool) -> ApiError:
    """The ApiError of a request without an answer. It may have been done, unless it never left this machine."""
    never_sent = isinstance(error, _NEVER_SENT) or _UNTRUSTED in str(error)
    return ApiError(0, "", words_of(error), maybe_done=writes and not never_sent, asked=asked)


def words_of(error: Exception) -> str:
    """A few words out of three layers of wrapping, e.g. `connection refused`."""
    text = str(error)
    known_words = words_for(text, _KNOWN_WORDS)
    if known_words is None and isinstance(error, TimeoutError | urllib3.exceptions.TimeoutError):
        # urllib3 counts "no route to host" as a timeout too, and its text says more
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


def _causes(told: Mapping[str, Any]) -> tuple[Cause, ...]:
    causes = _details(told).get("causes")
    return tuple(
        Cause(_text(each.get("reason")), _bounded(_text(each.get("message"))), _text(each.get("field")))
        for each in (causes if isinstance(causes, list) else [])
        if isinstance(each, dict)
    )


def _details(told: Mapping[str, Any]) -> Mapping[str, Any]:
    details = told.get("details")
    return details if isinstance(details, dict) else {}


def _retry_after(headers: Mapping[str, str], told: Mapping[str, Any]) -> float | None:
    """Seconds; the header may also be a date, which nothing in a cluster sends."""
    try:
        return float(headers.get("Retry-After") or _details(told)["retryAfterSeconds"])
    except (KeyError, TypeError, ValueError):
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
