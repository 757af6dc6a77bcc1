"""Rows of the decisions of a run (resizes, moves, changes of class) with their outcomes, and the cost of each move.

A migration has two rows: that it was begun, and that the job was seen at work again, or failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from slopewise.adapters.local.job_record import JobRecord
from slopewise.allocation import allotted_cores
from slopewise.demo.report.results import DecisionRow, JobMove
from slopewise.model import CpuControl, JobView, Migrate, PassReport, Place, Resize

WITHHELD = "withheld: "
"""What an outcome begins with that a guard, named after it, did not let through."""


def decision_rows(reports: Sequence[PassReport], start_seconds: float, control: CpuControl) -> list[DecisionRow]:
    """Moves and resizes with their outcomes, and changes of class alone, in the order in which they happened.

    Figures are what a job may use: of a weight, the share of the node that it gives once the pass is done. Of a change
    that did not come, what it would have given had all come that were wanted.
    """
    rows: list[DecisionRow] = []
    classes: dict[str, str | None] = {}
    for report in reports:
        if report.decisions is None or report.snapshot is None:
            continue
        views = report.by_job
        wanted = {uid: each.resize.to_millicores for uid, each in views.items() if each.resize is not None}
        applied = {uid: to for uid, to in wanted.items() if _result(views[uid]) == "applied"}
        before, after = allotted_cores(report.snapshot, control), allotted_cores(report.snapshot, control, applied)
        desired = allotted_cores(report.snapshot, control, wanted)
        at = report.taken_at_seconds - start_seconds
        rows += _moves(report, at)
        for uid, known in report.decisions.memory.jobs.items():
            view = views.get(uid) or JobView(uid)
            if view.resize is None and known.decided.job_class == classes.get(uid):
                continue
            classes[uid] = known.decided.job_class
            had, has = (
                (None, None) if view.resize is None else (before[uid], (after if uid in applied else desired)[uid])
            )
            withheld = view.withheld(Resize)
            reason = view.reason if view.resize is None else view.resize.reason
            outcome, reason = _result(view), reason if withheld is None else withheld.reason
            millicores = [None if each is None else round(1000 * each) for each in (had, has)]
            rows.append(DecisionRow(at, uid, known.decided.job_class, millicores[0], millicores[1], outcome, reason))
    return rows


def _moves(report: PassReport, at_seconds: float) -> Iterator[DecisionRow]:
    for each in report.results.of(Place, Migrate):
        move = each.decision
        reason = move.reason if each.result == "applied" else each.detail or move.reason
        yield DecisionRow(at_seconds, move.job_uid, None, None, None, each.result, reason, move.node)
    for held in report.results.withheld_of(Place, Migrate):
        move, outcome = held.decision, f"{WITHHELD}{held.guard}"
        yield DecisionRow(at_seconds, move.job_uid, None, None, None, outcome, held.reason, move.node)
    for event in report.results.events:
        if event.stage != "begun":  # the outcome has it
            where = event.record.resumed_on or event.record.node
            yield DecisionRow(at_seconds, event.job_uid, None, None, None, event.stage, event.message, where)


def _result(view: JobView) -> str:
    """Outcome of the change of its CPU; empty: none was wanted."""
    if (outcome := view.outcome(Resize)) is not None:
        return outcome.result
    withheld = view.withheld(Resize)
    return "" if withheld is None else f"{WITHHELD}{withheld.guard}"


def job_moves(record: JobRecord, reports: Iterable[PassReport], start_seconds: float) -> tuple[JobMove, ...]:
    """Each migration of one job, in order.

    The record has when processes ended and started, the passes when the job was seen at work again.
    """
    events = [each for report in reports for each in report.results.events if each.job_uid == record.spec.name]
    # The newest of each migration, by when it was decided: slightly before it was begun.
    known = {event.record.at_seconds: event.record for event in events}
    moves = []
    for made in record.moves:
        decided = [at for at in known if at <= made.asked_at_seconds]
        reported = known[max(decided)] if decided else None
        moves.append(
            JobMove(
                at_seconds=made.asked_at_seconds - start_seconds,
                from_node=made.from_node,
                node=made.node,
                saving_seconds=made.ended_at_seconds - made.asked_at_seconds,
                pause_seconds=reported.pause_seconds if reported else None,
                steps_lost=reported.steps_lost if reported else None,
            )
        )
    return tuple(moves)
