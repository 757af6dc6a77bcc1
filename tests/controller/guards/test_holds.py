"""Held arrivals: who may wait, and until when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.moving import AUTO
from support.worlds import START, a_snapshot

from slopewise.estimators.holding import hold_until_seconds
from slopewise.guards.holds import MAX_HELD, ReviewedHolds, review_holds
from slopewise.model import (
    Arrival,
    Bounds,
    Decisions,
    JobMemory,
    MemoryState,
    Objectives,
    Pace,
    PaceAnchor,
    Place,
)

HOLDING = replace(AUTO, max_hold_seconds=600.0)


def arrival(uid: str = "a", *, waited: float = 0.0, within: float | None = None, steps: float | None = None) -> Arrival:
    """One that has waited for so long; `within` counts from its arrival."""
    arrived = START - waited
    objectives = Objectives(2.0, None if within is None else arrived + within)
    return Arrival(uid, uid, "team", arrived, steps_planned=steps, objectives=objectives)


def reviewed(*waiting: Arrival, bounds: Bounds = HOLDING, moves: tuple[Place, ...] = ()) -> ReviewedHolds:
    held = {each.uid: "needs 0.9 cores; most free is 0.3 on node-b" for each in waiting}
    snapshot = replace(a_snapshot([]), waiting=waiting)
    return review_holds(Decisions("dqoes", (), {}, MemoryState(), moves, held), snapshot, {}, bounds)


def test_it_waits_for_a_bounded_time_and_says_so() -> None:
    hold = reviewed(arrival()).held["a"]
    assert hold.reason == "needs 0.9 cores; most free is 0.3 on node-b; waits up to 600 s"
    assert hold.until_seconds == START + 600.0


@pytest.mark.parametrize(("waited", "waits"), [(599.0, True), (600.0, False)])
def test_after_the_bound_it_is_let_in(waited: float, waits: bool) -> None:
    assert ("a" in reviewed(arrival(waited=waited)).held) is waits


def test_one_that_may_not_wait_any_longer_is_left_to_the_default_scheduler() -> None:
    place, other = Place("a", "n1", "why"), Place("b", "n1", "why")
    assert reviewed(arrival(waited=600.0), moves=(place, other)) == ReviewedHolds({}, (other,))


@pytest.mark.parametrize("bounds", [replace(HOLDING, mode="Recommend"), replace(HOLDING, max_hold_seconds=0.0)])
def test_no_job_is_held_back_in_other_modes_or_where_it_is_off(bounds: Bounds) -> None:
    assert reviewed(arrival(), bounds=bounds).held == {}


def test_mode_canary_holds_back_its_share() -> None:
    everyone = [arrival(f"job-{number}") for number in range(100)]
    held = reviewed(*everyone, bounds=replace(HOLDING, mode="Canary", canary_ratio=0.3)).held
    assert 10 < len(held) < 60


def test_a_job_of_unknown_length_waits_for_a_third_of_the_time_until_its_deadline() -> None:
    assert hold_until_seconds(arrival(within=900.0), None, 600.0) == START + 300.0


def test_a_job_whose_steps_are_timed_waits_no_longer_than_it_can_afford() -> None:
    known = JobMemory(paces=(Pace(START, 1.0, 1.0),), pace_anchor=PaceAnchor(START, 100.0, None, None))
    assert hold_until_seconds(arrival(within=900.0, steps=600.0), known, 600.0) == START + 400.0
    assert hold_until_seconds(arrival(within=400.0, steps=600.0), known, 600.0) == START - 100.0


def test_a_deadline_in_the_past_is_not_waited_for() -> None:
    assert reviewed(arrival(waited=50.0, within=20.0)).held == {}


def test_no_more_wait_at_the_same_time_than_can_be_renewed() -> None:
    everyone = [arrival(f"job-{number:03}") for number in range(MAX_HELD + 5)]
    assert list(reviewed(*everyone).held) == [each.uid for each in everyone[:MAX_HELD]]
