"""Sends bounded requests to the API server: raw JSON in, raw JSON out, or an ApiError.

All reads and writes of this package go through `KubeApi`. The `kubernetes` package provides the configuration and the
transport (`transport.py`). Its typed models are not used, because listing 2,000 pods takes 1.0 s with them and 0.15 s
without. No request is sent twice: a write that timed out may have been carried out (`ApiError.maybe_done`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import urlencode

import msgspec
import urllib3
from kubernetes.client import ApiException, Configuration

from slopewise import __version__
from slopewise.adapters.http.answers import CHUNK_BYTES, whole_body
from slopewise.adapters.kube.client.errors import ApiError, Cause, message_of, refused, reported_in_stream, unanswered
from slopewise.adapters.kube.client.protocol import Json, resource_of
from slopewise.adapters.kube.client.transport import Transport, load_configuration

__all__ = ["ApiError", "Cause", "KubeApi", "Watch"]

DEFAULT_TIMEOUT_SECONDS = 10.0

MAX_ANSWER_BYTES = 128 * 1024 * 1024
"""A page of 500 pods is 5 to 15 MB. Far more would not fit into the controller's memory."""

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""etcd takes objects up to 1.5 MB, and 3 MB where the limit was raised."""

OnRequest = Callable[[str, str, int, float], None]
"""Called for each request with verb (`patch`), resource (`pods/resize`), HTTP status (0: no answer) and seconds."""

_VERB = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class _Request:
    """One request, and its labels in metrics and messages."""

    method: str
    path: str
    verb: str
    resource: str
    started_at: float

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    @property
    def description(self) -> str:
        return f"{self.verb} {self.path}"


class KubeApi:
    """A client of one API server. Shape: `protocol.Api`. Safe from any thread; no call is repeated or unbounded.

    `timeout_seconds` bounds the time to the end of the response's headers, and again its body; a watch has its own
    bound.
    """

    def __init__(
        self,
        configuration: Configuration | Transport,
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        on_request: OnRequest = lambda *_: None,
    ) -> None:
        self._transport = configuration if isinstance(configuration, Transport) else Transport(lambda: configuration)
        self._timeout_seconds = timeout_seconds
        self._on_request = on_request
        self._server_version: tuple[int, int] | None = None

    @classmethod
    def connect(
        cls,
        *,
        kubeconfig: str | None = None,
        context: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        on_request: OnRequest = lambda *_: None,
    ) -> KubeApi:
        """A client by `transport.load_configuration`, which raises UsageError. Nothing is sent yet."""
        transport = Transport(lambda: load_configuration(kubeconfig, context))
        return cls(transport, timeout_seconds=timeout_seconds, on_request=on_request)

    @property
    def host(self) -> str:
        """The URL of the API server, for messages."""
        return self._transport.host

    def with_timeout(self, timeout_seconds: float) -> KubeApi:
        """The same connections with another bound, e.g. for leader election, whose renewals must fail early."""
        return KubeApi(self._transport, timeout_seconds=timeout_seconds, on_request=self._on_request)

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._transport.close()

    def server_version(self) -> tuple[int, int]:
        """Major and minor, e.g. (1, 36). Read once: the next process sees an update of the control plane."""
        if self._server_version is None:
            self._server_version = _version_of(self.get("/version"))
        return self._server_version

    def clock_ahead_seconds(self) -> float | None:
        """By how much the API server's clock is ahead of this machine's, by the date of an answer, to about a second.

        None: its answers have no date, which a proxy may have removed.
        """
        request, before = _request_of("GET", "/version"), time.time()
        response = self._send(request, {}, None, {"Accept": _JSON}, self._timeout_seconds)
        self._answer_of(request, response)
        try:
            date = parsedate_to_datetime(response.headers["Date"])
        except (KeyError, TypeError, ValueError):
            return None
        return date.timestamp() + 0.5 - (before + time.time()) / 2  # whole seconds, cut off: half of one on average

    def get(self, path: str, params: Mapping[str, str] | None = None, *, metadata_only: bool = False) -> Json:
        """An object, or a list where the path is a collection's. `metadata_only`: without spec and status."""
        return self._request("GET", path, params, accept=_accept(path, metadata_only=metadata_only))

    def create(self, path: str, body: Json, params: Mapping[str, str] | None = None) -> Json:
        """POST to a collection, or to a subresource such as `eviction`."""
        return self._request("POST", path, params, body)

    def patch(
        self, path: str, body: Json | list[Json], content_type: str, params: Mapping[str, str] | None = None
    ) -> Json:
        """PATCH; `content_type` is one of those in `protocol`."""
        return self._request("PATCH", path, params, body, content_type)

    def replace(self, path: str, body: Json, params: Mapping[str, str] | None = None) -> Json:
        """PUT; with `metadata.resourceVersion` it is a conflict when another client wrote first."""
        return self._request("PUT", path, params, body)

    def delete(self, path: str, body: Json | None = None, params: Mapping[str, str] | None = None) -> Json:
        """DELETE; `body` is DeleteOptions."""
        return self._request("DELETE", path, params, body)

    def watch(
        self, path: str, params: Mapping[str, str], *, read_timeout_seconds: float, metadata_only: bool = False
    ) -> Watch:
        """Open a watch. `read_timeout_seconds` is the longest silence before the connection counts as dead."""
        request = _request_of("GET", path, "watch")
        timeouts = (self._timeout_seconds, read_timeout_seconds)
        # The path of a watch is a collection's, and its events carry single objects.
        accept = _METADATA.format("PartialObjectMetadata") if metadata_only else _JSON
        response = self._send(request, {**params, "watch": "true"}, None, {"Accept": accept}, timeouts)
        if not _is_success(response.status):
            self._answer_of(request, response)
        self._on_request(request.verb, request.resource, response.status, _since(request))
        return Watch(response, request.description)

    def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: object = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Json:
        request = _request_of(method, path)
        headers = {"Accept": accept, **({"Content-Type": content_type} if request.writes else {})}
        response = self._send(request, params or {}, body, headers, self._timeout_seconds)
        return self._answer_of(request, response)

    def _send(
        self,
        request: _Request,
        params: Mapping[str, str],
        body: object,
        headers: Mapping[str, str],
        timeout: float | tuple[float, float],
    ) -> urllib3.HTTPResponse:
        target = f"{request.path}?{urlencode(params)}" if params else request.path
        headers = {**headers, "User-Agent": f"slopewise/{__version__}"}
        try:
            return self._transport.send(request.method, target, headers, body, timeout)
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            self._on_request(request.verb, request.resource, 0, _since(request))
            raise unanswered(error, request=request.description, writes=request.writes) from error

    def _answer_of(self, request: _Request, response: urllib3.HTTPResponse) -> Json:
        """The JSON of a success; ApiError for everything else."""
        status = 0
        try:
            answer = whole_body(response, time.monotonic() + self._timeout_seconds, MAX_ANSWER_BYTES)
            status = response.status
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise unanswered(error, request=request.description, writes=request.writes) from error
        finally:
            self._on_request(request.verb, request.resource, status, _since(request))
        if status == 401:
            self._transport.renew_credentials()
        if not _is_success(status):
            raise refused(
                status,
                response.reason or "",
                response.headers,
                answer,
                request=request.description,
                writes=request.writes,
            )
        return _parsed(answer, request)


class Watch:
    """The events of one open watch. Iterated by one thread; `close` may be called from any."""

    def __init__(self, response: urllib3.HTTPResponse, request: str) -> None:
        self._response = response
        self._request = request
        self._lines: deque[bytes] = deque()
        self._rest = bytearray()
        self._closed = False

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Json:
        """The next event; StopIteration at the server's end; ApiError when it breaks or is an ERROR (410, say)."""
        try:
            event = _event(self._next_line())
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            self._response.close()
            if self._closed:
                raise StopIteration from error
            raise ApiError(0, "", f"the watch broke: {message_of(error)}", request=self._request) from error
        except ApiError:
            self._response.close()
            raise
        if event["type"] == "ERROR":
            self._response.close()
            raise reported_in_stream(event["object"], self._request)
        return event

    def close(self) -> None:
        """End it, also while another thread waits in a read: that thread gets StopIteration."""
        self._closed = True
        with suppress(OSError, ValueError, RuntimeError):  # it is over already
            self._response.shutdown()

    def _next_line(self) -> bytes:
        while not self._lines:
            chunk = self._response.read1(CHUNK_BYTES, decode_content=True)
            if not chunk:
                if self._rest.strip():
                    raise ValueError("it ended in the middle of an event")
                raise StopIteration
            self._rest += chunk
            *lines, self._rest = self._rest.split(b"\n")
            self._lines.extend(bytes(line) for line in lines if line.strip())
            if len(self._rest) > MAX_EVENT_BYTES:
                raise ValueError(f"an event of more than {MAX_EVENT_BYTES // 2**20} MiB")
        return self._lines.popleft()


_JSON = "application/json"
_METADATA = "application/json;as={};g=meta.k8s.io;v=v1,application/json"


def _accept(path: str, *, metadata_only: bool) -> str:
    """The server does not fall back from one to the other: an object request for as a list is refused (406)."""
    if not metadata_only:
        return _JSON
    _, is_object = resource_of(path)
    return _METADATA.format("PartialObjectMetadata" if is_object else "PartialObjectMetadataList")


def _request_of(method: str, path: str, verb: str = "") -> _Request:
    resource, is_object = resource_of(path)
    verb = verb or _VERB.get(method) or ("get" if is_object else "list")
    return _Request(method, path, verb, resource, time.monotonic())


def _since(request: _Request) -> float:
    return time.monotonic() - request.started_at


def _is_success(status: int) -> bool:
    return 200 <= status < 300


def _parsed(answer: bytes, request: _Request) -> Json:
    try:
        found = _decoded(answer)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ApiError(0, "", "the answer is not a JSON object", maybe_done=request.writes, request=request.description)
    return found


def _version_of(version: Json) -> tuple[int, int]:
    """Some providers write the minor version as `36+`."""
    try:
        return int(version["major"]), int(str(version["minor"]).rstrip("+"))
    except (KeyError, ValueError) as error:
        raise ApiError(0, "", f"/version says {version}", request="get /version") from error


def _decoded(text: bytes) -> object:
    """JSON of any shape; ValueError when it is none."""
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _event(line: bytes) -> Json:
    event = _decoded(line)
    if not (isinstance(event, dict) and isinstance(event.get("type"), str) and isinstance(event.get("object"), dict)):
        raise ValueError("an event without type and object")  # noqa: TRY004 - as unreadable as broken JSON
    return event
