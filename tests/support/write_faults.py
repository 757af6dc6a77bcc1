"""Faults at writes of the controller, on the small API server; and all that is stored there as a history.

    faulty = Faulty(server, {(ANY, 3): "answer lost", ("resize", 1): "409"})     # the third write, and the first resize
    api = faulty.client()
    ...
    assert contradictions(faulty.events, settled=True) == []

A client is one process of the controller: after a crash it is `dead`, and nothing that it sends arrives any more.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes.client import Configuration
from support.api_objects import Address, Entry
from support.api_server import ApiServer, Drop, Fault, Hang, Reply, Request, refusal

from slopewise.adapters.kube.client.client import KubeApi, OnRequest
from testbed.histories.events import Event, Write

_BUSY = refusal(429, "TooManyRequests", "too much to do")
FAULTS: Mapping[str, Fault] = {
    "crash before": Drop(),
    "crash after": Drop(after=True),
    "never arrives": Drop(),
    "answer lost": Drop(after=True),
    "409": refusal(409, "Conflict", "the object has been modified"),
    "429": Reply(429, _BUSY.body, {"Retry-After": "1"}),
    "500": refusal(500, "InternalError", "no quorum"),
    "504": refusal(504, "Timeout", "the request was not done in time"),
    "hang": Hang(),
    "hang when done": Hang(after=True),
}
ANY = "any"
"""Of all kinds."""
SILENCE_SECONDS = 1.0
"""The clients' bound, for which a hang lasts. The controller's own is 10 s."""


@dataclass
class _Asked:
    """The request that a thread of the server carries out."""

    request: Request
    at_seconds: float


class Faulty:
    """In front of a server: counts the writes of its clients, all and of each kind (`named`), and does faults."""

    def __init__(
        self, server: ApiServer, plan: Mapping[tuple[str, int], str], clock: Callable[[], float] = time.time
    ) -> None:
        """`plan`: a fault of FAULTS by the kind of write and its number, from 1. `clock`: of the history."""
        self.events: list[Event] = []
        self.writes: Counter[str] = Counter()
        """How many of each kind have come."""
        self.done: list[tuple[str, int]] = []
        """The faults that were done."""
        self.dead: set[str] = set()
        self._server, self._plan, self._clock = server, dict(plan), clock
        self._clients = 0
        self._lock = threading.Lock()
        self._thread = threading.local()
        for address, obj in server.objects.saved().items():
            self._note(Entry(int(obj["metadata"]["resourceVersion"]), address, None, obj))
        server.interfere, server.objects.on_change = self._interfere, self._note

    @property
    def left(self) -> set[str]:
        """The kinds of writes at which a fault is still to be done."""
        return {kind for kind, _ in self._plan}

    @property
    def client_name(self) -> str:
        """Of the newest client."""
        return f"process-{self._clients}"

    @property
    def crashed(self) -> bool:
        """The newest client is dead."""
        return self.client_name in self.dead

    def client(self, timeout_seconds: float = SILENCE_SECONDS, on_request: OnRequest = lambda *_: None) -> KubeApi:
        """A new process of the controller."""
        self._clients += 1
        configuration = Configuration(host=self._server.url, proxy="")
        configuration.api_key["authorization"] = self.client_name
        return KubeApi(configuration, timeout_seconds=timeout_seconds, on_request=on_request)

    def _interfere(self, request: Request) -> Fault | None:
        writer = _writer(request)
        self._thread.asked = _Asked(request, self._clock())
        if writer in self.dead:
            return Drop()
        if not writer or request.method == "GET" or _is_dry(request) or request.path.endswith("reviews"):
            return None
        with self._lock:
            self.writes.update((ANY, named(request)))
            planned = [(kind, self.writes[kind]) for kind in (ANY, named(request))]
            found = next((each for each in planned if each in self._plan), None)
            if found is None:
                return None
            fault = self._plan.pop(found)
            self.done.append(found)
            if fault.startswith("crash"):
                self.dead.add(writer)
        return FAULTS[fault]

    def _note(self, entry: Entry) -> None:
        """The first change of a request is its own, and what follows in its thread is the cluster's."""
        asked: _Asked | None = getattr(self._thread, "asked", None)
        self._thread.asked = None
        at, now = entry.address, self._clock()
        kind, verb = at.resource, "update" if entry.new else "delete"
        if asked is None or Address.of(asked.request.path).resource != at.resource:
            self._add(at, entry.new, verb, kind, "cluster", now)
            return
        sub = Address.of(asked.request.path).subresource
        kind = f"{at.resource}/{sub}" if sub else at.resource
        self._add(at, entry.new, verb, kind, _writer(asked.request), asked.at_seconds)
        if entry.new is None and sub:
            self._add(at, None, verb, at.resource, "cluster", now)

    def _add(self, at: Address, new: Any, verb: str, kind: str, writer: str, since: float) -> None:
        after, ours = new or {}, writer.startswith("process-")
        self.events.append(
            Write(since, self._clock(), writer, verb, kind, at.namespace, at.name, 200, None, after, ours)
        )


def _writer(request: Request) -> str:
    return request.headers.get("authorization", request.headers.get("Authorization", ""))


def _is_dry(request: Request) -> bool:
    return "dryRun" in json.dumps(request.body)


def named(request: Request) -> str:
    """What a write is, in a word or two, e.g. `resize` or `suspend`."""
    at = Address.of(request.path)
    kind = f"{at.resource}/{at.subresource}" if at.subresource else at.resource
    spec = (request.body or {}).get("spec") or {}
    if kind == "jobs":
        return "other of a Job" if "suspend" not in spec else "suspend" if spec["suspend"] else "resume"
    names = {
        "pods/resize": "resize",
        "pods/eviction": "evict",
        "pods": "gate",
        "jobgrowths": "store",
        "jobgrowths/status": "store",
        "trainingpolicies": "finalizer",
        "trainingpolicies/status": "status",
        "leases": "lease",
        "freezes/status": "freeze",
        "events": "event",
    }
    return names.get(kind, f"{request.method} {kind}")
