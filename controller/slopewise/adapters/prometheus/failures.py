"""Turns a failed request to Prometheus into an ObservationError: what failed, where, and the remedy.

The text of a server, a proxy or a library is masked by the `HttpAccess`, because it may quote the request and its
credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

import msgspec
import requests

from slopewise.adapters.http.access import HttpAccess
from slopewise.adapters.http.answers import known_failure
from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.http.session import RedirectedError
from slopewise.errors import ObservationError
from slopewise.text import bounded

_DETAIL_CHARACTERS = 200
_MAX_BYTES_OF_TEXT = 64 * 1024
_IN_THE_FILE = "in the file that --prometheus-config names"
_IS_IT_PROMETHEUS = "see whether a Prometheus, and not a proxy or a login page, is at that URL"
_LONG_URLS = "have the proxy before it let URLs of 16 KiB through"

_REMEDIES: Mapping[int, str] = {
    HTTPStatus.NOT_FOUND: "write its URL with the path under which it is served, as https://HOST/prometheus, and "
    "without /graph or /api/v1",
    HTTPStatus.PROXY_AUTHENTICATION_REQUIRED: f"write its user and password into proxy_url {_IN_THE_FILE}",
    HTTPStatus.REQUEST_URI_TOO_LONG: _LONG_URLS,
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: _LONG_URLS,
    HTTPStatus.TOO_MANY_REQUESTS: "raise its limit, or the policy's intervalSeconds",
}

_TRUST_IT = f"name the certificate of its authority as tls_config.ca_file {_IN_THE_FILE}"
_SHOW_ONE = f"name one that it accepts as tls_config.cert_file and key_file {_IN_THE_FILE}"
_NAME_IT = f"write the name that the certificate is for into the URL, or as tls_config.server_name {_IN_THE_FILE}"

_NONE_SHOWN = ("it asks for a client certificate", _SHOW_ONE)
_OF_OUR_CERTIFICATE = ("ALERT_CERTIFICATE_REQUIRED", "ALERT_UNKNOWN_CA", "ALERT_BAD_CERTIFICATE")
_TLS_TROUBLES: Mapping[str, tuple[str, str]] = {
    "certificate has expired": ("its certificate has expired", "renew that, or set this machine's clock"),
    "certificate is not yet valid": ("its certificate is not valid yet", "set the clocks of both machines"),
    "Hostname mismatch": ("its certificate is for another name", _NAME_IT),
    "IP address mismatch": ("its certificate is for another address", _NAME_IT),
    "CERTIFICATE_VERIFY_FAILED": ("its certificate is from an authority that is not trusted here", _TRUST_IT),
    "WRONG_VERSION_NUMBER": ("what answers there speaks no TLS", "write http:// into its URL"),
    "ALERT_UNKNOWN_CA": ("it does not trust the authority of our client certificate", _SHOW_ONE),
}
"""What is in OpenSSL's own text, in this order: what that means, and what to do. Other texts are shown themselves."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Makes the errors of one Prometheus."""

    endpoint: Endpoint
    access: HttpAccess
    timeout_seconds: float

    def of(self, error: Exception) -> ObservationError:
        """For an exception of a request, or of the reading of its answer."""
        return self._error(*self._what_and_remedy(error))

    def refused(self, status: int, body: bytes) -> ObservationError:
        """For an answer with an error status."""
        detail = self._bounded(_text_of(body))
        return self._error(f"answered {status}{f' ({detail})' if detail else ''}", self._remedy_for(status, detail))

    def partial(self, warning: str) -> ObservationError:
        """For an answer with a warning."""
        what = f"gave a part of the answer and warned: {self._bounded(warning)}"
        return self._error(what, "look at its stores and remote reads")

    def _what_and_remedy(self, error: Exception) -> tuple[str, str]:
        """In this order, because requests' errors inherit from each other, from OSError and from ValueError."""
        if isinstance(error, requests.Timeout):
            return f"did not answer within {self.timeout_seconds:g} s", "see whether it hangs or is overloaded"
        if isinstance(error, RedirectedError):
            target = self._bounded(error.target)
            return f"redirects to {target}, where nothing is asked", f"write the URL that answers; {_IS_IT_PROMETHEUS}"
        if isinstance(error, requests.ConnectionError):
            return self._not_reached(error)
        if isinstance(error, msgspec.ValidationError):
            return f"gave an answer with missing or strange fields ({self._bounded(error)})", _IS_IT_PROMETHEUS
        if isinstance(error, requests.RequestException):
            return f"cannot be asked ({self._reason(error)})", "correct the URL"
        return "gave an answer that cannot be read", _IS_IT_PROMETHEUS

    def _not_reached(self, error: requests.ConnectionError) -> tuple[str, str]:
        if isinstance(error, requests.exceptions.ProxyError):
            proxy = self.access.proxy
            through = "its proxy" if proxy is None else f"the proxy {proxy.url}"
            return f"cannot be reached through {through} ({self._reason(error)})", _proxy_remedy(str(error))
        if isinstance(error, requests.exceptions.SSLError):
            trouble, remedy = self._tls_trouble(str(error))
            return f"cannot be reached over TLS ({trouble or self._reason(error)})", remedy
        return f"cannot be reached ({self._reason(error)})", "see whether it runs and the URL is right"

    def _tls_trouble(self, text: str) -> tuple[str | None, str]:
        if not self.access.shows_certificate and any(part in text for part in _OF_OUR_CERTIFICATE):
            return _NONE_SHOWN  # servers report a missing certificate like a bad one
        found = (trouble for part, trouble in _TLS_TROUBLES.items() if part in text)
        return next(found, (None, "see whether it speaks TLS, and its log"))

    def _remedy_for(self, status: int, detail: str) -> str:
        if status == HTTPStatus.UNAUTHORIZED:
            return self._unauthorized(detail)
        if status == HTTPStatus.FORBIDDEN:
            return "give this account the right to query, or use another account"
        if status == HTTPStatus.BAD_REQUEST and (not detail or "HTTPS server" in detail):
            return "write https:// into its URL if it speaks TLS"  # Go's server says so, and often hangs up meanwhile
        return _REMEDIES.get(status, "see its log")

    def _unauthorized(self, detail: str) -> str:
        if "org id" in detail:  # Mimir's and Cortex' own words
            return f"name the tenant as http_headers.X-Scope-OrgID {_IN_THE_FILE}"
        if self.access.credentials is None:
            return "write what it asks for as basic_auth or authorization into a file, and add --prometheus-config FILE"
        return f"correct {self.access.credentials} in {self.endpoint.config_file}"

    def _reason(self, error: Exception) -> str:
        """A few words out of three layers of wrapping, e.g. `connection refused`."""
        return known_failure(str(error)) or self._bounded(_innermost(error)) or type(error).__name__

    def _bounded(self, text: object) -> str:
        return bounded(self.access.mask(text), _DETAIL_CHARACTERS)

    def _error(self, what: str, remedy: str) -> ObservationError:
        return ObservationError(f"Prometheus at {self.endpoint.url} {what}; {remedy}; nothing is changed meanwhile.")


class _Refused(msgspec.Struct):
    """An error as Prometheus sends it."""

    error: str


def _innermost(error: BaseException) -> BaseException:
    """What three layers of libraries have wrapped, each with a text of its own around it."""
    while True:
        wrapped = getattr(error, "reason", None) or next(iter(error.args), None)
        if not isinstance(wrapped, BaseException):
            return error
        error = wrapped


def _text_of(body: bytes) -> str:
    """What an answer that is no success says: Prometheus' own reason, else its text."""
    start = body[:_MAX_BYTES_OF_TEXT]
    try:
        return msgspec.json.decode(start, type=_Refused).error
    except (msgspec.DecodeError, RecursionError):
        return start.decode(errors="replace")


def _proxy_remedy(text: str) -> str:
    # Urllib3 says "Tunnel connection failed: 407 ..."; an address such as 127.0.0.1:40737 has the number too.
    asks = f"failed: {int(HTTPStatus.PROXY_AUTHENTICATION_REQUIRED)} " in text
    return _REMEDIES[HTTPStatus.PROXY_AUTHENTICATION_REQUIRED] if asks else "see whether that runs and lets it through"
