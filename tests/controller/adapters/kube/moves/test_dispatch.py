"""Who carries a move out, and which moves are not carried out at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from msgspec import structs
from support.managed_pods import KnownJob, a_managed_pod

from slopewise.adapters.kube.cache.records import MIGRATABLE, ManagedPod
from slopewise.adapters.kube.moves.dispatch import KubeMover
from slopewise.model import Decision, Migrate, Movability, Move, Outcome, Place, Stop

MOVE = Migrate("j", "node-a", "node-b", "why")


def movable() -> ManagedPod:
    managed = a_managed_pod()
    return structs.replace(managed, pod=structs.replace(managed.pod, annotations={MIGRATABLE: "true"}))


@dataclass
class Way:
    """Carries everything out, and remembers what that was."""

    name: str
    begun: list[tuple[Move, str, tuple[str, ...]]] = field(default_factory=list)

    def place(self, move: Place) -> Outcome[Move]:
        self.begun.append((move, "", ()))
        return Outcome(move, "applied", self.name)

    def begin(self, move: Migrate, managed: ManagedPod, policy: str, members: Sequence[str]) -> Outcome[Move]:
        self.begun.append((move, policy, tuple(members)))
        return Outcome(move, "applied", self.name)


@dataclass
class World:
    managed: ManagedPod | None = field(default_factory=movable)
    movability: Movability | None = field(default_factory=lambda: Movability(way="suspend", members=("j", "k")))
    suspend: Way = field(default_factory=lambda: Way("suspend"))
    evict: Way = field(default_factory=lambda: Way("evict"))
    gates: Way = field(default_factory=lambda: Way("gates"))

    def begin(self, decision: Move | Stop = MOVE) -> Outcome[Decision]:
        ways = (self.gates.place, self.suspend.begin, self.evict.begin, self.stops)
        return KubeMover("draps", KnownJob(self.managed), lambda uid: self.movability, *ways).begin(decision)

    def stops(self, stop: Stop, managed: ManagedPod, policy: str) -> Outcome[Stop]:
        return Outcome(stop, "applied", f"stopped for {policy}")

    def begun(self) -> int:
        return sum(len(way.begun) for way in (self.suspend, self.evict, self.gates))


def test_the_way_is_the_one_that_the_platform_has_found() -> None:
    world = World()
    assert world.begin().detail == "suspend"
    assert world.suspend.begun == [(MOVE, "draps", ("j", "k"))], "the members of its workload go with it"
    assert World(movability=Movability(way="evict")).begin().detail == "evict"
    assert world.begin(Place("j", "node-b", "why")).detail == "gates"
    stop = Stop("j", "node-a", "why")
    assert world.begin(stop).detail == "stopped for draps"
    gone = World(managed=None).begin(stop)
    assert (gone.result, gone.detail) == ("failed", "its pod is gone; there is nothing to stop")


@pytest.mark.parametrize(
    ("world", "result", "words"),
    [
        (World(managed=None), "failed", "its pod is gone; there is nothing to move"),
        (World(movability=None), "infeasible", "nothing is known of how"),
        (World(movability=Movability(blocked_reason="it is a bare pod")), "infeasible", "it is a bare pod"),
        (World(movability=Movability()), "infeasible", "no way to move it"),
        (World(managed=a_managed_pod()), "infeasible", "does not say slopewise.dev/migratable any more"),
        (
            World(movability=Movability(way="evict", refused_nodes={"node-b": "taint gpu=only"})),
            "infeasible",
            "node-b would not take it: taint gpu=only",
        ),
    ],
)
def test_what_cannot_be_moved_is_not_begun_and_says_why(world: World, result: str, words: str) -> None:
    outcome = world.begin()
    assert outcome.result == result
    assert words in outcome.detail
    assert world.begun() == 0
