"""A small Kubernetes API server on loopback, for tests: real HTTP, any kind of object, and faults on demand.

    with ApiServer() as server:
        server.put("/api/v1/namespaces/team-a/pods", {"metadata": {"name": "p"}, "spec": {...}})
        server.fault(Drop(after=True), method="PATCH", path="/resize$")
        api = server.client()
        ...
        assert [each.method for each in server.requests] == ["PATCH"]

Objects behave as `api_objects.py` says. What a real cluster does on its own (scheduling, kubelets, garbage collection)
a test does itself, with `put` and `remove`.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from kubernetes.client import Configuration
from support.api_objects import Address, Json, Objects, RefusedError, Selector, page_of
from support.late_views import View, Waiting

from slopewise.adapters.kube.client.client import KubeApi, OnRequest

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
TICK_SECONDS = 0.02
"""How often a frozen or waiting handler looks up."""


@dataclass(frozen=True)
class Request:
    """One request that came in."""

    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: Any = None

    @property
    def is_watch(self) -> bool:
        return self.params.get("watch") in ("true", "1")

    @property
    def right(self) -> tuple[str, str, str]:
        """Verb, group and resource, as a role names them."""
        at = Address.of(self.path)
        reading = "watch" if self.is_watch else "get" if at.name else "list"
        verb = _VERBS.get(self.method, reading)
        resource = f"{at.resource}/{at.subresource}" if at.subresource else at.resource
        return verb, at.group.split("/")[2] if at.group.startswith("/apis/") else "", resource


@dataclass(frozen=True)
class Reply:
    """Answer this instead. `body` is JSON, or bytes as they are."""

    status: int
    body: Json | bytes = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hang:
    """Say nothing until the server stops. `after`: having done what was asked."""

    after: bool = False


@dataclass(frozen=True)
class Drop:
    """Close the connection without an answer. `after`: having done what was asked."""

    after: bool = False


@dataclass(frozen=True)
class Drip:
    """A byte of the body every so often, for ever; `headers`: already of the headers."""

    every_seconds: float = 0.05
    headers: bool = False


@dataclass(frozen=True)
class Half:
    """Half of the body, and then the connection closes."""


Fault = Reply | Hang | Drop | Drip | Half


@dataclass
class _Planned:
    fault: Fault
    method: str
    path: str
    watches: bool
    times: int

    def hits(self, request: Request) -> bool:
        return (
            self.times > 0
            and self.method in ("", request.method)
            and (request.is_watch or not self.watches)
            and re.search(self.path, request.path) is not None
        )


def refusal(code: int, reason: str, message: str, causes: tuple[Json, ...] = ()) -> Reply:
    """A Reply with a Status, e.g. `refusal(403, "Forbidden", "exceeded quota: …")`."""
    return Reply(code, RefusedError(code, reason, message, causes).status)


class ApiServer(AbstractContextManager["ApiServer"]):
    """Serves on a free port of the loopback address until it is left."""

    def __init__(self) -> None:
        self.objects = Objects()
        self.requests: list[Request] = []
        self._planned: list[_Planned] = []
        self._frozen = threading.Event()
        self._port = 0
        self.epoch = 0
        """Grows whenever all connections are to end: what a handler compares with the one it began in."""
        self.minor_version = "36"
        self.clock_ahead_seconds = 0.0
        """By which the date of each answer is off."""
        self.denied: set[tuple[str, str, str]] = set()
        """Rights, as `Request.right`, that access reviews refuse."""
        self.interfere: Callable[[Request], Fault | None] = lambda _: None
        """Asked about each request, in the thread that carries it out: the fault to do; None: what is planned."""
        self.views: dict[str, View] = {}
        """How the watches of a resource show its changes; at once and all of them where nothing is said."""
        self.streams = 0
        """Watches that are open now."""
        self._start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def kubeconfig(self) -> str:
        """The text of a kubeconfig for this server."""
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                "clusters": [{"name": "test", "cluster": {"server": self.url}}],
                "users": [{"name": "test", "user": {"token": "test-token"}}],
            }
        )

    def client(self, timeout_seconds: float = 30.0, on_request: OnRequest = lambda *_: None) -> KubeApi:
        """Our client, talking to this server. Only with `Hang` does a test wait so long."""
        configuration = Configuration(host=self.url, proxy="")
        return KubeApi(configuration, timeout_seconds=timeout_seconds, on_request=on_request)

    def put(self, collection: str, obj: Json) -> Json:
        """Make or replace an object; watches receive it. Returns it with its metadata."""
        return self.objects.put(Address.of(collection), obj)

    def get(self, path: str) -> Json:
        """The object at a path now; `RefusedError` when there is none."""
        return self.objects.get(Address.of(path))

    def remove(self, path: str) -> None:
        """Delete an object, whatever its finalizers; watches receive it."""
        self.objects.remove(Address.of(path))

    def fault(self, fault: Fault, *, method: str = "", path: str = "", watches: bool = False, times: int = 1) -> None:
        """The next `times` requests with that method and a path that `path` (a regular expression) is found in.

        `watches`: only those that open a watch.
        """
        self._planned.append(_Planned(fault, method, path, watches, times))

    def heal(self) -> None:
        """Plan no more faults."""
        self._planned.clear()

    def asked(self, method: str = "", path: str = "") -> list[Request]:
        """The requests so far with that method and a path that `path` is found in."""
        return [each for each in self.requests if method in ("", each.method) and re.search(path, each.path)]

    def freeze(self) -> None:
        """Like SIGSTOP: connections are accepted by the kernel and stay open, and nothing is said on them."""
        self._frozen.set()

    def thaw(self) -> None:
        self._frozen.clear()

    def end_watches(self) -> None:
        """Every open watch ends, the way it ends after `timeoutSeconds`."""
        self.epoch += 1

    def bookmark(self) -> None:
        """Every open watch that allows it receives the newest resource version."""
        self.say({"type": "BOOKMARK"})

    def say(self, event: Json | bytes) -> None:
        """This goes to every open watch as it is; a BOOKMARK gets its object."""
        with self.objects.changed:
            self.said.append(event)
            self.objects.changed.notify_all()

    def stop(self) -> None:
        """Close every connection and the port."""
        self.epoch += 1
        self._frozen.clear()
        self._server.shutdown()
        self._server.end_all()
        self._server.server_close()
        self._thread.join()

    def restart(self) -> None:
        """Serve again, on the same port, with the same objects."""
        self._start()

    def frozen(self) -> bool:
        return self._frozen.is_set()

    def next_fault(self, request: Request) -> Fault | None:
        if (fault := self.interfere(request)) is not None:
            return fault
        for planned in self._planned:
            if planned.hits(request):
                planned.times -= 1
                return planned.fault
        return None

    def _start(self) -> None:
        self.said: list[Json | bytes] = []
        owner = self

        class Handler(_Handler):
            server_ = owner

        self._server = _Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(TICK_SECONDS,), daemon=True)
        self._thread.start()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._sockets: set[socket.socket] = set()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._sockets.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._sockets.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up in mid-answer are what the tests are about."""

    def end_all(self) -> None:
        for each in list(self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else headers and body, sent apart, cost 40 ms a request
    server_: ClassVar[ApiServer]

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the base class's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Silence."""

    def _serve(self) -> None:
        owner = self.server_
        self._epoch = owner.epoch
        parts = urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        params = dict(parse_qsl(parts.query))
        self._request = Request(
            self.command, parts.path, params, dict(self.headers.items()), json.loads(raw) if raw else None
        )
        owner.requests.append(self._request)
        self._wait_while(owner.frozen)
        fault = owner.next_fault(self._request)
        if isinstance(fault, Hang | Drop) and fault.after:
            with suppress(RefusedError):
                self._carry_out()
        if fault is not None:
            self._misbehave(fault)
        elif self._request.is_watch:
            self._watch()
        else:
            self._answer(*self._result())

    def _result(self) -> tuple[int, Json]:
        try:
            return (201 if self.command == "POST" else 200), self._carry_out()
        except RefusedError as refused:
            return refused.status["code"], refused.status

    def _carry_out(self) -> Json:
        objects, request, at = self.server_.objects, self._request, Address.of(self._request.path)
        if request.path == "/version":
            return {"major": "1", "minor": self.server_.minor_version}
        if at.resource.endswith("subjectaccessreviews"):
            return self._review()
        if request.method == "GET":
            return self._seen(objects.get(at)) if at.name else self._list(at)
        if request.method == "POST":
            return objects.create(at, request.body)
        if request.method == "PUT":
            return objects.replace(at, request.body)
        if request.method == "DELETE":
            return objects.delete(at, (request.body or {}).get("preconditions"))
        kind = request.headers.get("Content-Type", "")
        if kind not in ("application/merge-patch+json", "application/strategic-merge-patch+json"):
            raise RefusedError(415, "UnsupportedMediaType", f"{kind} is not understood")
        return objects.patch(at, request.body, strategic=kind.startswith("application/strategic"))

    def date_time_string(self, timestamp: float | None = None) -> str:
        ahead = self.server_.clock_ahead_seconds
        return super().date_time_string((time.time() if timestamp is None else timestamp) + ahead)

    def _review(self) -> Json:
        """Of the rights of an account: all but those that the test denies."""
        spec = self._request.body["spec"]["resourceAttributes"]
        resource = "/".join(spec[part] for part in ("resource", "subresource") if spec.get(part))
        right = (spec["verb"], spec.get("group", ""), resource)
        return {**self._request.body, "status": {"allowed": right not in self.server_.denied}}

    def _list(self, at: Address) -> Json:
        objects, params = self.server_.objects, self._request.params
        with objects.changed:
            items = objects.stored(at, self._selector())
            version = objects.version
        page, token, remaining = page_of(items, int(params.get("limit", 0)), params.get("continue", ""))
        meta: Json = {"resourceVersion": str(version)}
        if token:
            meta |= {"continue": token, "remainingItemCount": remaining}
        return {"kind": "List", "apiVersion": "v1", "metadata": meta, "items": [self._seen(each) for each in page]}

    def _selector(self) -> Selector:
        params = self._request.params
        return Selector(params.get("labelSelector", ""), params.get("fieldSelector", ""))

    def _seen(self, obj: Json) -> Json:
        """The object, or only its metadata where the client asked for that."""
        if "as=PartialObjectMetadata" not in self._request.headers.get("Accept", ""):
            return obj
        return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}

    def _watch(self) -> None:
        owner, params = self.server_, self._request.params
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        owner.streams += 1
        try:
            self._stream(int(params.get("resourceVersion") or 0), float(params.get("timeoutSeconds", 3600)))
            self.wfile.write(b"0\r\n\r\n")
        finally:
            owner.streams -= 1

    def _stream(self, version: int, timeout_seconds: float) -> None:
        """Events until the time is over, the connection ends or the history is forgotten."""
        owner, at, selector = self.server_, Address.of(self._request.path), self._selector()
        objects, said = owner.objects, len(owner.said)
        view, waiting = owner.views.get(at.resource, View()), Waiting()
        ends = time.monotonic() + timeout_seconds
        while time.monotonic() < ends and self._epoch == owner.epoch:
            with objects.changed:
                objects.changed.wait(TICK_SECONDS)
                try:
                    entries = objects.since(version)
                    for entry in entries:
                        event = entry.event(selector) if at.holds(entry.address) else None
                        if event:
                            waiting.append((entry.at_seconds, entry.version, event))
                    events = list(view.due(waiting, time.monotonic()))
                except RefusedError as refused:
                    self._chunk({"type": "ERROR", "object": refused.status})
                    return
                extra, said = owner.said[said:], len(owner.said)
                version = objects.version
            self._wait_while(owner.frozen)
            for event in events:
                self._chunk({**event, "object": self._seen(event["object"])})
            for each in extra:
                self._chunk(each if each != {"type": "BOOKMARK"} else _bookmark(version))

    def _chunk(self, event: Json | bytes) -> None:
        data = event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n"
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _answer(self, status: int, body: Json | bytes, headers: dict[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _misbehave(self, fault: Fault) -> None:
        if isinstance(fault, Reply):
            return self._answer(fault.status, fault.body, fault.headers)
        self.close_connection = True
        if isinstance(fault, Hang):
            self._wait_while(lambda: True)
        elif isinstance(fault, Drip):
            self._drip(fault)
        elif isinstance(fault, Half):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"items": [')
        return None

    def _drip(self, fault: Drip) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"X-Slow: " if fault.headers else b"Content-Length: 100000\r\n\r\n"))
        while self._epoch == self.server_.epoch:
            self.wfile.write(b" ")
            time.sleep(fault.every_seconds)

    def _wait_while(self, condition: Callable[[], bool]) -> None:
        while condition() and self._epoch == self.server_.epoch:
            time.sleep(TICK_SECONDS)


def _bookmark(version: int) -> Json:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}
