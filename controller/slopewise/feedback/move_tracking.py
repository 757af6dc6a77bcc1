"""Tracks each migration from its begin until its job trains again, and 300 s beyond.

`remember` begins a `MoveRecord` in the pass that carries the move out, `review` updates it in later passes, and each
new stage is emitted once as a `MoveEvent`. A move whose controller died before it stored the record is adopted from
`snapshot.moving`. The guards count the moves under way, and veto another move of a job whose last one failed.

    begun      carried out; another process of the job is awaited
    resumed    another process trains; tracking ends 300 s later
    cancelled  the job had finished before, or its owner was suspended or ended before it trained again
    failed     it exited with 0 on SIGTERM with steps left, lost steps although it reports to save on SIGTERM, crashed
               within 300 s of resuming, does not train again after 600 s, or its owner failed; it is not moved again
    abandoned  the same process for 60 s and no move under way: reported as cancelled, with a warning
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import msgspec

from slopewise.model import (
    BUDGET_SECONDS,
    MOVES_KEPT,
    Absence,
    ClusterSnapshot,
    Decision,
    Job,
    JobMemory,
    JobState,
    MemoryState,
    Migrate,
    MoveBounds,
    MoveEvent,
    MoveRecord,
    MoveUnderWay,
    Outcome,
)

MAX_AWAY_SECONDS = 600.0
"""A job that does not train again by then has failed: images are pulled in less."""

WATCHED_SECONDS = 300.0
"""A crash within this time counts as a failed resume: a broken checkpoint shows within the first steps."""

ABANDONED_SECONDS = 60.0
"""The same process for so long and no move under way: the move was abandoned before the job was signalled."""

SEARCHED_SECONDS = 60.0
"""For so long a pass runs every scrape while a job is awaited; later the interval is enough."""

SAME_MOVE_SECONDS = 60.0
"""A move under way belongs to a record that is at most so much older: a pass acts for seconds."""


@dataclass(frozen=True, slots=True)
class TrackedMoves:
    """The memory with updated records, and the new stages."""

    memory: MemoryState
    events: tuple[MoveEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class _Case:
    """The latest migration of one job, with the observations that decide its stage."""

    record: MoveRecord
    job: Job | None
    """None: it is on no node."""
    under_way: bool
    absence: Absence | None
    """Why it is on no node, where known."""
    now_seconds: float

    @property
    def seconds(self) -> float:
        """Since it was begun."""
        return self.now_seconds - self.record.at_seconds


Verdict = tuple[MoveRecord, tuple[MoveEvent, ...]]
"""The updated record and its new stages."""


def review(memory: MemoryState, remembered: MemoryState, snapshot: ClusterSnapshot) -> TrackedMoves:
    """Update every migration to this snapshot.

    `memory` is that of the jobs of the snapshot, `remembered` that before the pass: jobs between two nodes, and deleted
    jobs whose move still counts for the budget of a node, are kept from it.
    """
    now = snapshot.taken_at_seconds
    moving = {each.job_uid: each for each in snapshot.moving}
    away = {
        uid: known
        for uid, known in remembered.jobs.items()
        if uid not in memory.jobs and (uid in moving or (known.moves and _counts(known.moves[-1], now)))
    }
    open_ones = {
        uid: known
        for uid, known in chain(memory.jobs.items(), away.items())
        if uid in moving or (known.moves and not _is_settled(known.moves[-1], now))
    }
    jobs = {job.uid: job for job in snapshot.jobs if job.uid in open_ones}
    absent = {each.job_uid: each for each in snapshot.absent if each.job_uid in open_ones}
    changed = dict(away)
    events: list[MoveEvent] = []
    for uid, known in open_ones.items():
        adopted = _adopted(known, moving.get(uid), jobs.get(uid))
        record, new_events = _judged(uid, _Case(adopted.moves[-1], jobs.get(uid), uid in moving, absent.get(uid), now))
        if new_events or adopted is not known:
            changed[uid] = adopted.altered(moves=(*adopted.moves[:-1], record))
            events += new_events
    return TrackedMoves(memory.with_jobs(changed), tuple(events))


def remember(memory: MemoryState, outcomes: Iterable[Outcome[Decision]], snapshot: ClusterSnapshot) -> TrackedMoves:
    """Begin the record of every migration that was begun in this pass."""
    now, jobs = snapshot.taken_at_seconds, {job.uid: job for job in snapshot.jobs}
    changed: dict[str, JobMemory] = {}
    events: list[MoveEvent] = []
    for outcome in outcomes:
        move = outcome.decision
        if outcome.result != "applied" or not isinstance(move, Migrate):
            continue
        job = jobs[move.job_uid]
        record = MoveRecord(
            now, move.from_node, move.node, job.steps_total, job.process_started_at_seconds, outcome.begun_at_seconds
        )
        changed[move.job_uid] = _begun(memory.jobs[move.job_uid], record)
        how = f" ({outcome.detail})" if outcome.detail else ""
        events.append(
            MoveEvent(job.uid, "begun", record, f"moves from {move.from_node} to {move.node}{how}: {move.reason}")
        )
    return TrackedMoves(memory.with_jobs(changed), tuple(events))


def under_way(memory: MemoryState, snapshot: ClusterSnapshot) -> dict[str, str]:
    """Target nodes of the jobs that are being moved, by uid: from open records, and as the platform reports them."""
    begun = {uid: known.moves[-1].node for uid, known in memory.jobs.items() if _is_open(known)}
    return begun | {each.job_uid: each.node for each in snapshot.moving}


def awaited(memory: MemoryState, snapshot: ClusterSnapshot) -> frozenset[str]:
    """Uids of the jobs under way that count for concurrency.

    A pod that hangs on a lost node must not block all moves.
    """
    since = {uid: known.moves[-1].at_seconds for uid, known in memory.jobs.items() if _is_open(known)}
    since |= {each.job_uid: each.since_seconds for each in snapshot.moving}
    return frozenset(uid for uid, at in since.items() if snapshot.taken_at_seconds - at <= MAX_AWAY_SECONDS)


def _is_open(known: JobMemory) -> bool:
    return bool(known.moves) and known.moves[-1].is_open


def requeue_at_seconds(memory: MemoryState, snapshot: ClusterSnapshot, bounds: MoveBounds | None) -> float | None:
    """When to run again for jobs that are awaited; None: none. Unbounded moves are not awaited."""
    now = snapshot.taken_at_seconds
    fresh = bounds is not None and any(
        known.moves[-1].is_open and now - known.moves[-1].at_seconds < SEARCHED_SECONDS
        for known in memory.jobs.values()
        if known.moves
    )
    return now + snapshot.scrape_interval_seconds if fresh else None


def _counts(record: MoveRecord, now_seconds: float) -> bool:
    """Whether it is open or within the hour of its node's budget."""
    return record.is_open or now_seconds - record.at_seconds < BUDGET_SECONDS


def _is_settled(record: MoveRecord, now_seconds: float) -> bool:
    """Whether its stage is final."""
    resumed = record.resumed_at_seconds
    return record.failure is not None or (resumed is not None and now_seconds - resumed > WATCHED_SECONDS)


def _begun(known: JobMemory, record: MoveRecord) -> JobMemory:
    """The job's memory with one more migration; the end that was expected on its node counts no more."""
    older, last = known.moves[: 1 - MOVES_KEPT], known.moves[1 - MOVES_KEPT :]
    counting = (each for each in older if _counts(each, record.at_seconds))
    moves = (*counting, *last, record)
    return known.altered(moves=moves, moves_total=known.moves_total + 1).with_decided(ends=None)


def _adopted(known: JobMemory, moving: MoveUnderWay | None, job: Job | None) -> JobMemory:
    """With a record of a move whose controller died before it stored one.

    Steps and process are those of now, if any.
    """
    if moving is None:
        return known
    if known.moves and known.moves[-1].at_seconds >= moving.since_seconds - SAME_MOVE_SECONDS:
        return known
    leaving = job if job is not None and job.node == moving.from_node else None
    steps, process = (leaving.steps_total, leaving.process_started_at_seconds) if leaving else (None, None)
    return _begun(known, MoveRecord(moving.since_seconds, moving.from_node, moving.node, steps, process))


# --- judging ------------------------------------------------------------------------------------------------


def _judged(uid: str, case: _Case) -> Verdict:
    record = case.record
    if _is_settled(record, case.now_seconds):
        return record, ()
    if record.resumed_at_seconds is not None:
        return _watched(uid, case, record.resumed_at_seconds)
    if case.absence is not None and case.absence.state in ("suspended", "stopped", "finished", "failed"):
        return _stopped(uid, case, case.absence)
    if case.job is not None and _is_another_process(case.job, record):
        return _returned(uid, case, case.job)
    if case.job is not None and case.job.state.ended:
        return _ended_in_place(uid, case, case.job)
    # On another node the old series may be seen for a while yet: a pod of a StatefulSet keeps its name.
    still_there = case.job is not None and case.job.node == record.from_node and not case.under_way
    if still_there and case.seconds >= ABANDONED_SECONDS:
        return _closed(uid, case, f"stays on {record.from_node}: its move to {record.node} was given up", warning=True)
    return _late(uid, case)


def _is_another_process(job: Job, record: MoveRecord) -> bool:
    """Whether another process is at work than the one that was moved."""
    before, now = record.process_started_at_seconds, job.process_started_at_seconds
    if before is not None and now is not None:
        return before != now
    return job.node != record.from_node or job.started_at_seconds > record.at_seconds


def _returned(uid: str, case: _Case, job: Job) -> Verdict:
    """Another process runs: resumed once it trains and its steps are known."""
    if (how := _crashed(job)) is not None:
        return _failed(uid, case.record, f"crashed on resume: {how} on {job.node} before its first step was seen")
    uncounted = job.steps_total is None and case.record.steps_before is not None
    if job.state is JobState.STARTING or (uncounted and not job.state.ended):
        return _late(uid, case)
    lost = None
    if job.steps_total is not None and case.record.steps_before is not None:
        lost = max(0.0, case.record.steps_before - job.steps_total)
    first_step = _first_step_at_seconds(case, job)
    resumed_at = case.now_seconds if first_step is None else first_step
    record = msgspec.structs.replace(case.record, resumed_at_seconds=resumed_at, resumed_on=job.node, steps_lost=lost)
    elsewhere = "" if job.node == record.node else f", not on {record.node}"
    took = f"{'within' if first_step is None else 'after'} {record.away_seconds(resumed_at):.1f} s"
    message = f"resumed on {job.node}{elsewhere} {took}{_steps_text(lost)}"
    resumed = MoveEvent(uid, "resumed", record, message, warning=bool(elsewhere))
    if lost and job.checkpoint is not None and job.checkpoint.on_sigterm:
        reason = f"lost {lost:.0f} steps, though it says that it saves when it is signalled to end"
        failed, new_events = _failed(uid, record, reason)
        return failed, (resumed, *new_events)
    return record, (resumed,)


def _first_step_at_seconds(case: _Case, job: Job) -> float | None:
    """End of the new process's first step; None: not exported, or its clock is off."""
    at = job.first_step_at_seconds
    return at if at is not None and case.record.away_seconds(at) > 0 and at <= case.now_seconds else None


def _steps_text(lost: float | None) -> str:
    if lost is None:
        return ""
    return ", no step lost" if lost == 0 else f", {lost:.0f} steps lost"


def _ended_in_place(uid: str, case: _Case, job: Job) -> Verdict:
    """The process that was to be moved has ended, and no other runs.

    Success with steps left: it exited with 0 on SIGTERM, so its owner does not start it again. Failure: the normal exit
    of a trainer that saves on SIGTERM; it has failed when its owner does not start it again in time.
    """
    if job.state is JobState.FAILED:
        if case.under_way or case.seconds < ABANDONED_SECONDS:
            return _late(uid, case)
        reason = f"failed when it was signalled to end on {job.node}, and was not started again"
        return _failed(uid, case.record, reason)
    done, planned = job.steps_total, job.steps_planned
    if done is not None and planned is not None and done < planned - 1:
        reason = f"ended with success when it was signalled to end, after {done:.0f} of {planned:.0f} steps"
        return _failed(uid, case.record, f"{reason}: a trainer must exit non-zero then, or it counts as done")
    return _closed(uid, case, f"had finished on {job.node} before it was moved")


def _watched(uid: str, case: _Case, resumed_at_seconds: float) -> Verdict:
    """Whether it crashed soon after it resumed."""
    job, since = case.job, case.now_seconds - resumed_at_seconds
    how = _crashed(job) if job is not None and job.node == case.record.resumed_on else None
    if job is None or how is None:
        return case.record, ()
    return _failed(uid, case.record, f"crashed on resume: {how} within {since:.0f} s of resuming on {job.node}")


def _crashed(job: Job) -> str | None:
    """`failed` or `restarted`; None: it runs. Its container is new, so that any restart is one since the move."""
    if job.state is JobState.FAILED:
        return "failed"
    return "restarted" if job.container_health is not None and job.container_health.restarts_total > 0 else None


def _late(uid: str, case: _Case) -> Verdict:
    if case.seconds <= MAX_AWAY_SECONDS:
        return case.record, ()
    return _failed(uid, case.record, f"is not back at work {case.seconds:.0f} s after its move was begun")


def _closed(uid: str, case: _Case, message: str, *, warning: bool = False) -> Verdict:
    """Closed as cancelled: the job was not moved."""
    record = msgspec.structs.replace(
        case.record, resumed_at_seconds=case.now_seconds, resumed_on=case.record.from_node, steps_lost=0.0
    )
    return record, (MoveEvent(uid, "cancelled", record, message, warning),)


def _stopped(uid: str, case: _Case, absence: Absence) -> Verdict:
    """Its owner creates no further pod."""
    message = f"{absence.reason}, before it was seen at work on {case.record.node}"
    if absence.state == "failed":
        return _failed(uid, case.record, message)
    record = msgspec.structs.replace(case.record, resumed_at_seconds=case.now_seconds)
    return record, (MoveEvent(uid, "cancelled", record, f"{message}; its move is over"),)


def _failed(uid: str, record: MoveRecord, failure: str) -> Verdict:
    marked = msgspec.structs.replace(record, failure=failure)
    return marked, (MoveEvent(uid, "failed", marked, f"{failure}; it is not moved again", warning=True),)
