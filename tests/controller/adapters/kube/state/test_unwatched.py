"""Pods whose owner has taken the label off: found by name, as what they were remembered, and not read too often."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.api_server import ApiServer, refusal
from support.growths import Pods, Replica
from support.managed_pods import PODS, a_raw_pod
from support.worlds import FakeClock, known

from slopewise.adapters.kube.state.unwatched import READ_AGAIN_SECONDS, UnwatchedPods
from slopewise.errors import ActuationError
from slopewise.model import MemoryState


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


class World:
    """One remembered pod, `train-0`, without our label."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.clock = FakeClock()
        raw = a_raw_pod()
        raw["metadata"] = {"name": "train-0"}
        self.uid = server.put(PODS, raw)["metadata"]["uid"]
        pods = Pods()
        self.job_uid = pods.add("train", pod_uid=self.uid)
        replica = Replica(server.client(), pods)
        memory = replica.memory()
        memory.load()
        memory.save(MemoryState({self.job_uid: known()}))
        self.unwatched = UnwatchedPods(server.client(), replica.job_growths, monotonic=self.clock.monotonic)

    def change(self, **metadata: object) -> None:
        raw = self.server.get(f"{PODS}/train-0")
        raw["metadata"] |= metadata
        self.server.put(PODS, raw)


@pytest.fixture
def world(server: ApiServer) -> World:
    return World(server)


def test_a_pod_without_our_label_is_found_as_the_job_that_it_was(world: World) -> None:
    found = world.unwatched.find(world.job_uid)
    assert found is not None
    assert (found.job_uid, found.pod.uid, found.container.name) == (world.job_uid, world.uid, "trainer")


def test_it_is_read_again_after_a_while_and_not_before(world: World) -> None:
    world.unwatched.find(world.job_uid)
    world.server.remove(f"{PODS}/train-0")
    assert world.unwatched.find(world.job_uid) is not None
    world.clock.seconds += READ_AGAIN_SECONDS
    assert world.unwatched.find(world.job_uid) is None


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"slopewise.dev/managed": "false"}},
        {"uid": "of the pod that took its place"},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    ],
    ids=["it is watched", "another pod of that name", "it is being deleted"],
)
def test_what_is_not_that_pod_is_none(world: World, metadata: dict[str, object]) -> None:
    world.change(**metadata)
    assert world.unwatched.find(world.job_uid) is None


def test_a_job_that_is_not_remembered_is_none(world: World) -> None:
    assert world.unwatched.find("unheard-of:0") is None
    assert not world.server.asked("GET", PODS)


def test_a_pod_that_cannot_be_read_is_not_gone(world: World) -> None:
    world.server.fault(refusal(403, "Forbidden", "cannot get pods"), method="GET")
    with pytest.raises(ActuationError, match=r"whether its pod is still there cannot be read: .*cannot get pods"):
        world.unwatched.find(world.job_uid)
