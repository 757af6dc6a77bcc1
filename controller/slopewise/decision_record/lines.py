"""The lines of a decision record, their schema and their encoding.

A record is a sequence of JSON lines. A `settings` line holds the policy document; each `pass` line after it holds the
inputs of one pass, how its decisions were carried out, and what was decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from slopewise.model import (
    ClassFigures,
    ClusterSnapshot,
    Departed,
    JobMemory,
    MemoryState,
    NodeMemory,
    OutcomeResult,
)

SCHEMA = 1
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
