"""What is kept of the actions on a workload: the last ten, each once, in words."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

import pytest
from rich.console import Console
from support.worlds import START

from slopewise.crds.history import (
    MAX_DETAIL,
    Line,
    appended,
    as_json,
    in_order,
    listing,
    move_ended,
    move_event,
    moved,
    resized,
    restored,
)
from slopewise.crds.job_growth import HISTORY_KEPT, Action
from slopewise.model import Migrate, MoveEvent, MoveRecord, MoveStage, Outcome, Place, Resize


def a_resize(result: str = "applied", to: int = 500, detail: str = "") -> Action:
    resize = Resize("job-1:0", "n1", "limits", 2000, to, "class CL")
    return resized(Outcome(resize, result, detail), START)  # type: ignore[arg-type]


def printed(lines: Sequence[Line]) -> str:
    text = StringIO()
    Console(file=text, width=40).print(listing(lines), soft_wrap=True)
    return text.getvalue()


def test_a_resize_is_reported_with_its_reason_until_something_better_is_known() -> None:
    action = a_resize()
    assert (action.slot, action.action, action.change) == ("0", "Resize", "limits 2 to 500m")
    assert (action.result, action.detail) == ("applied", "class CL")
    assert a_resize(detail="cgroup read back").detail == "cgroup read back"
    assert len(a_resize(detail="x" * 500).detail) == MAX_DETAIL


def test_moves_are_reported_by_where_they_lead() -> None:
    place = moved(Outcome(Place("job-1:0", "n2", "emptiest"), "applied"), START)
    assert (place.action, place.change, place.detail) == ("Place", "on n2", "emptiest")
    migrate = moved(Outcome(Migrate("job-1:0", "n1", "n2", "why"), "infeasible", "a bare pod"), START)
    assert (migrate.action, migrate.change, migrate.result) == ("Move", "n1 to n2", "infeasible")


@pytest.mark.parametrize(
    ("stage", "resumed_on", "change"), [("resumed", "n3", "n1 to n3"), ("cancelled", "n1", "n1 to n2")]
)
def test_a_job_that_resumed_is_reported_by_where_it_is_and_a_cancelled_move_by_where_it_was_to_lead(
    stage: MoveStage, resumed_on: str, change: str
) -> None:
    record = MoveRecord(START, "n1", "n2", resumed_at_seconds=START + 60, resumed_on=resumed_on)
    action = move_event(MoveEvent("job-1:0", stage, record, "because"), START)
    assert (action.change, action.result, action.detail) == (change, stage, "because")
    ended = move_ended("job-1:0", change, stage, "somebody else has suspended it", START)
    assert appended((action,), ended) == (action,), "the same is not recorded twice"


def test_only_the_last_actions_are_kept() -> None:
    history: tuple[Action, ...] = ()
    for to in range(1000, 1015):
        history = appended(history, a_resize(to=to))
    assert len(history) == HISTORY_KEPT
    assert history[-1].change == "limits 2 to 1014m"


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        (a_resize("infeasible"), a_resize("infeasible"), 1),
        (a_resize("infeasible"), a_resize("failed"), 2),
        (a_resize("infeasible"), a_resize("infeasible", to=400), 2),
        (a_resize(), a_resize(), 2),  # carried out twice, it happened twice
        (a_resize("failed"), a_resize("failed").model_copy(update={"slot": "1"}), 2),  # another pod
    ],
)
def test_what_is_tried_in_vain_again_and_again_is_there_once(first: Action, second: Action, kept: int) -> None:
    assert len(appended(appended((), first), second)) == kept


def test_lines_are_in_the_order_of_time_and_are_printed_in_full() -> None:
    early, late = restored("a:0", "back", START), restored("b:12", "back", START + 5)
    lines = in_order([Line("team", "b", late), Line("team", "a", early)])
    assert [line.workload for line in lines] == ["a", "b"]
    assert printed(lines).splitlines() == [
        "1970-01-12 13:46:40  team/a     Restore  original resources  applied",
        "    back",
        "1970-01-12 13:46:45  team/b 12  Restore  original resources  applied",
        "    back",
    ]
    assert printed([]) == "Nothing was done yet.\n"
    assert as_json(lines)[0]["workload"] == "a"
    assert as_json(lines)[0]["time"].startswith("1970-01-12T13:46:40")
