"""One bounded conversation with the API server: raw JSON in, raw JSON out, or an ApiError.

Everything that this package reads or writes goes through `KubeApi`. The `kubernetes` package brings the configuration
and the transport (`transport.py`); its typed models are passed by, because listing 2,000 pods takes 1.0 s with them and
0.15 s without. No request is sent twice: after a write that timed out it may have been done, and only whoever asked
knows how to find out (`ApiError.maybe_done`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlencode

import msgspec
import urllib3
from kubernetes.client import ApiException, Configuration

from controller import __version__
from controller.adapters.answers import CHUNK_BYTES, whole_body
from controller.adapters.kube.api_error import ApiError, Cause, refused, told_in_stream, unanswered, words_of
from controller.adapters.kube.contracts import Json
from controller.adapters.kube.paths import resource_of
from controller.adapters.kube.transport import Transport, load_configuration

__all__ = ["ApiError", "Cause", "KubeApi", "Watch"]

DEFAULT_TIMEOUT_SECONDS = 10.0

MAX_ANSWER_BYTES = 128 * 1024 * 1024
"""A page of 500 pods is 5 to 15 MB. What is far above that would not fit into the controller's memory."""

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""etcd takes objects up to 1.5 MB, 3 MB where somebody raised it."""

OnRequest = Callable[[str, str, int, float], None]
"""Told of each request: verb (`patch`), resource (`pods/resize`), HTTP status (0: no answer), seconds."""

_VERB = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class _Question:
    """One request, and how it is told of."""

    method: str
    path: str
    verb: str
    resource: str
    started_at: float

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    @property
    def asked(self) -> str:
        return f"{self.verb} {self.path}"


class KubeApi:
    """Asks one API server. Shape: `contracts.Api`. Safe from any thread; every call has a timeout and is sent once.

    `timeout_seconds` bounds the way to the end of the answer's headers, and again its body; a watch has its own.
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
        """By `transport.load_configuration`, which raises UsageError. Nothing is sent yet."""
        transport = Transport(lambda: load_configuration(kubeconfig, context))
        return cls(transport, timeout_seconds=timeout_seconds, on_request=on_request)

    @property
    def host(self) -> str:
        """The URL of the API server, for sentences."""
        return self._transport.host

    def with_timeout(self, timeout_seconds: float) -> KubeApi:
        """The same connections with another bound, e.g. for leader election, whose renewals must fail early."""
        return KubeApi(self._transport, timeout_seconds=timeout_seconds, on_request=self._on_request)

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._transport.close()

    def server_version(self) -> tuple[int, int]:
        """Major and minor, e.g. (1, 36). Asked once: an update of the control plane is seen by the next process."""
        if self._server_version is None:
            self._server_version = _version_of(self.get("/version"))
        return self._server_version

    def get(self, path: str, params: Mapping[str, str] | None = None, *, metadata_only: bool = False) -> Json:
        """An object, or a list where the path is a collection's. `metadata_only`: without spec and status."""
        return self._ask("GET", path, params, accept=_accept(path, metadata_only=metadata_only))

    def create(self, path: str, body: Json, params: Mapping[str, str] | None = None) -> Json:
        """POST to a collection, or to a subresource such as `eviction`."""
        return self._ask("POST", path, params, body)

    def patch(
        self, path: str, body: Json | list[Json], content_type: str, params: Mapping[str, str] | None = None
    ) -> Json:
        """PATCH; `content_type` is one of those in `contracts`."""
        return self._ask("PATCH", path, params, body, content_type)

    def replace(self, path: str, body: Json, params: Mapping[str, str] | None = None) -> Json:
        """PUT; with `metadata.resourceVersion` it is a conflict when somebody else was faster."""
        return self._ask("PUT", path, params, body)

    def delete(self, path: str, body: Json | None = None, params: Mapping[str, str] | None = None) -> Json:
        """DELETE; `body` is DeleteOptions."""
        return self._ask("DELETE", path, params, body)

    def watch(
        self, path: str, params: Mapping[str, str], *, read_timeout_seconds: float, metadata_only: bool = False
    ) -> Watch:
        """Open a watch. `read_timeout_seconds` is the longest silence before the connection counts as dead."""
        question = _question("GET", path, "watch")
        timeouts = (self._timeout_seconds, read_timeout_seconds)
        # The path of a watch is a collection's, and its events carry single objects.
        accept = _METADATA.format("PartialObjectMetadata") if metadata_only else _JSON
        response = self._send(question, {**params, "watch": "true"}, None, {"Accept": accept}, timeouts)
        if not _is_success(response.status):
            self._answer_of(question, response)
        self._on_request(question.verb, question.resource, response.status, _since(question))
        return Watch(response, question.asked)

    def _ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: object = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Json:
        question = _question(method, path)
        headers = {"Accept": accept, **({"Content-Type": content_type} if question.writes else {})}
        response = self._send(question, params or {}, body, headers, self._timeout_seconds)
        return self._answer_of(question, response)

    def _send(
        self,
        question: _Question,
        params: Mapping[str, str],
        body: object,
        headers: Mapping[str, str],
        timeout: float | tuple[float, float],
    ) -> urllib3.HTTPResponse:
        target = f"{question.path}?{urlencode(params)}" if params else question.path
        headers = {**headers, "User-Agent": f"slopewise/{__version__}"}
        try:
            return self._transport.send(question.method, target, headers, body, timeout)
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            self._on_request(question.verb, question.resource, 0, _since(question))
            raise unanswered(error, asked=question.asked, writes=question.writes) from error

    def _answer_of(self, question: _Question, response: urllib3.HTTPResponse) -> Json:
        """The JSON of a success; ApiError for everything else."""
        status = 0
        try:
            answer = whole_body(response, time.monotonic() + self._timeout_seconds, MAX_ANSWER_BYTES)
            status = response.status
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise unanswered(error, asked=question.asked, writes=question.writes) from error
        finally:
            self._on_request(question.verb, question.resource, status, _since(question))
        if status == 401:
            self._transport.renew_credentials()
        if not _is_success(status):
            raise refused(
                status, response.reason or "", response.headers, answer, asked=question.asked, writes=question.writes
            )
        return _parsed(answer, question)


class Watch:
    """The events of one open watch. Iterated by one thread; `close` may be called from any."""

    def __init__(self, response: urllib3.HTTPResponse, asked: str) -> None:
        self._response = response
        self._asked = asked
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
            raise ApiError(0, "", f"the watch broke: {words_of(error)}", asked=self._asked) from error
        if event["type"] == "ERROR":
            self._response.close()
            raise told_in_stream(event["object"], self._asked)
        return event

    def close(self) -> None:
        """End it, also while another thread waits in a read: that thread is then told that it has ended."""
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
    """The server does not fall back from one to the other: an object asked for as a list is refused (406)."""
    if not metadata_only:
        return _JSON
    _, is_object = resource_of(path)
    return _METADATA.format("PartialObjectMetadata" if is_object else "PartialObjectMetadataList")


def _question(method: str, path: str, verb: str = "") -> _Question:
    resource, is_object = resource_of(path)
    verb = verb or _VERB.get(method) or ("get" if is_object else "list")
    return _Question(method, path, verb, resource, time.monotonic())


def _since(question: _Question) -> float:
    return time.monotonic() - question.started_at


def _is_success(status: int) -> bool:
    return 200 <= status < 300


def _parsed(answer: bytes, question: _Question) -> Json:
    try:
        found = _decoded(answer)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ApiError(0, "", "the answer is not a JSON object", maybe_done=question.writes, asked=question.asked)
    return found


def _version_of(told: Json) -> tuple[int, int]:
    """Some providers write the minor version as `36+`."""
    try:
        return int(told["major"]), int(str(told["minor"]).rstrip("+"))
    except (KeyError, ValueError) as error:
        raise ApiError(0, "", f"/version says {told}", asked="get /version") from error


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
