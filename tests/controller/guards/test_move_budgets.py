"""Guards that see the moves of a pass together: budgets of nodes, moves at the same time, gain, memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs
from support.moving import AUTO, bounded, crowded, remembered, to
from support.reviewing import reviewed
from support.worlds import START, a_job, a_node, a_snapshot

from slopewise.guards.move_budgets import Ledger
from slopewise.model import MemoryState, MoveRecord, MoveUnderWay, Place


def left_n1(at: float) -> MoveRecord:
    return MoveRecord(at, "n1", "n3", resumed_at_seconds=at + 5.0, resumed_on="n3", steps_lost=0.0)


def test_moves_away_from_a_node_are_counted_within_the_hour() -> None:
    gone = {
        f"gone-{n}": structs.replace(remembered("x").jobs["x"], moves=(left_n1(START - 1000.0 * n),)) for n in (1, 2, 4)
    }
    memory = replace(remembered("a", "b"), jobs={**remembered("a", "b").jobs, **gone})
    _, withheld = reviewed([to("n2")], crowded("a", "b"), memory, AUTO)
    assert withheld[0].reason == "node_budget: 2 moves away from n1 within an hour, bound 2"
    allowed, _ = reviewed([to("n2")], crowded("a", "b"), memory, bounded(max_per_node_per_hour=3))
    assert len(allowed) == 1


def test_moves_allowed_in_a_pass_count_for_those_after_them() -> None:
    snapshot = crowded("a", "b", "c", "d")
    nodes = (snapshot.nodes[0], *(a_node(name) for name in ("n2", "n3", "n4")))
    moves = [to("n2", "a"), to("n3", "b"), to("n4", "c")]
    everyone = remembered("a", "b", "c", "d")
    _, withheld = reviewed(moves, replace(snapshot, nodes=nodes), everyone, AUTO)
    assert {each.reason for each in withheld} == {"concurrency: 1 under way, bound 1"}
    _, withheld = reviewed(moves, replace(snapshot, nodes=nodes), everyone, bounded(max_concurrent=9))
    assert [each.reason for each in withheld] == ["node_budget: 2 moves away from n1 within an hour, bound 2"]


@pytest.mark.parametrize(
    ("since", "reasons"), [(START, ["concurrency: 1 under way, bound 1"]), (START - 601.0, [])], ids=["moves", "hangs"]
)
def test_what_is_under_way_counts_however_it_began_until_it_hangs(since: float, reasons: list[str]) -> None:
    moving = replace(crowded("a", "b"), moving=(MoveUnderWay("z:0", "n5", "n6", since, "starting"),))
    _, withheld = reviewed([to("n2")], moving, remembered("a", "b"), AUTO)
    assert [each.reason for each in withheld] == reasons


def test_a_move_that_gains_less_than_it_costs_is_withheld_unless_it_relieves_its_node_of_another_shortage() -> None:
    figures = "gains 0 s over 600 s, costs 4 s (saving 2 s, starting 2 s, repeating 0 s)"
    _, withheld = reviewed([to("n2")], crowded("a"), remembered("a"), AUTO)
    assert withheld[0].reason == f"gain: {figures}"
    allowed, _ = reviewed([to("n2", relieves="memory")], crowded("a"), remembered("a"), AUTO)
    assert allowed[0].reason == f"why; {figures}"


@pytest.mark.parametrize(("target", "let_through"), [("n2", 1), ("n3", 2)])
def test_what_a_move_gains_is_counted_on_top_of_those_before_it(target: str, let_through: int) -> None:
    # Three jobs on n1. The first one that goes to n2 fills it; a second one there would gain nothing.
    snapshot = crowded("a", "b", "c")
    snapshot = replace(snapshot, nodes=(*snapshot.nodes, a_node("n3")))
    moves = [to("n2", "a"), to(target, "b")]
    allowed, _ = reviewed(moves, snapshot, remembered("a", "b", "c"), bounded(max_concurrent=2))
    assert len(allowed) == let_through


def test_an_arriving_job_meets_none_of_the_bounds_of_migrations() -> None:
    placed = Place("new", "n2", "why")
    moving = replace(crowded("a"), moving=(MoveUnderWay("z:0", "n5", "n6", START, "starting"),))
    assert reviewed([placed], moving, remembered("a"), bounded(enabled=False)) == ((placed,), ())


def test_a_lowered_memory_request_makes_room_at_home_and_needs_the_original_elsewhere() -> None:
    """What the job's next pod requests."""
    gib = 2.0**30
    lowered = a_job("a").altered(memory_request_bytes=1 * gib, memory_at_start_bytes=6 * gib)
    ledger = Ledger(a_snapshot([lowered], [a_node("n1"), a_node("n2")]), MemoryState(), ())
    assert ledger.room == {"n1": 7 * gib, "n2": 8 * gib}
    move = to("n2")
    assert ledger.need([move]) == 6 * gib
    ledger.enter([move])
    assert ledger.room == {"n1": 8 * gib, "n2": 2 * gib}
