"""Rows of the decisions of a run: changes of class, resizes and moves, with their outcomes and reasons.

A migration has two: that it was begun, and that the job was seen at work again, or failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slopewise.allocation import allotted_cores
from slopewise.demo.report.results import DecisionRow
from slopewise.model import ClusterSnapshot, CpuControl, JobView, Migrate, PassReport, Place, Resize

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
        before = allotted_cores(report.snapshot, control)
        after = _after(report, report.snapshot, control)
        at = report.taken_at_seconds - start_seconds
        rows += _moves(report, at)
        for uid, known in report.decisions.memory.jobs.items():
            here = report.by_job.get(uid) or JobView(uid)
            if here.resize is None and known.job_class == classes.get(uid):
                continue
            classes[uid] = known.job_class
            rows.append(
                DecisionRow(
                    at,
                    uid,
                    known.job_class,
                    round(1000 * before[uid]) if here.resize else None,
                    round(1000 * after[uid]) if here.resize else None,
                    _result(here),
                    _reason(here),
                )
            )
    return rows


def _after(report: PassReport, snapshot: ClusterSnapshot, control: CpuControl) -> dict[str, float]:
    """By job, in cores: with what was applied; for a job whose change did not come, with all that was wanted."""
    wanted = {uid: resize.to_millicores for uid, each in report.by_job.items() if (resize := each.resize) is not None}
    applied = {uid: to for uid, to in wanted.items() if _result(report.by_job[uid]) == "applied"}
    had = allotted_cores(snapshot, control, applied)
    desired = allotted_cores(snapshot, control, wanted)
    return {uid: desired[uid] if uid in wanted and uid not in applied else cores for uid, cores in had.items()}


def _moves(report: PassReport, at_seconds: float) -> Iterator[DecisionRow]:
    for each in report.results.of(Place, Migrate):
        move = each.decision
        reason = move.reason if each.result == "applied" else each.detail or move.reason
        yield DecisionRow(at_seconds, move.job_uid, None, None, None, each.result, reason, move.node)
    for held in report.results.withheld_of(Place, Migrate):
        move, outcome = held.decision, f"withheld: {held.guard}"
        yield DecisionRow(at_seconds, move.job_uid, None, None, None, outcome, held.reason, move.node)
    for event in report.results.events:
        if event.stage != "begun":  # the outcome has it
            where = event.record.resumed_on or event.record.node
            yield DecisionRow(at_seconds, event.job_uid, None, None, None, event.stage, event.message, where)


def _result(here: JobView) -> str:
    """Outcome of the change of its CPU; empty: none was wanted."""
    if (outcome := here.outcome(Resize)) is not None:
        return outcome.result
    withheld = here.withheld(Resize)
    return "" if withheld is None else f"{WITHHELD}{withheld.guard}"


def _reason(here: JobView) -> str:
    """The guard's reason for what was withheld, else the policy's."""
    if (withheld := here.withheld(Resize)) is not None:
        return withheld.reason
    return here.reason if here.resize is None else here.resize.reason
