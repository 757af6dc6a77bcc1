"""What a replica receives of the cluster, and what it says of what it does not receive."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.api_server import ApiServer, refusal
from support.replicas import GROWTHS
from support.waiting import eventually

from slopewise.adapters.kube.cache.records import API_VERSION
from slopewise.adapters.kube.watches import SILENT_SECONDS, Watches, make_watches


class AStore:
    """What `Watches` asks of one of its stores."""

    def __init__(self, *, synced: bool = True, silent: float = 1.0, failure: str | None = None) -> None:
        self.synced = synced
        self.silent = silent
        self.failure = failure

    def silent_seconds(self) -> float:
        return self.silent


@pytest.fixture
def watches(server: ApiServer) -> Watches:
    return make_watches(server.client(), None, lambda old, new: None)


def test_one_namespace_is_watched_without_anything_of_the_cluster(server: ApiServer) -> None:
    of_one = make_watches(server.client(), "team-a", lambda old, new: None)
    of_one.start()
    assert eventually(lambda: of_one.waits_for() is None)
    of_one.stop()
    assert {each.path for each in server.requests} == {
        "/api/v1/namespaces/team-a/pods",
        "/apis/batch/v1/namespaces/team-a/jobs",
        f"/apis/{API_VERSION}/namespaces/team-a/jobgrowths",
        "/api/v1/namespaces/team-a/limitranges",
        "/api/v1/namespaces/team-a/resourcequotas",
        "/apis/autoscaling/v2/namespaces/team-a/horizontalpodautoscalers",
    }


def test_a_watch_that_is_silent_for_longer_is_named_with_its_reason(watches: Watches) -> None:
    assert watches.watches()["pods"] == (float("inf"), 0), "it never received anything"
    silent = AStore(silent=SILENT_SECONDS + 1, failure="The API server answered 403 Forbidden")
    short = AStore(silent=SILENT_SECONDS - 1, failure="No answer")
    named = {"pods": short, "jobgrowths": silent}
    assert replace(watches, named=named).trouble() == (  # type: ignore[arg-type]
        "the API server sends nothing about jobgrowths (The API server answered 403 Forbidden)"
    )


QUOTAS = "/api/v1/namespaces/team-a/resourcequotas"
RANGES = "/api/v1/namespaces/team-a/limitranges"


def test_what_may_refuse_a_resize_is_noticed_when_it_changes(server: ApiServer) -> None:
    received: list[tuple[str, str]] = []
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"limits.cpu": "4", "pods": "9"}}}
    server.put(QUOTAS, quota)
    watches = make_watches(server.client(), None, lambda *_: None, lambda *found: received.append(found))
    assert watches.limits.changes("resourcequotas", "team-a") is None, "nothing is received yet"
    watches.start()
    try:
        assert eventually(lambda: watches.limits.changes("resourcequotas", "team-a") == 1)
        server.put(QUOTAS, {**quota, "status": {"used": {"pods": "3"}}})
        server.put(QUOTAS, {**quota, "status": {"used": {"limits.cpu": "3"}}})
        assert eventually(lambda: watches.limits.changes("resourcequotas", "team-a") == 2), "only CPU counts"
        server.put(RANGES, {"metadata": {"name": "r"}, "spec": {"limits": [{"type": "Container"}]}})
        assert eventually(lambda: watches.limits.changes("limitranges", "team-a") == 1)
        server.remove(f"{RANGES}/r")
        assert eventually(lambda: watches.limits.changes("limitranges", "team-a") == 2)
        assert watches.limits.changes("limitranges", "team-b") == 0
        assert received == [("resourcequotas", "team-a")] * 2 + [("limitranges", "team-a")] * 2
    finally:
        watches.stop()


def test_without_the_right_to_see_what_refuses_resizes_everything_else_goes_on(server: ApiServer) -> None:
    server.fault(refusal(403, "Forbidden", "cannot list resourcequotas"), path="resourcequotas|limitranges", times=1000)
    watches = make_watches(server.client(), None, lambda *_: None)
    watches.start()
    try:
        assert eventually(lambda: watches.waits_for() is None)
        assert watches.trouble() is None
        assert watches.limits.changes("limitranges", "team-a") is None
        assert watches.watches()["resourcequotas"][0] == float("inf")
    finally:
        watches.stop()


def test_catching_up_reads_every_page(server: ApiServer, watches: Watches) -> None:
    workload = {"apiVersion": "batch/v1", "kind": "Job", "uid": "u"}
    for number in range(501):
        name = f"job-{number:03}"
        server.put(GROWTHS, {"metadata": {"name": name}, "spec": {"workload": {**workload, "name": name}}})
    watches.catch_up()
    assert len(watches.growths.items()) == 501
    assert len(server.asked("GET", "jobgrowths$")) == 2


def test_of_pods_that_are_not_managed_those_that_take_cpu_of_nodes_are_watched(server: ApiServer) -> None:
    def put(name: str, *, node: str = "n1", phase: str = "Running", labels: dict[str, str] | None = None) -> None:
        spec = {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "250m"}}}]}
        meta = {"name": name, "labels": labels or {}}
        server.put("/api/v1/namespaces/team-a/pods", {"metadata": meta, "spec": spec, "status": {"phase": phase}})

    put("other")
    put("pending", node="")
    put("ended", phase="Succeeded")
    put("managed", labels={"slopewise.dev/managed": "true"})
    watches = make_watches(server.client(), None, lambda *_: None)
    watches.start()
    try:
        others = watches.stores.other_pods
        assert others is not None
        assert eventually(lambda: [(each.name, each.request_millicores) for each in others.items()] == [("other", 250)])
        put("other", phase="Failed")
        assert eventually(lambda: others.items() == ())
    finally:
        watches.stop()
