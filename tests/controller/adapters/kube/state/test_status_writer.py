"""Writing statuses: what is sent, in which order, how often, and what happens when it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
from structlog.testing import capture_logs
from support.api_server import ApiServer
from support.waiting import eventually

from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.client.fencing import FencedApi, NotLeadingError
from slopewise.adapters.kube.client.protocol import Api, Json
from slopewise.adapters.kube.state.status_writer import StatusDocument, StatusSender, StatusWriter
from slopewise.adapters.pauses import STATUS_WRITE
from slopewise.errors import SlopewiseError

BURST = 5
"""At 4 writes a second: a second's worth, and the one whose time it is."""
THINGS = "/apis/slopewise.dev/v1alpha1/namespaces/n/things"


class Thing(StatusDocument):
    """A document whose status a test sets, and that is made when it is missing."""

    def __init__(self, name: str, status: Json | None = None, *, ours: bool = True) -> None:
        super().__init__(name, f"{THINGS}/{name}", None)
        self.name, self.status, self.ours = name, status or {"a": 1}, ours

    def render(self) -> Json:
        return self.status

    def create(self, api: Api) -> bool:
        if not self.ours:
            return False
        meta = api.create(THINGS, {"metadata": {"name": self.name}})["metadata"]
        self.stored(meta["uid"], meta["resourceVersion"], {})
        return True


def a_sender(server: ApiServer, may_write: Callable[[], bool] = lambda: True) -> StatusSender:
    return StatusSender(FencedApi(server.client(), may_write))


def bodies(server: ApiServer) -> list[Any]:
    return [request.body["status"] for request in server.asked("PATCH")]


def test_only_what_changed_is_sent(server: ApiServer) -> None:
    sender, thing = a_sender(server), Thing("t", {"a": 1, "b": [1]})
    assert sender.send(thing)
    thing.status = {"a": 2, "b": [1], "c": 3}
    assert sender.send(thing)
    assert not sender.send(thing)
    thing.status = {"b": [1], "c": 3}
    sender.send(thing)
    assert bodies(server) == [{"a": 1, "b": [1]}, {"a": 2, "c": 3}, {"a": None}]
    assert server.get(thing.path)["status"] == {"b": [1], "c": 3}
    server.remove(thing.path)
    thing.status = {"a": 1, "b": 3}
    assert sender.send(thing)
    assert server.get(thing.path)["status"] == {"a": 1, "b": 3}, "a deleted object is made again, with its whole status"


def test_another_object_of_the_same_name_is_not_written_to(server: ApiServer) -> None:
    sender, thing = a_sender(server), Thing("t")
    sender.send(thing)
    server.remove(thing.path)
    server.put(THINGS, {"metadata": {"name": "t"}})
    thing.status, thing.ours = {"a": 2}, False
    assert not sender.send(thing)
    assert "status" not in server.get(thing.path)
    server.remove(thing.path)
    server.requests.clear()
    assert not sender.send(thing)
    assert server.asked("POST") == [], "it is not ours to make"


def test_what_others_write_to_the_object_is_no_obstacle(server: ApiServer) -> None:
    sender, thing = a_sender(server), Thing("t", {"a": 1})
    sender.send(thing)
    labelled = server.get(thing.path)
    labelled["metadata"]["labels"] = {"team": "a"}
    labelled["status"] = {"a": 9}
    server.put(THINGS, labelled)
    thing.status = {"a": 1, "b": 2}
    assert sender.send(thing)
    stored = server.get(thing.path)
    assert (stored["status"], stored["metadata"]["labels"]) == ({"a": 1, "b": 2}, {"team": "a"})


def test_who_leads_no_more_when_the_first_try_comes_back_does_not_try_again(server: ApiServer) -> None:
    """A process that was suspended, say, while the API server answered with a conflict."""
    sender, thing = a_sender(server, lambda: not server.asked("GET")), Thing("t", {"a": 1})
    sender.send(thing)
    server.put(THINGS, {**server.get(thing.path), "spec": {"by": "somebody"}})
    thing.status = {"a": 2}
    with pytest.raises(NotLeadingError):
        sender.send(thing)
    assert server.get(thing.path)["status"] == {"a": 1}
    server.remove(thing.path)
    server.requests.clear()
    with pytest.raises(NotLeadingError):
        sender.send(thing)
    assert server.asked("POST") == []


def test_a_retired_document_is_deleted_if_it_is_still_the_same_object(server: ApiServer) -> None:
    sender, thing, other = a_sender(server), Thing("t"), Thing("other")
    sender.send(thing)
    sender.send(other)
    server.remove(other.path)
    server.put(THINGS, {"metadata": {"name": "other"}})
    thing.retired = other.retired = True
    sender.send(thing)
    sender.send(other)
    assert [each["metadata"]["name"] for each in KubeApi.get(server.client(), THINGS)["items"]] == ["other"]


@dataclass
class Sent:
    """Remembers in which order documents were sent; fails for those named in `refuses`."""

    names: list[str] = field(default_factory=list)
    refuses: dict[str, Exception] = field(default_factory=dict)
    gate: threading.Event = field(default_factory=threading.Event)

    def __call__(self, document: StatusDocument) -> bool:
        self.gate.wait(5)
        self.names.append(document.key)
        if (error := self.refuses.get(document.key)) is not None:
            raise error
        return True


class Running:
    """A writer at work on a `Sent` whose gate is closed until the test has submitted what it wants."""

    def __init__(self, **more: Any) -> None:
        self.sent = Sent()
        self.outcomes: list[str] = []
        more = {"writes_per_second": 1000.0, "progress_seconds": 0.2, **more}
        self.writer = StatusWriter(self.sent, on_write=self.outcomes.append, **more)

    def __enter__(self) -> Self:
        self.writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.sent.gate.set()
        self.writer.stop(0.5)


def test_transitions_go_before_progress_and_what_changes_often_is_written_once() -> None:
    with Running() as running:
        running.writer.submit(Thing("first"), transition=True)
        assert eventually(lambda: running.writer.waiting == 0)
        for name in ("p1", "p2"):
            running.writer.submit(Thing(name), transition=False)
        often = Thing("t")
        for _ in range(100):
            running.writer.submit(often, transition=True)
        running.sent.gate.set()
        assert eventually(lambda: len(running.sent.names) == 4)
        assert running.sent.names == ["first", "t", "p1", "p2"]


def test_progress_waits_for_its_time_and_a_transition_does_not() -> None:
    now = [0.0]
    running = Running(progress_seconds=60.0, monotonic=lambda: now[0])
    thing = Thing("t")
    running.sent.gate.set()
    with running:
        running.writer.submit(thing, transition=False)
        assert eventually(lambda: running.sent.names == ["t"])
        assert eventually(lambda: running.outcomes == ["written"])
        running.writer.submit(thing, transition=False)
        now[0] = 4.0
        running.writer.submit(Thing("other"), transition=True)
        assert eventually(lambda: "other" in running.sent.names)
        assert running.sent.names == ["t", "other"]
        running.writer.submit(thing, transition=True)
        assert eventually(lambda: running.sent.names == ["t", "other", "t"])


@pytest.mark.parametrize(("others", "seconds"), [(0, 5.0), (10, 35.0), (100, 60.0)])
def test_progress_waits_the_longer_the_more_documents_wait(others: int, seconds: float) -> None:
    """At one write a second, of which progress may take a third."""
    now = [0.0]
    running = Running(progress_seconds=60.0, writes_per_second=1.0, monotonic=lambda: now[0])
    waiting = [Thing(f"w{number}") for number in range(others)]
    thing = Thing("t")
    for each in (*waiting, thing):
        each.written_at = 0.0
        running.writer.submit(each, transition=False)
    assert max(due for due, _, _ in running.writer._later) == seconds


def test_a_mistake_in_one_document_stops_no_other() -> None:
    running = Running()
    running.sent.refuses["bad"] = KeyError("x")
    running.sent.gate.set()
    with capture_logs(), running:
        running.writer.submit(Thing("bad"), transition=True)
        running.writer.submit(Thing("good"), transition=True)
        assert eventually(lambda: "good" in running.sent.names)
    assert running.outcomes == ["failed", "written"]


def test_a_failure_is_tried_again_and_reported_once() -> None:
    now = [0.0]
    running = Running(monotonic=lambda: now[0])
    for name in ("t", "wakes it"):
        running.sent.refuses[name] = SlopewiseError("no right to write")
    running.sent.gate.set()
    with capture_logs() as logs, running:
        running.writer.submit(Thing("t"), transition=True)
        assert eventually(lambda: running.outcomes == ["failed"])
        now[0] += STATUS_WRITE.most_seconds
        running.writer.submit(Thing("wakes it"), transition=True)
        assert eventually(lambda: running.sent.names.count("t") == 2)
        failure = running.writer.failure
        assert failure == "no right to write"
        running.sent.refuses.clear()
        now[0] += STATUS_WRITE.most_seconds
        running.writer.submit(Thing("wakes it again"), transition=True)
        assert eventually(lambda: "written" in running.outcomes)
    assert running.writer.failure is None
    assert [line["reason"] for line in logs] == ["no right to write"]


def test_stopping_writes_what_waits_without_waiting_for_its_time() -> None:
    running = Running(progress_seconds=3600.0, writes_per_second=1000.0)
    thing = Thing("t")
    thing.written_at = 1e9
    running.sent.gate.set()
    with running:
        running.writer.submit(thing, transition=False)
        assert running.sent.names == []
    assert running.sent.names == ["t"]


def test_writes_are_spread_out() -> None:
    """A burst of one second's worth goes at once, the rest at the rate; by a clock that stands still, not at all."""
    now = [100.0]
    running = Running(writes_per_second=4.0, monotonic=lambda: now[0])
    running.sent.gate.set()
    with running:
        for number in range(20):
            running.writer.submit(Thing(f"t{number}"), transition=True)
        assert eventually(lambda: len(running.sent.names) == BURST)
        now[0] += 1.0
        running.writer.submit(Thing("news"), transition=True)
        assert eventually(lambda: len(running.sent.names) == BURST + 4)
        assert running.writer.waiting == 21 - BURST - 4
