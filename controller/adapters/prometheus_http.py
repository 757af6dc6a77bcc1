"""One bounded, sceptical conversation with Prometheus, through `prometheus-api-client`.

`prometheus.py` asks; what comes back is rows of numbers, or ObservationError with one sentence. What we add to
the library's `PrometheusConnect`: a deadline for the whole answer (its own timeout bounds each read, so a server
that drips a byte a second would hold a pass for ever), no retries (by default it takes 6 s to say "refused"), a
look at `warnings`, which it drops (an answer with warnings is a part of the answer), and rows that are checked.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec
import requests
import urllib3
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests.adapters import HTTPAdapter

from controller.adapters.answers import whole_body, words_for
from controller.errors import ObservationError, UsageError
from controller.texts import bounded

MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""10,000 jobs need about 20 MB; what is far above that is a tenant's label explosion, not an answer."""

_DETAIL_CHARACTERS = 200
_PLUS_INFINITY = re.compile(rb',\s*"\+Inf"\s*\]')


R = TypeVar("R")


class Row(msgspec.Struct, frozen=True, gc=False):
    """One series of an instant query's answer, as it is sent. `gc=False`: 70,000 are made for 5,000 jobs."""

    labels: dict[str, str] = msgspec.field(name="metric")
    sample: tuple[float, float] = msgspec.field(name="value")
    """When the query was evaluated, in Unix seconds, and the value."""

    @property
    def value(self) -> float:
        """What the query found; it may be NaN or infinite."""
        return self.sample[1]


class RangeRow(msgspec.Struct, frozen=True, gc=False):
    """One series of a range query's answer, as it is sent: (Unix seconds, value) in time order."""

    labels: dict[str, str] = msgspec.field(name="metric")
    points: list[tuple[float, float]] = msgspec.field(name="values")


class Target(msgspec.Struct, frozen=True):
    """What Prometheus scrapes, as its target API tells it."""

    labels: dict[str, str]
    health: str = "unknown"
    """up, down or unknown (not scraped yet)."""
    last_error: str = msgspec.field(default="", name="lastError")


class PrometheusHttp:
    """Sends queries to one Prometheus. Not for several threads at once: a deadline belongs to one reading."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        """`timeout_seconds` bounds all queries between two `begin` calls together, not each one."""
        self.shown_url = _without_credentials(url)
        self.queries = 0
        self._timeout_seconds = timeout_seconds
        self._deadline = 0.0
        self._expected: msgspec.json.Decoder[_Whole[Any]] | msgspec.json.Decoder[_WholeTargets] = _decoder(Row)
        session = requests.Session()
        session.trust_env = False  # HTTP_PROXY is for the outside; Prometheus is on loopback or in the cluster
        session.headers["Accept-Encoding"] = "identity"  # gzip doubles the time of large answers
        session.hooks["response"].append(self._receive)
        once = urllib3.Retry(0, read=False)  # with read=0 a timeout would be told as "too many retries"
        url = url.rstrip("/")
        self._connect = PrometheusConnect(url, session=session, retry=once)
        session.mount(url, _Adapter(max_retries=once))  # in the place of the library's, which is requests' own

    def begin(self) -> None:
        """Start the time and the count of a new reading."""
        self.queries = 0
        self._deadline = time.monotonic() + self._timeout_seconds

    def ask(self, query: str, at_seconds: float) -> list[Row]:
        """An instant query, evaluated at `at_seconds`. An empty list is an answer: no series."""
        return self.ask_for(Row, query, at_seconds)

    def ask_for(self, row: type[R], query: str, at_seconds: float) -> list[R]:
        """The same, read into rows of that class, which is like `Row` but may know only some labels."""
        with self._told_in_one_sentence():
            self._expected = _decoder(row)
            rows: list[R] = self._connect.custom_query(query, {"time": f"{at_seconds:.3f}"}, timeout=self._remaining())
            return rows

    def ask_range(self, query: str, start_seconds: float, end_seconds: float, step_seconds: float) -> list[RangeRow]:
        """A range query; at most 11,000 steps, which is Prometheus's own bound."""
        start, end = (datetime.fromtimestamp(seconds, tz=UTC) for seconds in (start_seconds, end_seconds))
        # The library rounds both to whole seconds: a 0.5 s step would be off by one. `params` wins over that.
        exact = {"start": f"{start_seconds:.3f}", "end": f"{end_seconds:.3f}"}
        with self._told_in_one_sentence():
            self._expected = _decoder(RangeRow)
            rows: list[RangeRow] = self._connect.custom_query_range(
                query, start, end, f"{step_seconds:.3f}", exact, timeout=self._remaining()
            )
            return rows

    def targets(self) -> list[Target]:
        """What is scraped now; ObservationError also where the server has no such API, as those that only store."""
        with self._told_in_one_sentence():
            self._expected = msgspec.json.Decoder(_WholeTargets)
            self._connect._timeout = self._remaining()  # its get_targets takes none
            rows: list[Target] = self._connect.get_targets("active")["result"]
            return rows

    def close(self) -> None:
        """Close the connections."""
        self._connect.close()

    def _remaining(self) -> float:
        self.queries += 1
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise requests.Timeout
        return remaining

    def _receive(self, response: requests.Response, **_: Any) -> None:
        """Response hook: read the body before the deadline, and refuse a part of an answer."""
        body = _body(response.raw, self._deadline)
        if not isinstance(response, _Answer):
            raise ValueError(f"{response.url}: sent on to another host")  # noqa: TRY004 - as unreadable as its page
        response.body = body
        if response.status_code != HTTPStatus.OK:
            return
        found = self._expected.decode(_with_readable_infinity(body))
        response.rows = found.data.result
        if found.warnings:
            raise ObservationError(
                f"Prometheus at {self.shown_url} gave a part of the answer and warned: {_bounded(found.warnings[0])}; "
                "nothing is changed until the answer is whole; look at its remote-read and storage health."
            )

    @contextmanager
    def _told_in_one_sentence(self) -> Iterator[None]:
        try:
            yield
        except requests.Timeout as error:
            raise self._failure(
                f"did not answer within {self._timeout_seconds:g} s", "see whether it hangs or is overloaded"
            ) from error
        except msgspec.ValidationError as error:
            raise self._failure(
                f"gave an answer with missing or strange fields ({_bounded(error)})", _IS_IT_PROMETHEUS
            ) from error
        except (ValueError, RecursionError) as error:
            raise self._failure("gave an answer that cannot be read", _IS_IT_PROMETHEUS) from error
        except requests.ConnectionError as error:
            raise self._failure(
                f"cannot be reached ({_reason(error)})", "see whether it runs and the URL is right"
            ) from error
        except requests.RequestException as error:
            raise self._failure(f"cannot be asked ({_reason(error)})", "correct the URL") from error
        except PrometheusApiClientException as error:
            raise self._failure(f"answered {_bounded(error)}", "see its log") from error

    def _failure(self, what: str, remedy: str) -> ObservationError:
        return ObservationError(f"Prometheus at {self.shown_url} {what}; {remedy}; nothing is changed meanwhile.")


class _Data(msgspec.Struct, Generic[R]):
    """The part of an answer that holds its rows."""

    result: list[R]


class _Whole(msgspec.Struct, Generic[R]):
    """An answer as it is sent: read into rows in one go, in a fifth of the time that dicts and then rows would take."""

    data: _Data[R]
    warnings: list[str] | None = None


class _Targets(msgspec.Struct):
    """The part of an answer of the target API that holds what is scraped."""

    result: list[Target] = msgspec.field(name="activeTargets")


class _WholeTargets(msgspec.Struct):
    """Such an answer; of 5,000 targets it is 15 MB, nearly all of it labels that were discovered and are not read."""

    data: _Targets
    warnings: list[str] | None = None


def _decoder(row: type[R]) -> msgspec.json.Decoder[_Whole[R]]:
    """Not strict: values are sent as strings, since JSON has no NaN."""
    return msgspec.json.Decoder(_Whole[row], strict=False)  # type: ignore[valid-type]


class _Answer(requests.Response):
    """An answer that was received whole. requests would copy the body, make text of the copy, and parse that."""

    body: bytes = b""
    rows: Sequence[object] = ()

    @property
    def content(self) -> bytes:
        """The body: 6 MB of each answer about 5,000 jobs."""
        return self.body

    def json(self, **_: Any) -> Any:
        """What `PrometheusConnect` takes out of it: rows that are read already."""
        return {"data": {"result": self.rows}}


class _Adapter(HTTPAdapter):
    """Makes such answers."""

    def build_response(self, request: requests.PreparedRequest, response: Any) -> requests.Response:
        """As requests does."""
        answer = super().build_response(request, response)
        answer.__class__ = _Answer
        return answer


_IS_IT_PROMETHEUS = "see whether a Prometheus, and not a proxy or a login page, is at that URL"


def _body(raw: Any, deadline: float) -> bytes:
    """All of it; requests.Timeout past the deadline, requests.ConnectionError when it breaks off or is too long."""
    try:
        return whole_body(raw, deadline, MAX_ANSWER_BYTES)
    except (TimeoutError, urllib3.exceptions.ReadTimeoutError) as error:
        raise requests.Timeout from error
    except urllib3.exceptions.HTTPError as error:
        raise requests.ConnectionError("the connection broke in mid-answer") from error
    except OSError as error:
        raise requests.ConnectionError(str(error)) from error


def _with_readable_infinity(body: bytes) -> bytes:
    """With `Inf` for `+Inf`, which msgspec does not read; only as a value, which a bracket closes, not as a label's."""
    return _PLUS_INFINITY.sub(b',"Inf"]', body) if b'"+Inf"' in body else body


def _reason(error: Exception) -> str:
    """A few words out of three layers of wrapping, e.g. `connection refused`."""
    return words_for(str(error)) or _bounded(error) or type(error).__name__


def _bounded(value: object) -> str:
    return bounded(value, _DETAIL_CHARACTERS)


def _without_credentials(url: str) -> str:
    """The URL as it may be shown; UsageError when it is not an http(s) URL."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, or above 65535
        usable = False
    if not usable:
        raise UsageError(f"{url!r} is not the URL of a Prometheus; write it like http://127.0.0.1:9090.")
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
