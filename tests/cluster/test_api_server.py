"""Requests and watches against a real API server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.cluster import Kubectl, PodShape
from support.waiting import eventually, wait_for

from slopewise.adapters.kube.cache.reflector import Reflector, Timing
from slopewise.adapters.kube.client.client import ApiError, KubeApi
from slopewise.adapters.kube.client.protocol import STRATEGIC_MERGE_PATCH

QUICK_WATCH = Timing(watch_seconds=3, grace_seconds=1, first_wait_seconds=0.1, longest_wait_seconds=0.5)


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
