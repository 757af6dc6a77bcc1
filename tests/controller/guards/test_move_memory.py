"""What a job with a lowered memory request needs on another node: what its next pod requests."""

from __future__ import annotations

from support.worlds import START, a_job, a_node, a_snapshot

from slopewise.guards.move_budgets import Ledger
from slopewise.model import Job, MemoryState, Migrate

GIB = 2.0**30


def a_lowered_job() -> Job:
    return a_job("a").altered(memory_request_bytes=1 * GIB, memory_at_start_bytes=6 * GIB)


def test_a_lowered_request_makes_room_at_home_and_needs_the_original_elsewhere() -> None:
    snapshot = a_snapshot([a_lowered_job()], [a_node("n1"), a_node("n2")], at=START)
    ledger = Ledger(snapshot, MemoryState(), ())
    assert ledger.room == {"n1": 7 * GIB, "n2": 8 * GIB}
    move = Migrate("a", "n1", "n2", "why")
    assert ledger.need([move]) == 6 * GIB
    ledger.enter([move])
    assert ledger.room == {"n1": 8 * GIB, "n2": 2 * GIB}
