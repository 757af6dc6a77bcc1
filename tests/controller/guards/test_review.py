"""All decisions of a pass are reviewed together: what takes precedence, in which order a report has them."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from support.moving import AUTO
from support.reviewing import reviewed
from support.worlds import a_job, a_snapshot

from slopewise.decision_record.recorder import ACTIONS, ANSWERS
from slopewise.guards.permission import PREFIXES, is_by_mode, permission_names
from slopewise.guards.review import STAGES, guard_names, is_routine
from slopewise.model import (
    Decision,
    MemoryAllocation,
    MemoryState,
    Migrate,
    Move,
    MoveUnderWay,
    Place,
    Resize,
    ResizeMemory,
    Stop,
)

KINDS = {kind for each in get_args(Decision) for kind in get_args(each) or (each,)}
LOWER = Resize("a", "n1", "limits", 1000, 500, "why")


def test_no_kind_of_decision_is_without_guards_or_without_a_name_in_a_record() -> None:
    assert STAGES.keys() == PREFIXES.keys() == ACTIONS.keys() == ANSWERS.keys() == KINDS
    assert {*get_args(Move)} < KINDS


def test_what_is_withheld_is_reported_by_kind_and_first_what_gives_way_to_another_decision() -> None:
    job = a_job("a").altered(memory=MemoryAllocation(1024, 2048), memory_request_bytes=1024.0)
    snapshot = a_snapshot([job, a_job("b").altered(migratable=True), a_job("c")])
    snapshot = replace(snapshot, moving=(MoveUnderWay("c", "n1", "n2", 0.0, "saving"),))
    asked: list[Decision] = [
        Stop("a", "n1", "why"),
        ResizeMemory("a", "n1", "request", 1024, 512, "why"),
        Migrate("b", "n1", "n1", "why"),
        LOWER,
        LOWER.altered(job_uid="c"),
    ]
    allowed, withheld = reviewed(asked, snapshot, MemoryState(), replace(AUTO, mode="Observe"))
    assert allowed == ()
    assert [(type(each.decision), each.guard) for each in withheld] == [
        (Resize, "moving"),
        (Resize, "paused"),
        (ResizeMemory, "memory_paused"),
        (Migrate, "move_paused"),
        (Stop, "stop_paused"),
    ]


def test_a_guard_says_itself_whether_it_is_routine() -> None:
    assert {guard for guard in guard_names() if not is_routine(guard)} >= {"floor", "backoff", "grace", "move_frozen"}
    assert all(is_routine(name) for kind in (Resize, ResizeMemory, Stop) for name in permission_names(kind))
    assert [name for name in permission_names(Place) if is_by_mode(name)] == ["move_paused", "move_canary"]
