"""Requests, watches and elections against a real API server: also one that hangs, and one that is restarted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.cluster import Kubectl, PodShape
from support.waiting import eventually, wait_for

from slopewise.adapters.kube.cache.reflector import Reflector, Timing
from slopewise.adapters.kube.client.client import ApiError, KubeApi
from slopewise.adapters.kube.client.protocol import STRATEGIC_MERGE_PATCH
from slopewise.adapters.kube.leader_election import Elector, Terms
from testbed.faults import Faults

API_SERVER = "kube-apiserver"
QUICK_WATCH = Timing(watch_seconds=3, grace_seconds=1, first_wait_seconds=0.1, longest_wait_seconds=0.5)
QUICK_TERMS = Terms(lease_seconds=6, renew_deadline_seconds=4, retry_seconds=0.5)


@pytest.fixture
def api(kubeconfig: Path) -> Iterator[KubeApi]:
    api = KubeApi.connect(kubeconfig=str(kubeconfig))
    yield api
    api.close()


@contextmanager
def watching(api: KubeApi, namespace: str, **options: Any) -> Iterator[Reflector[str]]:
    """The names of the namespace's ConfigMaps with their value, up to date."""
    store = Reflector(
        api.with_timeout(1.0),
        f"/api/v1/namespaces/{namespace}/configmaps",
        lambda obj: f"{obj['metadata']['name']}={obj['data']['value']}",
        params={"labelSelector": "watched=yes"},  # not the kube-root-ca.crt that comes with every namespace
        timing=QUICK_WATCH,
        **options,
    )
    store.start()
    try:
        assert eventually(lambda: store.synced)
        yield store
    finally:
        store.stop()


def config_map(name: str, value: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"watched": "yes"}},
        "data": {"value": value},
    }


def has(store: Reflector[str], *expected: str) -> None:
    wait_for("the store", store.items, lambda items: items == expected)


def refused(call: Callable[[], object]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value


def test_refusals_of_the_real_server_are_distinguished(api: KubeApi, namespace: str) -> None:
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    made = api.create(collection, config_map("a", "1"))

    assert refused(lambda: api.get(f"{collection}/none")).is_not_found
    assert refused(lambda: api.get("/apis/nothing.dev/v1/things")).is_not_found
    assert refused(lambda: api.create(collection, config_map("a", "1"))).already_exists
    assert refused(lambda: api.create(collection, config_map("A", "1"))).causes[0].field == "metadata.name"
    api.patch(f"{collection}/a", {"data": {"value": "2"}}, STRATEGIC_MERGE_PATCH)
    assert refused(lambda: api.replace(f"{collection}/a", made)).is_conflict


def test_a_resize_of_a_pod_that_was_replaced_is_refused(
    api: KubeApi, kubectl: Kubectl, namespace: str, idle: PodShape
) -> None:
    kubectl.apply(idle.pod("one"), namespace=namespace)
    kubectl.wait_running(namespace, "one")
    path = f"/api/v1/namespaces/{namespace}/pods/one/resize"

    def resize(**metadata: str) -> dict[str, Any]:
        containers = [{"name": "trainer", "resources": {"limits": {"cpu": "400m"}}}]
        return api.patch(path, {"metadata": metadata, "spec": {"containers": containers}}, STRATEGIC_MERGE_PATCH)

    assert refused(lambda: resize(uid="another", resourceVersion="1")).is_conflict
    only_uid = refused(lambda: resize(uid="another"))  # not a conflict, but a change that is not allowed
    assert only_uid.is_invalid
    assert only_uid.causes[0].field == "metadata.uid"
    assert resize()["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "400m"}


def test_metadata_alone_is_listed_and_watched(api: KubeApi, namespace: str) -> None:
    seen: list[dict[str, Any]] = []
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"

    def noted(obj: dict[str, Any]) -> str:
        seen.append(obj)
        name: str = obj["metadata"]["name"]
        return name

    store = Reflector(api, jobs, noted, metadata_only=True)
    store.start()
    try:
        assert eventually(lambda: store.synced)
        container = {"name": "c", "image": "none", "imagePullPolicy": "Never"}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        api.create(jobs, {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}})
        has(store, "j")
    finally:
        store.stop()
    assert all("spec" not in obj for obj in seen)


def test_a_store_follows_the_cluster_over_the_ends_of_its_watches(api: KubeApi, namespace: str) -> None:
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    with watching(api, namespace) as store:
        for value in range(8):  # 8 s, and a watch lasts 3
            api.create(collection, config_map(f"c{value}", "1"))
            has(store, *(f"c{number}=1" for number in range(value + 1)))
            threading.Event().wait(1)
        api.delete(f"{collection}/c0")
        has(store, *(f"c{number}=1" for number in range(1, 8)))
        assert store.relists == 1
        assert store.restarts == 0


class Candidate:
    """An elector of the namespace's lease, and what it reported."""

    def __init__(self, api: KubeApi, namespace: str, identity: str, terms: Terms = QUICK_TERMS) -> None:
        self.lost: list[str] = []
        self.elector = Elector(
            api.with_timeout(1.0), namespace, "slopewise", identity, terms=terms, on_lost=self.lost.append
        )
        self.elector.start()


@pytest.fixture
def candidates(api: KubeApi, namespace: str) -> Iterator[Callable[..., Candidate]]:
    with ExitStack() as stack:

        def enter(identity: str, terms: Terms = QUICK_TERMS) -> Candidate:
            candidate = Candidate(api, namespace, identity, terms)
            stack.callback(candidate.elector.stop)
            return candidate

        yield enter


def leads(candidate: Candidate, seconds: float = 180) -> None:
    wait_for(f"{candidate.elector.identity} leads", candidate.elector.may_write, bool, seconds)


def test_a_lease_is_held_by_one_and_handed_over_at_once(
    api: KubeApi, namespace: str, candidates: Callable[..., Candidate]
) -> None:
    patient = Terms(lease_seconds=3600, renew_deadline_seconds=1800, retry_seconds=0.5)
    first = candidates("a", patient)
    leads(first)
    second = candidates("b", patient)
    wait_for("b has seen it", lambda: second.elector.holder, lambda holder: holder == "a")
    assert not second.elector.may_write()

    first.elector.stop()

    leads(second)
    spec = api.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/slopewise")["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("b", 1)
    assert first.lost == []


def test_a_store_survives_a_restart_of_the_api_server(api: KubeApi, namespace: str, faults: Faults) -> None:
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    api.create(collection, config_map("a", "1"))
    with watching(api, namespace) as store:
        has(store, "a=1")
        try:
            faults.kill(API_SERVER)
            wait_for("the watch has broken", lambda: store.restarts, bool)
        finally:
            bring_back(api, faults)
        api.create(collection, config_map("b", "2"))
        has(store, "a=1", "b=2")
        assert store.failure is None


def bring_back(api: KubeApi, faults: Faults) -> None:
    """Start the API server until it answers: the port of one that was killed may be free only a moment later."""

    def attempt() -> str:
        faults.start(API_SERVER)
        try:
            api.get("/version")
        except ApiError as error:
            return str(error)
        return ""

    wait_for("the API server is back", attempt, lambda failure: not failure)


def test_a_hung_api_server_ends_writing_and_nothing_is_lost_when_it_goes_on(
    api: KubeApi, namespace: str, faults: Faults, candidates: Callable[..., Candidate]
) -> None:
    """The server is stopped for 5 to 10 s: the leader stops by its own clock, and no other can have begun."""
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    first = candidates("a")
    leads(first)
    second = candidates("b")
    with watching(api, namespace) as store:
        faults.stop(API_SERVER)
        try:
            wait_for("a stops", first.elector.may_write, lambda may: not may)
            wait_for("a notices", lambda: first.lost, bool)
            assert not second.elector.may_write()
            wait_for("the store knows that it is silent", store.silent_seconds, lambda silent: silent > 4)
        finally:
            faults.resume(API_SERVER)
        leads(second, 30)
        api.create(collection, config_map("b", "2"))
        has(store, "b=2")
    assert "could not be renewed" in first.lost[0]
    assert not first.elector.may_write()
