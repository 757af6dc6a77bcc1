"""What the migrations of a run cost: how long each job paused, and how many of its steps were lost.

Before it: the supervisor's records, which know when processes ended and started, and the passes' reports, which tell
when a job was seen at work again (`MoveNews`). After it: `results.py` and the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from controller.adapters.job_record import JobRecord
from controller.demo.cells import Row, Word
from controller.demo.results import DemoResult, JobMove, JobResult
from controller.demo.wording import UNKNOWN, counted, plain
from controller.model import MoveRecord, PassReport


def job_moves(record: JobRecord, reports: Iterable[PassReport], start_seconds: float) -> tuple[JobMove, ...]:
    """Each migration of one job, in order, with what the passes have learnt of it."""
    known = _known(record.spec.name, reports)
    return tuple(
        JobMove(
            at_seconds=made.asked_at_seconds - start_seconds,
            from_node=made.from_node,
            node=made.node,
            saving_seconds=made.ended_at_seconds - made.asked_at_seconds,
            pause_seconds=told.pause_seconds if told else None,
            steps_lost=told.steps_lost if told else None,
        )
        for made in record.moves
        for told in [_latest_before(made.asked_at_seconds, known)]
    )


def _known(name: str, reports: Iterable[PassReport]) -> list[MoveRecord]:
    """The newest record of each migration of one job, oldest migration first."""
    newest: dict[float, MoveRecord] = {}
    for report in reports:
        newest |= {news.record.at_seconds: news.record for news in report.moves_told if news.job_uid == name}
    return [newest[at] for at in sorted(newest)]


def _latest_before(at_seconds: float, records: Sequence[MoveRecord]) -> MoveRecord | None:
    """A pass takes its time, decides and then asks: the record of a migration is a little older than its begin."""
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


def _total(moves: Sequence[JobMove]) -> Word:
    return Word(counted(len(moves), "move"), note=cost_in_words(moves))


def _path(job: JobResult | None) -> Word:
    """`node-1 → node-2`."""
    if job is None or not job.node:
        return Word(UNKNOWN)
    names = [*(move.from_node for move in job.moves), job.node]
    return Word(plain(" → ".join(names)), note=cost_in_words(job.moves))


def cost_in_words(moves: Sequence[JobMove]) -> str:
    """`paused 5.2 s, no step lost`; empty where nothing was moved, and as much as is known."""
    pauses = [move.pause_seconds for move in moves if move.pause_seconds is not None]
    lost = [move.steps_lost for move in moves if move.steps_lost is not None]
    parts = [f"paused {sum(pauses):.1f} s"] if pauses else []
    parts += [counted(round(sum(lost)), "step") + " lost" if sum(lost) else "no step lost"] if lost else []
    unseen = sum(move.pause_seconds is None for move in moves)
    parts += [f"{unseen} not seen at work again"] if unseen else []
    return ", ".join(parts)
