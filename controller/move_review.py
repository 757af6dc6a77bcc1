"""What has become of migrations: each is followed from its begin until its job is at work again, and a while on.

Before it: the policy's `decide`, as with `corrections`. After it: `move_guards`, which counts what is under way, and
does not let a job be moved again that a move has harmed. `remember` begins a `MoveRecord` in the pass that carried the
move out, `review` fills it in later ones; what becomes known is told once, as `MoveNews`. A move that was begun by a
controller that died before it could store the record is found in `snapshot.moving`.

    begun     carried out; another life of the job is waited for
    resumed   another life is at work; nothing more is asked once it has lived on for 300 s
    cancelled it had finished before, or its owner was suspended or has ended before it was at work again
    harmed    not moved again: it ended with success when it was told to end, lost steps though it says that it saves
              then, crashed within those 300 s, or is not back after 600 s; or its owner has failed meanwhile
    given up  the same life for 60 s, and nobody who moves it: told as cancelled, with a warning; nothing was moved
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from controller.bounds import BUDGET_SECONDS, MoveBounds
from controller.model import (
    MOVES_KEPT,
    Absence,
    ClusterSnapshot,
    Job,
    JobMemory,
    JobState,
    MemoryState,
    Migrate,
    MoveNews,
    MoveOutcome,
    MoveRecord,
    MoveUnderWay,
)

BACK_SECONDS = 600.0
"""A job that is not at work again by then does not come back by itself: images are pulled in less."""

WATCHED_SECONDS = 300.0
"""A crash so soon after it resumed is that of the resuming: a broken checkpoint shows within the first steps."""

GIVEN_UP_SECONDS = 60.0
"""The same process, and nobody who moves it, for so long: the move was given up before the job was told to end."""

LOOKED_FOR_SECONDS = 60.0
"""For so long a pass looks every scrape for a job that is to come back; later on, one interval more does not matter."""

SAME_MOVE_SECONDS = 60.0
"""A move under way began with the record of a pass at most so long before it: a pass acts for seconds."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The memory with what is known of migrations by now, and what is news of it."""

    memory: MemoryState
    news: tuple[MoveNews, ...] = ()


@dataclass(frozen=True, slots=True)
class _Case:
    """The latest migration of one job, and all that is needed to judge it."""

    record: MoveRecord
    job: Job | None
    """None: it is on no node just now."""
    under_way: bool
    absence: Absence | None
    """Why it is on no node, where that is known."""
    now_seconds: float

    @property
    def seconds(self) -> float:
        """Since it was begun."""
        return self.now_seconds - self.record.at_seconds


Verdict = tuple[MoveRecord, tuple[MoveNews, ...]]
"""The record as it is known now, and what of it is news."""


def review(memory: MemoryState, remembered: MemoryState, snapshot: ClusterSnapshot) -> Reviewed:
    """Follow every migration up to this snapshot.

    `memory` is that of the jobs of the snapshot, `remembered` what was known before the pass. A job between two nodes
    is not forgotten meanwhile; nor is one that has gone for good while its move counts for the budget of a node.
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
    news: list[MoveNews] = []
    for uid, known in open_ones.items():
        adopted = _adopted(known, moving.get(uid), jobs.get(uid))
        record, told = _judged(uid, _Case(adopted.moves[-1], jobs.get(uid), uid in moving, absent.get(uid), now))
        if told or adopted is not known:
            changed[uid] = adopted.altered(moves=(*adopted.moves[:-1], record))
            news += told
    return Reviewed(_with(memory, changed), tuple(news))


def remember(memory: MemoryState, outcomes: Iterable[MoveOutcome], snapshot: ClusterSnapshot) -> Reviewed:
    """Begin the record of every migration that was begun in this pass."""
    now, jobs = snapshot.taken_at_seconds, {job.uid: job for job in snapshot.jobs}
    changed: dict[str, JobMemory] = {}
    news: list[MoveNews] = []
    for outcome in outcomes:
        move = outcome.move
        if outcome.result != "applied" or not isinstance(move, Migrate):
            continue
        job = jobs[move.job_uid]
        record = MoveRecord(
            now, move.from_node, move.node, job.steps_total, job.life_started_at_seconds, outcome.begun_at_seconds
        )
        changed[move.job_uid] = _begun(memory.jobs[move.job_uid], record)
        how = f" ({outcome.detail})" if outcome.detail else ""
        news.append(
            MoveNews(job.uid, "begun", record, f"moves from {move.from_node} to {move.node}{how}: {move.reason}")
        )
    return Reviewed(_with(memory, changed), tuple(news))


def under_way(memory: MemoryState, snapshot: ClusterSnapshot) -> dict[str, str]:
    """Jobs that are being moved, by uid, and where to: what the platform says, and what was begun and is not over."""
    begun = {uid: known.moves[-1].node for uid, known in memory.jobs.items() if _is_begun(known)}
    return begun | {each.job_uid: each.node for each in snapshot.moving}


def awaited(memory: MemoryState, snapshot: ClusterSnapshot) -> frozenset[str]:
    """The jobs under way that others wait for, by uid: a pod that hangs on a lost node must not end all moves."""
    since = {uid: known.moves[-1].at_seconds for uid, known in memory.jobs.items() if _is_begun(known)}
    since |= {each.job_uid: each.since_seconds for each in snapshot.moving}
    return frozenset(uid for uid, at in since.items() if snapshot.taken_at_seconds - at <= BACK_SECONDS)


def _is_begun(known: JobMemory) -> bool:
    return bool(known.moves) and known.moves[-1].is_open


def next_look_at_seconds(memory: MemoryState, snapshot: ClusterSnapshot, bounds: MoveBounds | None) -> float | None:
    """When to look for jobs that are to come back soon; None: for none. Moves without bounds are not waited for."""
    now = snapshot.taken_at_seconds
    fresh = bounds is not None and any(
        known.moves[-1].is_open and now - known.moves[-1].at_seconds < LOOKED_FOR_SECONDS
        for known in memory.jobs.values()
        if known.moves
    )
    return now + snapshot.scrape_interval_seconds if fresh else None


def _with(memory: MemoryState, changed: Mapping[str, JobMemory]) -> MemoryState:
    return replace(memory, jobs={**memory.jobs, **changed}) if changed else memory


def _counts(record: MoveRecord, now_seconds: float) -> bool:
    """Whether its node's budget, or somebody who waits for the job, still asks for it."""
    return record.is_open or now_seconds - record.at_seconds < BUDGET_SECONDS


def _is_settled(record: MoveRecord, now_seconds: float) -> bool:
    """Nothing more will become known of it."""
    resumed = record.resumed_at_seconds
    return record.harm is not None or (resumed is not None and now_seconds - resumed > WATCHED_SECONDS)


def _begun(known: JobMemory, record: MoveRecord) -> JobMemory:
    """The job's memory with one migration more, whether it was this pass that began it or one that is forgotten."""
    older, last = known.moves[: 1 - MOVES_KEPT], known.moves[1 - MOVES_KEPT :]
    counting = (each for each in older if _counts(each, record.at_seconds))
    moves = (*counting, *last, record)
    return known.altered(moves=moves, moves_total=known.moves_total + 1, moved_at_seconds=record.at_seconds)


def _adopted(known: JobMemory, moving: MoveUnderWay | None, job: Job | None) -> JobMemory:
    """With the record of a move that a controller began and died before it could store it.

    What the job was before is not known any more: if it is still there, it is what it is now.
    """
    if moving is None:
        return known
    if known.moves and known.moves[-1].at_seconds >= moving.since_seconds - SAME_MOVE_SECONDS:
        return known
    leaving = job if job is not None and job.node == moving.from_node else None
    steps, life = (leaving.steps_total, leaving.life_started_at_seconds) if leaving else (None, None)
    return _begun(known, MoveRecord(moving.since_seconds, moving.from_node, moving.node, steps, life))


# --- judging ------------------------------------------------------------------------------------------------


def _judged(uid: str, case: _Case) -> Verdict:
    record = case.record
    if _is_settled(record, case.now_seconds):
        return record, ()
    if record.resumed_at_seconds is not None:
        return _watched(uid, case, record.resumed_at_seconds)
    if case.absence is not None and case.absence.state in ("suspended", "finished", "failed"):
        return _stopped(uid, case, case.absence)
    if case.job is not None and _is_another_life(case.job, record):
        return _returned(uid, case, case.job)
    if case.job is not None and case.job.state.ended:
        return _ended_in_place(uid, case, case.job)
    # On another node the old series may be seen for a while yet: a pod of a StatefulSet keeps its name.
    still_there = case.job is not None and case.job.node == record.from_node and not case.under_way
    if still_there and case.seconds >= GIVEN_UP_SECONDS:
        return _closed(uid, case, f"stays on {record.from_node}: its move to {record.node} was given up", warning=True)
    return _late(uid, case)


def _is_another_life(job: Job, record: MoveRecord) -> bool:
    """Whether another process is at work than the one that was moved."""
    before, now = record.life_started_at_seconds, job.life_started_at_seconds
    if before is not None and now is not None:
        return before != now
    return job.node != record.from_node or job.started_at_seconds > record.at_seconds


def _returned(uid: str, case: _Case, job: Job) -> Verdict:
    """A new process is there: resumed once it trains and its steps are known again."""
    if (how := _crashed(job)) is not None:
        return _harmed(uid, case.record, f"crashed on resume: {how} on {job.node} before its first step was seen")
    uncounted = job.steps_total is None and case.record.steps_before is not None
    if job.state is JobState.STARTING or (uncounted and not job.state.ended):
        return _late(uid, case)
    lost = None
    if job.steps_total is not None and case.record.steps_before is not None:
        lost = max(0.0, case.record.steps_before - job.steps_total)
    first_step = _first_step_at_seconds(case, job)
    resumed_at = case.now_seconds if first_step is None else first_step
    record = replace(case.record, resumed_at_seconds=resumed_at, resumed_on=job.node, steps_lost=lost)
    elsewhere = "" if job.node == record.node else f", not on {record.node}"
    took = f"{'within' if first_step is None else 'after'} {record.away_seconds(resumed_at):.1f} s"
    said = f"resumed on {job.node}{elsewhere} {took}{_in_words(lost)}"
    resumed = MoveNews(uid, "resumed", record, said, warning=bool(elsewhere))
    if lost and job.checkpoint is not None and job.checkpoint.on_sigterm:
        why = f"lost {lost:.0f} steps, though it says that it saves when it is told to end"
        harmed, told = _harmed(uid, record, why)
        return harmed, (resumed, *told)
    return record, (resumed,)


def _first_step_at_seconds(case: _Case, job: Job) -> float | None:
    """When the new process ended its first step; None: it does not say, or its clock cannot be believed."""
    at = job.first_step_at_seconds
    return at if at is not None and case.record.away_seconds(at) > 0 and at <= case.now_seconds else None


def _in_words(lost: float | None) -> str:
    if lost is None:
        return ""
    return ", no step lost" if lost == 0 else f", {lost:.0f} steps lost"


def _ended_in_place(uid: str, case: _Case, job: Job) -> Verdict:
    """The process that was to be moved has ended, and no other is there.

    With success, and steps left to do: it was told to end, saved perhaps, and then said that it was done. Failed: that
    is how a trainer ends that saves on SIGTERM, and its owner starts it again; if nobody does, it is not coming back.
    """
    if job.state is JobState.FAILED:
        if case.under_way or case.seconds < GIVEN_UP_SECONDS:
            return _late(uid, case)
        return _harmed(uid, case.record, f"failed when it was told to end on {job.node}, and was not started again")
    done, planned = job.steps_total, job.steps_planned
    if done is not None and planned is not None and done < planned - 1:
        why = f"ended with success when it was told to end, after {done:.0f} of {planned:.0f} steps"
        return _harmed(uid, case.record, f"{why}: a trainer must exit non-zero then, or it counts as done")
    return _closed(uid, case, f"had finished on {job.node} before it was moved")


def _watched(uid: str, case: _Case, resumed_at_seconds: float) -> Verdict:
    """Whether it crashed soon after it resumed."""
    job, since = case.job, case.now_seconds - resumed_at_seconds
    how = _crashed(job) if job is not None and job.node == case.record.resumed_on else None
    if job is None or how is None:
        return case.record, ()
    return _harmed(uid, case.record, f"crashed on resume: {how} within {since:.0f} s of resuming on {job.node}")


def _crashed(job: Job) -> str | None:
    """How the new process ended, in a word; None: it lives. Its container is a new one and has no restarts yet."""
    if job.state is JobState.FAILED:
        return "failed"
    return "restarted" if job.vitals is not None and job.vitals.restarts_total > 0 else None


def _late(uid: str, case: _Case) -> Verdict:
    if case.seconds <= BACK_SECONDS:
        return case.record, ()
    return _harmed(uid, case.record, f"is not back at work {case.seconds:.0f} s after its move was begun")


def _closed(uid: str, case: _Case, said: str, *, warning: bool = False) -> Verdict:
    """Nothing was moved, and nothing was lost."""
    from_node = case.record.from_node
    record = replace(case.record, resumed_at_seconds=case.now_seconds, resumed_on=from_node, steps_lost=0.0)
    return record, (MoveNews(uid, "cancelled", record, said, warning),)


def _stopped(uid: str, case: _Case, absence: Absence) -> Verdict:
    """Its owner makes no further pod: it is not late, and others need not wait for it."""
    said = f"{absence.reason}, before it was seen at work on {case.record.node}"
    if absence.state == "failed":
        return _harmed(uid, case.record, said)
    record = replace(case.record, resumed_at_seconds=case.now_seconds)
    return record, (MoveNews(uid, "cancelled", record, f"{said}; its move is over"),)


def _harmed(uid: str, record: MoveRecord, harm: str) -> Verdict:
    marked = replace(record, harm=harm)
    return marked, (MoveNews(uid, "harmed", marked, f"{harm}; it is not moved again", warning=True),)
