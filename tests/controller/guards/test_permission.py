"""Freezes: which decisions each place holds back, and which freeze of several counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from support.moving import AUTO
from support.reviewing import reviewed
from support.worlds import START, a_job, a_node, a_snapshot

from slopewise.guards import at_target
from slopewise.model import (
    NO_FREEZES,
    Arrival,
    ClusterSnapshot,
    Freeze,
    FreezeEffect,
    Freezes,
    JobMemory,
    Levels,
    MemoryAllocation,
    MemoryState,
    MemoryUse,
    Migrate,
    ObjectiveMemory,
    Objectives,
    Place,
    Resize,
    ResizeMemory,
    TargetHits,
    Withheld,
    strictest,
)

MIB = 2**20
FREEZE = Freeze("f", "Freeze", "Freeze f (namespace/team): disk trouble")
OPEN = replace(AUTO, moving=None)
LOWER = Resize("j", "n1", "limits", 1000, 500, "why")
ROLLBACK = LOWER.altered(is_rollback=True)
LESS_MEMORY = ResizeMemory("j", "n1", "request", 1024 * MIB, 360 * MIB, "why")
GO = Migrate("j", "n1", "n2", "why")
ARRIVE = Place("new", "n2", "why")
REACHED = JobMemory(levels=Levels("s", first=1.0, best=0.19), objectives=ObjectiveMemory(targets=TargetHits(0, 2)))
OF_TEAM = Freezes(namespaces={"team": FREEZE})
OF_NODE = Freezes(nodes={"n1": FREEZE})
OF_ALL = Freezes(everywhere=FREEZE)
OF_ANOTHER = Freezes(namespaces={"other": FREEZE}, nodes={"n9": FREEZE})


def world(freezes: Freezes = NO_FREEZES) -> ClusterSnapshot:
    job = a_job("j", level=0.19).altered(
        memory=MemoryAllocation(1024 * MIB, 2048 * MIB),
        memory_request_bytes=1024.0 * MIB,
        migratable=True,
        objectives=Objectives(target_level=0.2, stops_at_target=True),
    )
    arrival = Arrival("new", "new", "team", START)
    nodes = [a_node("n1", cpu_cores=2.0), a_node("n2")]
    return replace(a_snapshot([job], nodes), waiting=(arrival,), freezes=freezes)


def withheld(freezes: Freezes) -> dict[str, str]:
    """The guard that held back one decision of each kind, where it is one of freezes."""
    snapshot = world(freezes)
    known = MemoryState({"j": REACHED.altered(memory_use=MemoryUse(START, 100.0 * MIB, 300.0 * MIB, samples=10))})
    found: dict[str, Sequence[Withheld[Any]]] = {
        "resize": reviewed([LOWER], snapshot, known, OPEN)[1],
        "rollback": reviewed([ROLLBACK], snapshot, known, OPEN)[1],
        "memory": reviewed([LESS_MEMORY], snapshot, known, OPEN)[1],
        "memory rollback": reviewed([replace(LESS_MEMORY, is_rollback=True)], snapshot, known, OPEN)[1],
        "migrate": reviewed([GO], snapshot, known, OPEN)[1],
        "place": reviewed([ARRIVE], snapshot, known, OPEN)[1],
        "stop": reviewed(at_target.stops(known, snapshot)[0], snapshot, known, OPEN)[1],
    }
    return {kind: each.reason for kind, [each] in ((kind, each) for kind, each in found.items() if each)}


@pytest.mark.parametrize("freezes", [NO_FREEZES, OF_ANOTHER], ids=["none", "elsewhere"])
def test_without_a_freeze_of_its_own_each_decision_passes(freezes: Freezes) -> None:
    assert withheld(freezes) == {}


@pytest.mark.parametrize(
    "freezes",
    [OF_TEAM, OF_ALL, Freezes(everywhere=replace(FREEZE, effect="Recommend"))],
    ids=["namespace", "all", "as in mode Recommend"],
)
def test_a_freeze_holds_every_kind_of_change_back(freezes: Freezes) -> None:
    found = withheld(freezes)
    assert {kind: reason.partition(": ")[0] for kind, reason in found.items()} == {
        "resize": "frozen",
        "rollback": "frozen",
        "memory": "memory_frozen",
        "memory rollback": "memory_frozen",
        "migrate": "move_frozen",
        "place": "move_frozen",
        "stop": "stop_frozen",
    }
    assert {reason.partition(": ")[2] for reason in found.values()} == {FREEZE.message}


def test_a_frozen_node_neither_loses_nor_gets_a_job() -> None:
    assert withheld(OF_NODE).keys() == {"resize", "rollback", "memory", "memory rollback", "migrate", "stop"}
    assert withheld(Freezes(nodes={"n2": FREEZE})).keys() == {"migrate", "place"}


def a_freeze(name: str, effect: FreezeEffect, until: float | None) -> Freeze:
    return Freeze(name, effect, name, until)


def test_the_strictest_of_several_counts() -> None:
    recommend = a_freeze("a", "Recommend", None)
    soon, late, open_ended = (a_freeze(name, "Freeze", until) for name, until in (("b", 1.0), ("c", 2.0), ("d", None)))
    assert strictest([recommend, soon]) is soon
    assert strictest([soon, late]) is late
    assert strictest([late, open_ended, recommend]) is open_ended
    assert strictest([]) is None
    both = Freezes(recommend, {"team": soon}, {"n1": late})
    assert both.of("team", "n1") is late
    assert both.of("team") is soon
    assert both.of("other") is recommend
