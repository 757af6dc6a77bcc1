"""The lines of a decision record, their schema and their encoding.

A record is a sequence of JSON lines. A `settings` line holds the policy document; each `pass` line after it holds the
inputs of one pass, how its decisions were carried out, and what was decided. Memory is stored as differences to that of
the pass before, since most passes begin with what was saved. Levels that are no numbers, which JSON cannot hold, are
taken out of the snapshot and put back.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import msgspec

from slopewise.model import (
    ClassFigures,
    ClusterSnapshot,
    Departed,
    Job,
    JobMemory,
    MemoryState,
    NodeMemory,
    OutcomeResult,
)

SCHEMA = 2
"""Of the lines that this version writes. Fields may be added to a schema; another meaning is another schema."""

DIGEST_BYTES = 16


class Settings(msgspec.Struct, frozen=True, tag="settings", tag_field="kind"):
    """What the passes after this line were run with."""

    schema: int
    slopewise: str
    """The version that wrote it."""
    document: dict[str, Any]
    """The TrainingPolicy, with its interval."""
    first_changes_a_pass: int | None = None


class MemoryChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """The memory that a pass began with, as its differences to what the pass before it saved.

    `whole`: there is no pass before it in this file, and all of the memory is here.
    """

    whole: bool = False
    jobs: dict[str, JobMemory] = msgspec.field(default_factory=dict)
    gone: tuple[str, ...] = ()
    order: tuple[str, ...] | None = None
    """All uids in their order; None: those of before, then the new ones."""
    nodes: dict[str, NodeMemory] | None = None
    placement_nodes: dict[str, NodeMemory] | None = None
    arriving: dict[str, JobMemory] | None = None
    classes: dict[str, tuple[ClassFigures, ...]] | None = None
    departed: tuple[Departed, ...] | None = None
    """These five as a whole; None: as before."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the actuator answered to one decision, in the order in which they were carried out."""

    action: str
    """`resize`, `resize_memory`, `move` or `stop`."""
    job: str
    """The uid."""
    result: OutcomeResult
    detail: str = ""
    maybe_begun: bool = False
    begun_at_seconds: float | None = None
    raised: bool = False
    """It was no answer but an error (`ActuationError`), and `detail` is its message."""


class Decided(msgspec.Struct, frozen=True, omit_defaults=True):
    """One decision and what became of it: withheld by a guard, or carried out with a result."""

    action: str
    """`resize`, `memory`, `place`, `migrate` or `stop`."""
    job: str
    name: str
    node: str
    reason: str
    before: int | None = None
    """Millicores; of memory, bytes."""
    after: int | None = None
    guard: str | None = None
    withheld: str | None = None
    """The guard's reason."""
    result: str | None = None
    detail: str = ""


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that a pass decided. Two passes with equal results decided the same."""

    decided: tuple[Decided, ...] = ()
    reasons: dict[str, str] = msgspec.field(default_factory=dict)
    """The policy's reason for each job, by uid, also for an unchanged one."""
    requeue_at_seconds: float | None = None
    memory: str = ""
    """A digest of the memory after the pass."""


class NotFinite(msgspec.Struct, frozen=True, omit_defaults=True):
    """A level that was `nan`, `inf` or `-inf`, which JSON has no number for."""

    job: str
    level: str
    point: int | None = None
    """The index of the raw point; None: the evaluation."""


class Inputs(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the pass observed and remembered."""

    snapshot: ClusterSnapshot
    memory: MemoryChange
    not_finite: tuple[NotFinite, ...] = ()
    """Levels that were no numbers; 0 in the snapshot."""


class Pass(msgspec.Struct, frozen=True, omit_defaults=True, tag="pass", tag_field="kind"):
    """One pass."""

    taken_at_seconds: float
    policy: str
    held: str | None = None
    """Why it changed nothing: it could not observe, or its policy failed."""
    inputs: Inputs | None = None
    """None: it could not observe."""
    answers: tuple[Answer, ...] = ()
    result: Result = Result()


Line = Settings | Pass


def _plain(value: object) -> object:
    """Mappings of other kinds than dict, and numbers of numpy."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.item()  # type: ignore[attr-defined]


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)
_DECODER = msgspec.json.Decoder(Line)


def encode(line: Line) -> bytes:
    """One line with its end."""
    return _ENCODER.encode(line) + b"\n"


def decode(line: bytes) -> Line:
    """One line; msgspec.DecodeError, or ValidationError, for what is none."""
    decoded: Line = _DECODER.decode(line)
    return decoded


def digest(memory: MemoryState) -> str:
    """Of what a pass leaves to the next one, whatever the order of its jobs.

    Read back first: a level of 1 that was read from a record is 1.0, and would be written so.
    """
    stored = Stored(dict(memory.jobs), dict(memory.nodes), dict(memory.placement_nodes), dict(memory.classes))
    stored = msgspec.structs.replace(stored, departed=memory.departed)
    read_back = msgspec.json.decode(_ENCODER.encode(stored), type=Stored)
    return blake2b(_ORDERED.encode(read_back), digest_size=DIGEST_BYTES).hexdigest()


class Stored(msgspec.Struct, frozen=True):
    """What a memory stores."""

    jobs: dict[str, JobMemory]
    nodes: dict[str, NodeMemory]
    placement_nodes: dict[str, NodeMemory]
    classes: dict[str, tuple[ClassFigures, ...]]
    departed: tuple[Departed, ...] = ()


_ORDERED = msgspec.json.Encoder(order="deterministic")


PARTS = ("nodes", "placement_nodes", "arriving", "classes")


def change_of(before: MemoryState | None, now: MemoryState) -> MemoryChange:
    """What turns `before` into `now`; all of `now` where there is no `before`."""
    base = MemoryState() if before is None else before
    return MemoryChange(
        whole=before is None,
        jobs={uid: known for uid, known in now.jobs.items() if base.jobs.get(uid) != known},
        gone=tuple(uid for uid in base.jobs if uid not in now.jobs),
        order=tuple(now.jobs) if list(_merged(base.jobs, now.jobs)) != list(now.jobs) else None,
        departed=now.departed if now.departed != base.departed else None,
        **{part: dict(getattr(now, part)) for part in PARTS if not _same(getattr(base, part), getattr(now, part))},
    )


def changed(before: MemoryState | None, change: MemoryChange) -> MemoryState:
    """The memory that a pass began with."""
    base = MemoryState() if before is None or change.whole else before
    jobs = {uid: known for uid, known in base.jobs.items() if uid not in change.gone} | change.jobs
    if change.order is not None:
        # In a replay that decides otherwise, the pass before may have been held, and has remembered none of its jobs.
        jobs = {uid: jobs[uid] for uid in change.order if uid in jobs}
    parts: dict[str, Any] = {part: value for part in PARTS if (value := getattr(change, part)) is not None}
    if change.departed is not None:
        parts["departed"] = change.departed
    return replace(base, jobs=jobs, **parts)


def _merged(before: Mapping[str, JobMemory], now: Mapping[str, JobMemory]) -> dict[str, object]:
    """The uids of `now` in the order that `changed` gives them."""
    return {uid: None for uid in before if uid in now} | dict.fromkeys(now)


def _same(before: Mapping[str, object], now: Mapping[str, object]) -> bool:
    """Equal, in the same order: the class that was seen last is the last one."""
    return before == now and list(before) == list(now)


def without_nan(snapshot: ClusterSnapshot) -> tuple[ClusterSnapshot, tuple[NotFinite, ...]]:
    """The snapshot with 0 for levels that are not finite, and which those were."""
    found = {job.uid: marks for job in snapshot.jobs if (marks := tuple(_of(job)))}
    if not found:
        return snapshot, ()
    zeros = {uid: [NotFinite(uid, "0", mark.point) for mark in marks] for uid, marks in found.items()}
    return _with_levels(snapshot, zeros), tuple(mark for marks in found.values() for mark in marks)


def with_nan(snapshot: ClusterSnapshot, not_finite: Sequence[NotFinite]) -> ClusterSnapshot:
    """The snapshot as it was."""
    if not not_finite:
        return snapshot
    by_job: defaultdict[str, list[NotFinite]] = defaultdict(list)
    for mark in not_finite:
        by_job[mark.job].append(mark)
    return _with_levels(snapshot, by_job)


def _of(job: Job) -> Iterator[NotFinite]:
    if job.evaluation is not None and not math.isfinite(job.evaluation.level):
        yield NotFinite(job.uid, str(job.evaluation.level))
    for index, point in enumerate(job.points):
        if not math.isfinite(point.level):
            yield NotFinite(job.uid, str(point.level), index)


def _with_levels(snapshot: ClusterSnapshot, levels: dict[str, list[NotFinite]]) -> ClusterSnapshot:
    return replace(snapshot, jobs=tuple(_with_level(job, levels.get(job.uid, ())) for job in snapshot.jobs))


def _with_level(job: Job, levels: Sequence[NotFinite]) -> Job:
    evaluation, points = job.evaluation, list(job.points)
    for mark in levels:
        level = float(mark.level)
        if mark.point is not None:
            points[mark.point] = msgspec.structs.replace(points[mark.point], level=level)
        elif evaluation is not None:
            evaluation = evaluation.altered(level=level)
    return job.altered(evaluation=evaluation, points=tuple(points)) if levels else job
