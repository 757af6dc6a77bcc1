"""What the passes of a run decided, as rows: changes of class, resizes and moves, with what became of each and why.

A migration has two: that it was begun, and that the job was seen at work again, or came to harm.

Before it: the reports of a session. After it: the decision table and the timeline of the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from controller.control import allotted_cores
from controller.demo.results import DecisionRow
from controller.model import ClusterSnapshot, CpuControl, PassReport, Resize

WITHHELD = "withheld: "
"""What an outcome begins with that a guard, named after it, did not let through."""


def decision_rows(reports: Sequence[PassReport], start_seconds: float, control: CpuControl) -> list[DecisionRow]:
    """Moves and resizes with what became of them, and changes of class alone, in the order in which they happened.

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
        outcomes: dict[str, tuple[Resize | None, str]]
        outcomes = {each.resize.job_uid: (each.resize, each.result) for each in report.outcomes}
        outcomes |= {each.resize.job_uid: (each.resize, f"{WITHHELD}{each.guard}") for each in report.withheld}
        for uid, known in report.decisions.memory.jobs.items():
            resize, outcome = outcomes.get(uid, (None, ""))
            if resize is None and known.job_class == classes.get(uid):
                continue
            classes[uid] = known.job_class
            rows.append(
                DecisionRow(
                    at,
                    uid,
                    known.job_class,
                    round(1000 * before[uid]) if resize else None,
                    round(1000 * after[uid]) if resize else None,
                    outcome,
                    _why(uid, resize, report),
                )
            )
    return rows


def _after(report: PassReport, snapshot: ClusterSnapshot, control: CpuControl) -> dict[str, float]:
    """By job, in cores: with what was applied; for a job whose change did not come, with all that was wanted."""
    applied = {each.resize.job_uid: each.resize.to_millicores for each in report.outcomes if each.result == "applied"}
    changes = [*(each.resize for each in report.outcomes), *(each.resize for each in report.withheld)]
    wanted = {resize.job_uid: resize.to_millicores for resize in changes}
    had = allotted_cores(snapshot, control, applied)
    wished = allotted_cores(snapshot, control, wanted)
    return {uid: wished[uid] if uid in wanted and uid not in applied else cores for uid, cores in had.items()}


def _moves(report: PassReport, at_seconds: float) -> Iterator[DecisionRow]:
    for each in report.moves:
        move = each.move
        why = move.reason if each.result == "applied" else each.detail or move.reason
        yield DecisionRow(at_seconds, move.job_uid, None, None, None, each.result, why, move.node)
    for held in report.moves_withheld:
        move, outcome = held.move, f"withheld: {held.guard}"
        yield DecisionRow(at_seconds, move.job_uid, None, None, None, outcome, held.reason, move.node)
    for news in report.moves_told:
        if news.stage != "begun":  # that is what the outcome says
            where = news.record.resumed_on or news.record.node
            yield DecisionRow(at_seconds, news.job_uid, None, None, None, news.stage, news.sentence, where)


def _why(uid: str, resize: Resize | None, report: PassReport) -> str:
    """The guard's reason for what was withheld, else the policy's."""
    for withheld in report.withheld:
        if withheld.resize.job_uid == uid:
            return withheld.reason
    if resize is not None:
        return resize.reason
    return report.decisions.reasons.get(uid, "") if report.decisions else ""
