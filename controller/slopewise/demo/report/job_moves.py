"""The cost of the migrations of a run: the pause and the lost steps of each job.

The supervisor's records have when processes ended and started, the passes' reports when a job was seen at work again
(`MoveEvent`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from slopewise.adapters.local.job_record import JobRecord
from slopewise.demo.report.results import DemoResult, JobMove, JobResult
from slopewise.model import MoveRecord, PassReport
from slopewise.reports.cells import Cell, Row
from slopewise.reports.wording import UNKNOWN, counted, plain


def job_moves(record: JobRecord, reports: Iterable[PassReport], start_seconds: float) -> tuple[JobMove, ...]:
    """Each migration of one job, in order, with what the passes have learnt of it."""
    known = _known(record.spec.name, reports)
    return tuple(
        JobMove(
            at_seconds=made.asked_at_seconds - start_seconds,
            from_node=made.from_node,
            node=made.node,
            saving_seconds=made.ended_at_seconds - made.asked_at_seconds,
            pause_seconds=reported.pause_seconds if reported else None,
            steps_lost=reported.steps_lost if reported else None,
        )
        for made in record.moves
        for reported in [_latest_before(made.asked_at_seconds, known)]
    )


def _known(name: str, reports: Iterable[PassReport]) -> list[MoveRecord]:
    """The newest record of each migration of one job, oldest migration first."""
    newest: dict[float, MoveRecord] = {}
    for report in reports:
        newest |= {event.record.at_seconds: event.record for event in report.results.events if event.job_uid == name}
    return [newest[at] for at in sorted(newest)]


def _latest_before(at_seconds: float, records: Sequence[MoveRecord]) -> MoveRecord | None:
    """The latest record before a migration began; a pass writes the record slightly before the begin."""
    before = [each for each in records if each.at_seconds <= at_seconds]
    return before[-1] if before else None


def move_rows(result: DemoResult) -> list[Row]:
    """One row with what all migrations of each policy cost, in all rounds; none where no job was ever moved."""
    every = [[move for run in result.runs_of(place) for move in run.job_moves] for place in range(len(result.runs))]
    return [Row("Running jobs moved", tuple(map(_total, every)))] if any(every) else []


def node_rows(result: DemoResult) -> Iterator[Row]:
    """Where each job ran in the first round, and what it cost it to get there."""
    for name in result.job_names:
        yield Row(plain(name), tuple(_path(run.job(name)) for run in result.runs), name)


def _total(moves: Sequence[JobMove]) -> Cell:
    return Cell(counted(len(moves), "move"), note=cost_text(moves))


def _path(job: JobResult | None) -> Cell:
    """`node-1 → node-2`."""
    if job is None or not job.node:
        return Cell(UNKNOWN)
    names = [*(move.from_node for move in job.moves), job.node]
    return Cell(plain(" → ".join(names)), note=cost_text(job.moves))


def cost_text(moves: Sequence[JobMove]) -> str:
    """`paused 5.2 s, no step lost`; empty where nothing was moved, and as much as is known."""
    pauses = [move.pause_seconds for move in moves if move.pause_seconds is not None]
    lost = [move.steps_lost for move in moves if move.steps_lost is not None]
    parts = [f"paused {sum(pauses):.1f} s"] if pauses else []
    parts += [counted(round(sum(lost)), "step") + " lost" if sum(lost) else "no step lost"] if lost else []
    unseen = sum(move.pause_seconds is None for move in moves)
    parts += [f"{unseen} not seen at work again"] if unseen else []
    return ", ".join(parts)
