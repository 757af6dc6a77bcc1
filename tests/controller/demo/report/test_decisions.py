"""The rows of the decision table: resizes, moves and changes of class, with the outcome of each."""

from __future__ import annotations

from typing import Any

from support.worlds import START, a_job, a_node, a_snapshot, known

from slopewise.demo.report.history import decision_rows
from slopewise.model import (
    Decisions,
    MemoryState,
    Migrate,
    MoveEvent,
    MoveRecord,
    Outcome,
    PassReport,
    Place,
    Resize,
    Results,
    Withheld,
)


def a_report(after: float, job_class: str, **became: Any) -> PassReport:
    jobs = [a_job("a")]
    memory = MemoryState({"a": known(job_class=job_class)})
    decisions = Decisions("flowcon", (), {"a": f"{job_class}: because"}, memory)
    return PassReport(
        START + after, "flowcon", {}, START, snapshot=a_snapshot(jobs), decisions=decisions, results=Results(**became)
    )


def test_the_decision_table_has_changes_of_class_and_every_resize_with_what_became_of_it() -> None:
    resize = Resize("a", "n1", "limits", 1000, 500, "NL: why")
    reports = [
        a_report(1, "NL"),
        a_report(2, "NL"),
        a_report(3, "NL", outcomes=(Outcome(resize, "applied"),)),
        a_report(4, "WL", withheld=(Withheld(resize, "cooldown", "cooldown: 1 s"),)),
        PassReport(START + 5, "flowcon", {}, START, held="Prometheus is gone"),
    ]
    found = decision_rows(reports, START, "limits")
    rows = [(r.at_seconds, r.job_class, r.to_millicores, r.outcome, r.reason) for r in found]
    assert rows == [
        (1.0, "NL", None, "", "NL: because"),
        (3.0, "NL", 500, "applied", "NL: why"),
        (4.0, "WL", 500, "withheld: cooldown", "cooldown: 1 s"),
    ]


def test_an_applied_change_is_reported_without_those_that_were_withheld_beside_it() -> None:
    memory = MemoryState({uid: known(job_class="NL") for uid in ("a", "b")})
    raised, lowered = Resize("a", "n1", "requests", 1000, 1500, ""), Resize("b", "n1", "requests", 1000, 500, "")
    report = PassReport(
        START, "flowcon", {}, START,
        snapshot=a_snapshot([a_job("a"), a_job("b")], [a_node(cpu_cores=2.0)]),
        decisions=Decisions("flowcon", (raised, lowered), {}, memory),
        results=Results((Outcome(raised, "applied"),), (Withheld(lowered, "cooldown", "cooldown: 1 s"),)),
    )  # fmt: skip
    rows = [(row.job, row.to_millicores, row.outcome) for row in decision_rows([report], START, "requests")]
    assert rows == [("a", 1200, "applied"), ("b", 500, "withheld: cooldown")]  # 1500 beside 1000, and beside 500


def test_placements_and_migrations_are_rows_with_their_node_and_what_became_of_them() -> None:
    """One that was begun says why it was wanted, and not how it is done."""
    place, migrate = Place("late", "n2", "fewest claims"), Migrate("a", "n1", "n2", "slow move")
    report = a_report(
        3,
        "NL",
        outcomes=(Outcome(place, "applied", "starts there"), Outcome(migrate, "infeasible", "does not move yet")),
        withheld=(Withheld(migrate, "may_migrate", "may_migrate: it must not"),),
    )
    moved = [row for row in decision_rows([report], START, "limits") if row.node]
    assert [(row.job, row.node, row.outcome, row.reason) for row in moved] == [
        ("late", "n2", "applied", "fewest claims"),
        ("a", "n2", "infeasible", "does not move yet"),
        ("a", "n2", "withheld: may_migrate", "may_migrate: it must not"),
    ]


def test_that_a_moved_job_is_at_work_again_is_a_row_and_that_it_was_begun_is_not_reported_twice() -> None:
    record = MoveRecord(START, "n1", "n2", resumed_at_seconds=START + 3, resumed_on="n3", steps_lost=0.0)
    begun = MoveEvent("a", "begun", record, "moves from n1 to n2")
    resumed = MoveEvent("a", "resumed", record, "resumed on n3, not on n2 after 3 s, no step lost")
    failed = MoveEvent("b", "failed", MoveRecord(START, "n1", "n2"), "crashed on resume; it is not moved again")
    report = a_report(3, "NL", events=(begun, resumed, failed))
    moved = [row for row in decision_rows([report], START, "limits") if row.node]
    assert [(row.job, row.node, row.outcome, row.reason) for row in moved] == [
        ("a", "n3", "resumed", "resumed on n3, not on n2 after 3 s, no step lost"),
        ("b", "n2", "failed", "crashed on resume; it is not moved again"),
    ]
