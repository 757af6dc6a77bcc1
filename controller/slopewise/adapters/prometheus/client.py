"""Sends queries to Prometheus within one deadline and validates the answers, through `prometheus-api-client`.

The result is rows of numbers, or ObservationError (`failures.py`). Additions to the library's `PrometheusConnect`:
a deadline for the whole answer (its own timeout bounds each read, so a server that sends a byte a second would hold
a pass forever), no retries (its default takes 6 s to report "refused"), refusal of answers with `warnings`, which it
drops although they mark partial answers, validated rows, and the `http_config` (`http/session.py`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Generic, TypeVar

import msgspec
import requests
import urllib3
from prometheus_api_client import PrometheusConnect

from slopewise.adapters.http.access import HttpAccess, read_access
from slopewise.adapters.http.answers import whole_body
from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.http.session import AccessAdapter, OneHostSession
from slopewise.adapters.prometheus.failures import Failures
from slopewise.errors import ObservationError, UsageError

MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""10,000 jobs need about 20 MB; far larger answers come from a label explosion."""

ANOTHER_MOMENT_SECONDS = 10.0
"""An instant query is evaluated at the moment that it names, to the millisecond; a server may round it to its step."""

_PLUS_INFINITY = re.compile(rb',\s*"\+Inf"\s*\]')


R = TypeVar("R")
D = TypeVar("D")

OnQuery = Callable[[str, float], None]
"""The outcome of a query, `answered` or `failed`, and how many seconds it took."""


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
    """One target of Prometheus' target API."""

    labels: dict[str, str]
    health: str = "unknown"
    """up, down or unknown (not scraped yet)."""
    last_error: str = msgspec.field(default="", name="lastError")
    last_scrape_seconds: float = msgspec.field(default=0.0, name="lastScrapeDuration")


class PrometheusHttp:
    """Sends queries to one Prometheus. Not for several threads at once: a deadline belongs to one reading."""

    def __init__(self, endpoint: Endpoint | str, timeout_seconds: float, on_query: OnQuery = lambda *_: None) -> None:
        """`timeout_seconds` bounds all queries between two `begin` calls together, not each one.

        `on_query`: called after each query.

        UsageError for a URL, or an `http_config` with all that it names, that cannot be used.
        """
        self._endpoint = Endpoint(endpoint) if isinstance(endpoint, str) else endpoint
        self.queries = 0
        self._on_query = on_query
        self._timeout_seconds = timeout_seconds
        self._deadline = 0.0
        self._expected: msgspec.json.Decoder[Any] = _decoder(Row)
        self._use(read_access(self._endpoint))

    @property
    def shown_url(self) -> str:
        """Its URL; an `Endpoint` has no secret in its URL."""
        return self._endpoint.url

    def begin(self) -> None:
        """Start the deadline and the count of a new reading, with the present credentials of the files.

        ObservationError when they cannot be used, e.g. when one was rewritten and is empty.
        """
        self.queries = 0
        self._deadline = time.monotonic() + self._timeout_seconds
        if not self._access.is_current():
            self._renew()

    def ask(self, query: str, at_seconds: float) -> list[Row]:
        """An instant query, evaluated at `at_seconds`. An empty list is an answer: no series."""
        return self.ask_for(Row, query, at_seconds)

    def ask_for(self, row: type[R], query: str, at_seconds: float) -> list[R]:
        """The same, read into rows of that class, which is like `Row` but may know only some labels."""
        with self._message_of():
            rows = self._instant(row, query, at_seconds)
            self._check_moment(rows, at_seconds)
            return rows

    def ask_samples(self, query: str, at_seconds: float) -> list[RangeRow]:
        """An instant query of a range selector, `metric[60s]`: the samples as they were scraped, at their own times."""
        with self._message_of():
            return self._instant(RangeRow, query, at_seconds)

    def ask_range(self, query: str, start_seconds: float, end_seconds: float, step_seconds: float) -> list[RangeRow]:
        """A range query; at most 11,000 steps, which is Prometheus's own bound."""
        start, end = (datetime.fromtimestamp(seconds, tz=UTC) for seconds in (start_seconds, end_seconds))
        # The library rounds both to whole seconds: a 0.5 s step would be off by one. `params` wins over that.
        exact = {"start": f"{start_seconds:.3f}", "end": f"{end_seconds:.3f}"}
        with self._message_of():
            self._expected = _decoder(RangeRow)
            rows: list[RangeRow] = self._connect.custom_query_range(
                query, start, end, f"{step_seconds:.3f}", exact, timeout=self._remaining()
            )
            return rows

    def targets(self) -> list[Target]:
        """What is scraped now; ObservationError also where the server has no such API, as those that only store."""
        with self._message_of():
            self._expected = msgspec.json.Decoder(_Whole[_Targets])
            self._connect._timeout = self._remaining()  # noqa: SLF001 - its get_targets takes none
            rows: list[Target] = self._connect.get_targets("active")["result"]
            return rows

    def close(self) -> None:
        """Close the connections."""
        self._connect.close()

    def _instant(self, row: type[R], query: str, at_seconds: float) -> list[R]:
        self._expected = _decoder(row)
        rows: list[R] = self._connect.custom_query(query, {"time": f"{at_seconds:.3f}"}, timeout=self._remaining())
        return rows

    def _use(self, access: HttpAccess) -> None:
        url = self._endpoint.url.rstrip("/")
        session = OneHostSession(url, access)
        session.headers["Accept-Encoding"] = "identity"  # gzip doubles the time of large answers
        session.hooks["response"].append(self._receive)
        self._connect = PrometheusConnect(url, session=session, retry=urllib3.Retry(0))
        for prefix in (url, "https://", "http://"):  # in the place of the library's, which are requests' own
            session.mount(prefix, _Adapter(access))
        self._access = access
        self._failures = Failures(self._endpoint, access, self._timeout_seconds)

    def _renew(self) -> None:
        """Reload changed credentials; until they can be used, no query is sent with the former ones."""
        try:
            access = read_access(self._endpoint)
        except UsageError as error:
            message = str(error).rstrip(".")
            raise ObservationError(f"{message}; nothing is changed meanwhile.") from None
        self._connect.close()  # also the connections that were opened with an old certificate
        self._use(access)

    def _check_moment(self, rows: Sequence[Any], at_seconds: float) -> None:
        """ObservationError for an answer of another moment: every row holds the time of its evaluation.

        A cache in between may return an answer of minutes ago whose samples were fresh then.
        """
        age_seconds = at_seconds - rows[0].sample[0] if rows else 0.0
        if abs(age_seconds) > ANOTHER_MOMENT_SECONDS:
            raise ObservationError(
                f"Prometheus at {self.shown_url} gave an answer of another moment ({age_seconds:.0f} s ago); see "
                "whether a cache lies in between, and let it pass instant queries on; nothing is changed meanwhile."
            )

    def _remaining(self) -> urllib3.Timeout:
        """The time for connecting and an answer's headers together; `whole_body` bounds the rest."""
        self.queries += 1
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise requests.Timeout
        return urllib3.Timeout(total=remaining)

    def _receive(self, response: requests.Response, **_: Any) -> None:
        """Response hook: read the body before the deadline, and refuse a partial answer."""
        body = self._body(response)
        if not isinstance(response, _Answer):
            raise TypeError("the session was given another adapter")
        response.body = body
        if response.is_redirect:
            return
        if response.status_code != HTTPStatus.OK:
            raise self._failures.refused(response.status_code, body)
        # With `Inf` for `+Inf`, which msgspec does not read; only as a value, which a bracket closes, not as a label's.
        found = self._expected.decode(_PLUS_INFINITY.sub(b',"Inf"]', body) if b'"+Inf"' in body else body)
        response.rows = found.data.result
        if found.warnings or found.is_partial:
            raise self._failures.partial((found.warnings or ["isPartial"])[0])

    def _body(self, response: requests.Response) -> bytes:
        """The body; empty for an error response that breaks off, whose status is enough."""
        try:
            return _whole_body(response.raw, self._deadline)
        except requests.ConnectionError:
            if response.status_code == HTTPStatus.OK:
                raise
            return b""

    @contextmanager
    def _message_of(self) -> Iterator[None]:
        began, outcome = time.monotonic(), "failed"
        try:
            yield
            outcome = "answered"
        except (requests.RequestException, ValueError, RecursionError) as error:
            failure = self._failures.of(error)
        else:
            return
        finally:
            self._on_query(outcome, time.monotonic() - began)
        raise failure  # outside of the block: the text of the cause may quote a secret


class _Rows(msgspec.Struct, Generic[R]):
    """The part of an answer that holds its rows."""

    result: list[R]


class _Targets(msgspec.Struct):
    """The part of an answer of the target API that holds what is scraped.

    Of 5,000 targets it is 15 MB, nearly all of it labels that were discovered and are not read.
    """

    result: list[Target] = msgspec.field(name="activeTargets")


class _Whole(msgspec.Struct, Generic[D]):
    """An answer as it is sent: read into rows in one go, in a fifth of the time that dicts and then rows would take."""

    data: D
    warnings: list[str] | None = None
    is_partial: bool = msgspec.field(name="isPartial", default=False)
    """VictoriaMetrics' field for what others report as a warning."""


def _decoder(row: type[R]) -> msgspec.json.Decoder[_Whole[_Rows[R]]]:
    """Not strict: values are sent as strings, since JSON has no NaN."""
    return msgspec.json.Decoder(_Whole[_Rows[row]], strict=False)  # type: ignore[valid-type]


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


class _Adapter(AccessAdapter):
    """Makes such answers."""

    def build_response(self, request: requests.PreparedRequest, response: Any) -> requests.Response:
        """As requests does."""
        answer = super().build_response(request, response)
        answer.__class__ = _Answer
        return answer


def _whole_body(raw: Any, deadline: float) -> bytes:
    """All of it; requests.Timeout past the deadline, requests.ConnectionError when it breaks off or is too long."""
    try:
        return whole_body(raw, deadline, MAX_ANSWER_BYTES)
    except (TimeoutError, urllib3.exceptions.ReadTimeoutError) as error:
        raise requests.Timeout from error
    except urllib3.exceptions.HTTPError as error:
        raise requests.ConnectionError("the connection broke in mid-answer") from error
    except OSError as error:
        raise requests.ConnectionError(str(error)) from error
