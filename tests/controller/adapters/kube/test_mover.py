"""Who carries a move out, and which moves are not carried out at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from support.managed_pods import a_managed_pod

from controller.adapters.kube.mover import KubeMover, Ways
from controller.adapters.kube.records import MIGRATABLE, ManagedPod
from controller.errors import ActuationError
from controller.model import Migrate, Mobility, Move, MoveOutcome, Place

MOVE = Migrate("j", "node-a", "node-b", "why")


def movable() -> ManagedPod:
    managed = a_managed_pod()
    return replace(managed, pod=replace(managed.pod, annotations={MIGRATABLE: "true"}))


@dataclass
class Way:
    """Carries everything out, and remembers what that was."""

    name: str
    begun: list[tuple[Move, str, tuple[str, ...]]] = field(default_factory=list)

    def place(self, move: Place) -> MoveOutcome:
        self.begun.append((move, "", ()))
        return MoveOutcome(move, "applied", self.name)

    def begin(self, move: Migrate, managed: ManagedPod, policy: str, members: Sequence[str]) -> MoveOutcome:
        self.begun.append((move, policy, tuple(members)))
        return MoveOutcome(move, "applied", self.name)


@dataclass
class Roster:
    managed: ManagedPod | None

    def find(self, job_uid: str) -> ManagedPod | None:
        return self.managed


@dataclass
class World:
    managed: ManagedPod | None = field(default_factory=movable)
    mobility: Mobility | None = field(default_factory=lambda: Mobility(way="suspend", members=("j", "k")))
    leads: bool = True
    suspend: Way = field(default_factory=lambda: Way("suspend"))
    evict: Way = field(default_factory=lambda: Way("evict"))
    gates: Way = field(default_factory=lambda: Way("gates"))

    def move(self, move: Move = MOVE) -> MoveOutcome:
        ways = Ways(self.gates.place, self.suspend.begin, self.evict.begin)
        mover = KubeMover("draps", Roster(self.managed), lambda uid: self.mobility, ways, lambda: self.leads)
        return mover.move(move)

    def begun(self) -> int:
        return sum(len(way.begun) for way in (self.suspend, self.evict, self.gates))


def test_an_arriving_pod_is_placed_by_its_gate() -> None:
    assert World().move(Place("j", "node-b", "why")).detail == "gates"


def test_the_way_is_the_one_that_the_platform_has_found() -> None:
    assert World().move().detail == "suspend"
    assert World(mobility=Mobility(way="evict")).move().detail == "evict"


def test_the_members_of_its_workload_go_with_it() -> None:
    world = World()
    world.move()
    assert world.suspend.begun == [(MOVE, "draps", ("j", "k"))]


@pytest.mark.parametrize(
    ("world", "result", "words"),
    [
        (World(managed=None), "failed", "its pod is gone"),
        (World(mobility=None), "infeasible", "nothing is known of how"),
        (World(mobility=Mobility(stays_because="it is a bare pod")), "infeasible", "it is a bare pod"),
        (World(mobility=Mobility()), "infeasible", "no way to move it"),
        (World(managed=a_managed_pod()), "infeasible", "does not say slopewise.dev/migratable any more"),
        (
            World(mobility=Mobility(way="evict", refused_nodes={"node-b": "taint gpu=only"})),
            "infeasible",
            "node-b would not take it: taint gpu=only",
        ),
    ],
)
def test_what_cannot_be_moved_is_not_begun_and_says_why(world: World, result: str, words: str) -> None:
    outcome = world.move()
    assert outcome.result == result
    assert words in outcome.detail
    assert world.begun() == 0


def test_without_leadership_nothing_is_begun() -> None:
    world = World(leads=False)
    with pytest.raises(ActuationError):
        world.move()
    assert world.begun() == 0
