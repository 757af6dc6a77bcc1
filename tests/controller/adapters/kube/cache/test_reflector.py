"""A store stays true to the cluster whatever its watch goes through, and says so when it cannot."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.api_server import ApiServer, Drop, Reply, refusal
from support.waiting import eventually

from slopewise.adapters.kube.cache.reflector import Reflector, Timing

PODS = "/api/v1/namespaces/team-a/pods"
ALL = "/api/v1/pods"
QUICK = Timing(
    watch_seconds=30, grace_seconds=10, relist_seconds=600, first_wait_seconds=0.02, longest_wait_seconds=0.1
)
Json = dict[str, Any]


def name_of(obj: Json) -> str:
    return f"{obj['metadata']['name']}{obj.get('spec', {}).get('size', '')}"


def pod(name: str, **spec: object) -> Json:
    return {"metadata": {"name": name, "labels": {"app": "x"}}, "spec": spec}


@pytest.fixture
def server(server: ApiServer) -> ApiServer:
    server.put(PODS, pod("a"))
    server.put(PODS, pod("b"))
    return server


Watching = Callable[..., Reflector[str]]


@pytest.fixture
def watching(server: ApiServer) -> Iterator[Watching]:
    """Starts reflectors that are stopped after the test; unless asked not to, waits for their list and watch."""
    started: list[Reflector[str]] = []

    def start(timing: Timing = QUICK, *, sync: bool = True, follow: bool = True, **options: Any) -> Reflector[str]:
        reflector = Reflector(server.client(timeout_seconds=0.5), ALL, name_of, timing=timing, **options)
        reflector.start()
        started.append(reflector)
        assert not sync or eventually(lambda: reflector.synced)
        assert not sync or not follow or eventually(lambda: server.streams)
        return reflector

    yield start
    for each in started:
        each.stop()


def test_a_store_is_what_the_list_said_and_then_follows_the_watch(server: ApiServer, watching: Watching) -> None:
    server.put(PODS, {"metadata": {"name": "unreadable"}, "spec": "rubbish"})
    store = watching()
    assert (list(store.items()), store.unreadable) == (["a", "b"], 1)
    server.put(PODS, pod("c"))
    server.put(PODS, pod("a", size=2))
    server.remove(f"{PODS}/b")
    assert eventually(lambda: list(store.items()) == ["a2", "c"])
    assert store.get("team-a", "a") == "a2"
    assert len(server.requests) == 2  # one list, one watch: looking costs no request
    assert store.failure is None


def test_only_what_is_selected_is_asked_for_and_only_metadata_if_enough(server: ApiServer, watching: Watching) -> None:
    server.put(PODS, {"metadata": {"name": "other"}})
    server.put(PODS, pod("a", size=4))
    store = watching(params={"labelSelector": "app=x"}, metadata_only=True)
    assert list(store.items()) == ["a", "b"]
    server.put(PODS, {"metadata": {"name": "a"}})  # its label is gone, and with it the pod
    assert eventually(lambda: list(store.items()) == ["b"])
    assert {each.params["labelSelector"] for each in server.requests} == {"app=x"}
    assert all("as=PartialObjectMetadata" in each.headers["Accept"] for each in server.requests)


def test_a_large_list_is_read_by_pages_and_again_when_a_page_expired(server: ApiServer, watching: Watching) -> None:
    for number in range(600):
        server.put(PODS, pod(f"p{number:04}"))
    server.fault(Reply(200, {"metadata": {"continue": "500"}, "items": []}))
    server.fault(refusal(410, "Expired", "The provided continue parameter is too old"))
    store = watching()
    assert len(store.items()) == 602
    assert [each.params["limit"] for each in server.requests[:4]] == ["500"] * 4


def test_a_bookmark_moves_the_place_where_a_watch_is_taken_up(server: ApiServer, watching: Watching) -> None:
    store = watching()
    server.put("/api/v1/nodes", pod("n"))  # another kind: the pods' watch receives only the version
    version = str(server.objects.version)
    server.bookmark()
    server.put(
        PODS, {"metadata": {"name": "c"}}
    )  # comes after the bookmark, so that one was received when this is there
    assert eventually(lambda: store.get("team-a", "c"))
    server.objects.forget()
    server.end_watches()
    assert eventually(lambda: len(server.requests) == 3)
    assert int(server.requests[-1].params["resourceVersion"]) >= int(version)
    assert store.relists == 1


def test_an_expired_watch_lists_again_and_shows_what_changed_meanwhile(server: ApiServer, watching: Watching) -> None:
    received: list[tuple[str | None, str | None]] = []
    store = watching(on_change=lambda old, new: received.append((old, new)))
    server.fault(Drop(), path="/pods$", times=2)
    server.end_watches()
    assert eventually(lambda: not server.streams)
    server.remove(f"{PODS}/a")
    server.put(PODS, pod("b", size=3))
    server.objects.forget()
    assert eventually(lambda: list(store.items()) == ["b3"])
    assert received == [(None, "a"), (None, "b"), ("a", None), ("b", "b3")]
    assert store.relists == 2


def test_the_list_is_read_again_from_time_to_time_without_an_error(server: ApiServer, watching: Watching) -> None:
    received: list[object] = []
    store = watching(
        Timing(watch_seconds=1, relist_seconds=0.5, first_wait_seconds=0.02),
        on_change=lambda *change: received.append(change),
    )
    assert eventually(lambda: store.relists >= 2)
    assert len(received) == 2


def test_a_restarted_server_is_watched_again(server: ApiServer, watching: Watching) -> None:
    store = watching()
    server.stop()
    assert eventually(lambda: store.failure)
    assert "connection refused" in str(store.failure) or "closed the connection" in str(store.failure)
    server.restart()
    server.put(PODS, pod("c"))
    assert eventually(lambda: list(store.items()) == ["a", "b", "c"])
    assert store.failure is None
    assert store.restarts > 0


def test_a_watch_on_a_dead_connection_is_given_up_and_reported(server: ApiServer, watching: Watching) -> None:
    store = watching(Timing(watch_seconds=1, grace_seconds=0.2, first_wait_seconds=0.02, longest_wait_seconds=0.1))
    server.freeze()
    server.put(PODS, pod("c"))
    assert eventually(lambda: store.restarts >= 2)
    assert "nothing came in time" in str(store.failure)
    assert store.silent_seconds() > 0.5
    assert list(store.items()) == ["a", "b"]
    server.thaw()
    assert eventually(lambda: list(store.items()) == ["a", "b", "c"])
    assert store.silent_seconds() < 30


def test_before_the_first_list_a_store_is_not_synced_and_says_why(server: ApiServer, watching: Watching) -> None:
    server.fault(refusal(403, "Forbidden", "pods is forbidden: cannot list"), times=10_000)
    store = watching(sync=False)
    assert eventually(lambda: store.failure)
    assert "cannot list" in str(store.failure)
    assert not store.synced
    assert store.silent_seconds() == math.inf
    server.heal()
    assert eventually(lambda: store.synced)
    assert store.failure is None


@pytest.mark.parametrize(("fault", "watches"), [(Reply(500, {}), False), (Reply(200, b""), True)])
def test_a_failing_server_is_not_stormed(server: ApiServer, watching: Watching, fault: Reply, watches: bool) -> None:
    server.fault(fault, watches=watches, times=10_000)
    watching(Timing(first_wait_seconds=0.1, longest_wait_seconds=60), sync=False)
    time.sleep(0.5)
    # Failures at 0, 0.05, 0.15 and 0.35 s at the earliest, watches that end after one list every 0.05 s.
    assert len(server.requests) <= (12 if watches else 5)
    assert len(server.asked()) - sum(each.is_watch for each in server.requests) <= (1 if watches else 5)


def fails_once_and_progresses(server: ApiServer, store: Reflector[str], name: str) -> bool:
    restarts = store.restarts
    server.fault(Reply(500, {}), watches=True, times=1)
    server.end_watches()
    assert eventually(lambda: store.restarts == restarts + 1)
    server.put(PODS, pod(name))
    return eventually(lambda: name in store.items())


def test_waits_begin_again_with_the_shortest_after_progress(server: ApiServer, watching: Watching) -> None:
    store = watching(Timing(first_wait_seconds=0.02, longest_wait_seconds=1e6))
    for number in range(15):  # doubled each time, the last wait would be of minutes
        assert fails_once_and_progresses(server, store, f"c{number}")
    assert store.relists == 1


def test_a_place_that_cannot_be_taken_up_again_is_given_up(server: ApiServer, watching: Watching) -> None:
    store = watching()
    server.fault(Reply(500, {"message": "too large resource version"}), times=3)
    server.end_watches()
    assert eventually(lambda: store.relists == 2)
    assert store.restarts == 3


def test_a_listener_that_fails_does_not_end_the_watching(server: ApiServer, watching: Watching) -> None:
    def listen(old: str | None, new: str | None) -> None:
        if new == "c":
            raise RuntimeError("a mistake")

    store = watching(on_change=listen)
    server.put(PODS, pod("c"))
    assert eventually(lambda: "a mistake" in str(store.failure) or store.relists == 2)
    server.put(PODS, pod("d"))
    assert eventually(lambda: list(store.items()) == ["a", "b", "c", "d"])


@pytest.mark.parametrize("state", ["watching", "hanging", "away"])
def test_a_store_stops_at_once_whatever_it_waits_for(server: ApiServer, watching: Watching, state: str) -> None:
    store = watching(Timing(watch_seconds=300, first_wait_seconds=30))
    if state == "hanging":
        server.freeze()
    if state == "away":
        server.stop()
        assert eventually(lambda: not server.streams)
    stopped = threading.Event()

    def stop() -> None:
        store.stop()
        stopped.set()

    threading.Thread(target=stop, daemon=True).start()
    assert stopped.wait(10)  # and not the 300 s that the watch was to last
    assert list(store.items()) == ["a", "b"]
    if state == "away":
        server.restart()
