"""What a replica hears of the cluster, and what it says of what it does not hear."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.api_server import ApiServer
from support.replicas import GROWTHS
from support.waiting import eventually

from controller.adapters.kube.records import API_VERSION
from controller.cluster.watches import SILENT_SECONDS, Watches, make_watches


class AStore:
    """What `Watches` asks of one of its stores."""

    def __init__(self, *, synced: bool = True, silent: float = 1.0, failure: str | None = None) -> None:
        self.synced = synced
        self.silent = silent
        self.failure = failure

    def silent_seconds(self) -> float:
        return self.silent


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


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
    }


def test_a_watch_that_was_taken_up_again_soon_is_no_trouble(watches: Watches) -> None:
    short = AStore(silent=SILENT_SECONDS - 1, failure="No answer")
    assert replace(watches, named={"pods": short}).trouble() is None  # type: ignore[dict-item]


def test_a_watch_that_is_silent_is_named_with_its_reason(watches: Watches) -> None:
    silent = AStore(silent=SILENT_SECONDS + 1, failure="The API server answered 403 Forbidden")
    named = {"pods": AStore(), "jobgrowths": silent}
    assert replace(watches, named=named).trouble() == (  # type: ignore[arg-type]
        "the API server tells nothing of jobgrowths (The API server answered 403 Forbidden)"
    )


def test_a_watch_that_never_heard_anything_is_in_the_metrics_too(watches: Watches) -> None:
    assert watches.watches()["pods"] == (float("inf"), 0)


def test_catching_up_reads_every_page(server: ApiServer, watches: Watches) -> None:
    workload = {"apiVersion": "batch/v1", "kind": "Job", "uid": "u"}
    for number in range(501):
        name = f"job-{number:03}"
        server.put(GROWTHS, {"metadata": {"name": name}, "spec": {"workload": {**workload, "name": name}}})
    watches.catch_up()
    assert len(watches.growths.items()) == 501
    assert len(server.asked("GET", "jobgrowths$")) == 2
