"""Events: what is written, how repeated ones are counted, and that nothing of it is ever fatal."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Self

from structlog.testing import capture_logs
from support.api_server import ApiServer, Hang, refusal
from support.managed_pods import a_managed_pod
from support.waiting import eventually

from slopewise.adapters.kube.client.fencing import FencedApi
from slopewise.adapters.kube.events import MAX_WAITING, About, Event, EventRecorder

POD = About.pod(a_managed_pod())


class Recording:
    """A recorder at work, on a clock that stands still."""

    def __init__(self, server: ApiServer, *, may_write: bool = True) -> None:
        self.now = 1_000_000.0
        self.recorder = EventRecorder(
            FencedApi(server.client(), lambda: may_write),
            instance="replica-a",
            events_per_second=1000.0,
            clock=lambda: self.now,
        )

    def __enter__(self) -> Self:
        self.recorder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.recorder.stop()


def stored(server: ApiServer, namespace: str = "team-a") -> list[Any]:
    items: list[Any] = server.client().get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    return items


def test_an_event_says_about_what_by_whom_and_why(server: ApiServer) -> None:
    with Recording(server) as recording:
        recording.recorder.emit(Event(POD, "Resized", "CPU limits 2 to 1500m: class NL"))
        assert eventually(lambda: stored(server))
    (event,) = stored(server)
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "uid": "pod-uid",
        "namespace": "team-a",
    }
    assert (event["reason"], event["note"], event["type"]) == ("Resized", "CPU limits 2 to 1500m: class NL", "Normal")
    assert (event["reportingController"], event["reportingInstance"]) == ("slopewise.dev/controller", "replica-a")
    assert event["eventTime"] == "1970-01-12T13:46:40.000000Z"
    with Recording(server) as recording:
        recording.recorder.emit(Event(About.policy("training", "u"), "InvalidSpec", "no", warning=True, action="Read"))
        assert eventually(lambda: stored(server, "default")), "of an object of the cluster"
    (event,) = stored(server, "default")
    assert (event["type"], event["regarding"]["kind"]) == ("Warning", "TrainingPolicy")
    assert "namespace" not in event["regarding"]


def test_the_same_event_again_is_counted_in_the_first_one(server: ApiServer) -> None:
    deferred = Event(POD, "ResizeDeferred", "no room", warning=True)
    with Recording(server) as recording:
        for _ in range(9):
            recording.recorder.emit(deferred)
        recording.recorder.emit(Event(POD, "Resized", "comes after all of them"))
        assert eventually(lambda: len(server.asked("POST")) == 2)
        recording.now += 61.0
        recording.recorder.emit(deferred)
        assert eventually(lambda: len(server.asked("PATCH")) == 2)
        recording.now += 601.0
        recording.recorder.emit(deferred)
        assert eventually(lambda: len(server.asked("POST")) == 3), "after ten minutes it is a new one"
    counted = [each.body["series"]["count"] for each in server.asked("PATCH")]
    assert counted == [2, 10], "a count is written at most once a minute"


def test_a_refused_event_is_counted_and_reported_once(server: ApiServer) -> None:
    server.fault(refusal(403, "Forbidden", "events is forbidden"), method="POST", times=2)
    with capture_logs() as logs, Recording(server) as recording:
        for note in ("one", "two", "three"):
            recording.recorder.emit(Event(POD, "Resized", note))
        assert eventually(lambda: stored(server))
        assert recording.recorder.dropped == 2
    assert len([line for line in logs if line["event"] == "event write failed"]) == 1


def test_a_full_queue_drops_events_and_no_caller_waits(server: ApiServer) -> None:
    server.fault(Hang(), method="POST", times=99)
    recording = Recording(server)
    for number in range(MAX_WAITING + 5):
        recording.recorder.emit(Event(POD, "Resized", str(number)))
    assert recording.recorder.dropped == 5


def test_a_note_of_others_drives_no_terminal_and_a_long_one_in_any_letters_fits(server: ApiServer) -> None:
    with Recording(server) as recording:
        recording.recorder.emit(Event(POD, "Frozen", "Freeze f (all): \x1b[31mred\x07\x1b]0;title"))
        assert eventually(lambda: stored(server))
        recording.recorder.emit(Event(POD, "Resized", "ж→" * 2000))
        assert eventually(lambda: len(stored(server)) == 2)
    notes = sorted(each["note"] for each in stored(server))
    assert notes[0].startswith("Freeze f (all): ")
    assert not {"\x1b", "\x07"} & set(notes[0])
    assert len(notes[1].encode()) <= 1024


def test_the_name_of_an_event_about_a_pod_with_a_long_name_is_one_that_the_api_server_takes(server: ApiServer) -> None:
    with Recording(server) as recording:
        recording.recorder.emit(Event(replace(POD, name="x" * 198 + "--" + "y" * 40), "Resized", "x"))
        assert eventually(lambda: stored(server))
    assert re.fullmatch(r"x{198}\.[0-9a-f]{16}", stored(server)[0]["metadata"]["name"])


def test_one_that_does_not_lead_shows_nothing(server: ApiServer) -> None:
    with Recording(server, may_write=False) as recording:
        recording.recorder.emit(Event(POD, "Resized", "x"))
    assert (server.requests, recording.recorder.dropped) == ([], 0)
