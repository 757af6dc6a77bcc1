"""One pass by job: what was decided of each, what held it back, and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from support.worlds import START, a_job, a_snapshot, known

from slopewise.model import (
    Absence,
    Arrival,
    Decisions,
    JobMemory,
    JobView,
    MemoryState,
    Migrate,
    MoveEvent,
    MoveRecord,
    Outcome,
    PassReport,
    Place,
    PolicyMemory,
    Resize,
    Results,
    Withheld,
)

RESIZE = Resize("a", "n1", "limits", 1000, 500, "class CL")
MIGRATE = Migrate("a", "n1", "n2", "slow")


def a_report(memory: Mapping[str, JobMemory] | None = None, **found: Any) -> PassReport:
    snapshot = replace(
        a_snapshot([a_job("a"), a_job("b")]),
        waiting=(Arrival("new", "new", "lab", START),),
        absent=(Absence("gone", "suspended", "its Job is suspended", "lab/gone"),),
    )
    decisions = Decisions("p", (), {"a": "class CL", "b": "unchanged"}, MemoryState(memory or {"a": known()}))
    return PassReport(START, "p", {}, START + 20, snapshot=snapshot, decisions=decisions, results=Results(**found))


def test_every_job_that_the_pass_saw_or_decided_on_has_a_view() -> None:
    by_job = a_report(outcomes=(Outcome(Place("new", "n1", "room"), "applied"),)).by_job
    assert {uid: each.name for uid, each in by_job.items()} == {
        "a": "team/a", "b": "team/b", "new": "lab/new", "gone": "lab/gone",
    }  # fmt: skip
    assert by_job["a"] == JobView("team/a", known(), "class CL")
    assert by_job["new"].outcome(Place) == Outcome(Place("new", "n1", "room"), "applied")


def test_why_is_the_latest_word_on_a_job() -> None:
    resumed = MoveEvent("a", "resumed", MoveRecord(START, "n1", "n2"), "resumed on n2")
    stays = Withheld(MIGRATE, "gain", "gain: too little")
    refused, held = Outcome(RESIZE, "failed", "no right"), Withheld(RESIZE, "cooldown", "cooldown: 5 s")
    assert a_report(events=(resumed,), withheld=(stays,)).by_job["a"].message == "resumed on n2"
    assert a_report(withheld=(stays,)).by_job["a"].message == "gain: too little"
    assert a_report(outcomes=(refused,)).by_job["a"].message == "no right"
    assert a_report(outcomes=(Outcome(RESIZE, "applied"),)).by_job["a"].message == "class CL"
    assert a_report(withheld=(held,)).by_job["a"].message == "cooldown: 5 s"
    assert a_report().by_job["b"].message == "unchanged"


@pytest.mark.parametrize("placed", [None, PolicyMemory(job_class="CC")], ids=["no placement", "a placement"])
def test_a_resize_and_a_withheld_move_are_both_said_whatever_a_placement_remembers(placed: PolicyMemory | None) -> None:
    stays = Withheld(MIGRATE, "gain", "gain: too little")
    memory = {"a": known(placement=placed)}

    def message(outcomes: tuple[Outcome[Resize], ...] = (), withheld: tuple[Withheld[Resize], ...] = ()) -> str:
        return a_report(memory, outcomes=outcomes, withheld=(*withheld, stays)).by_job["a"].message

    assert message(outcomes=(Outcome(RESIZE, "applied"),)) == "class CL; gain: too little"
    assert message(outcomes=(Outcome(RESIZE, "failed", "no right"),)) == "no right; gain: too little"
    assert message(withheld=(Withheld(RESIZE, "cooldown", "cooldown: 5 s"),)) == "cooldown: 5 s; gain: too little"
    assert message() == "gain: too little"


def test_the_resize_of_a_job_is_what_was_wanted_and_the_last_of_several() -> None:
    late, now = Outcome(RESIZE, "infeasible", "no room"), Outcome(RESIZE.altered(to_millicores=800), "applied")
    assert a_report(outcomes=(late, now)).by_job["a"].resize == now.decision
    assert a_report(withheld=(Withheld(RESIZE, "paused", "paused"),)).by_job["a"].resize == RESIZE
    assert a_report().by_job["b"].resize is None
    assert PassReport(START, "p", {}, START, held="no Prometheus").by_job == {}
