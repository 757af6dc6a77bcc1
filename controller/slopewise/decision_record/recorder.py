"""Records the passes of one policy: stands between a pass and its ports, and writes a line when the pass is reported.

A record never holds a pass: where the file cannot be written, that is logged once, and the next line that can be
written begins with all of the memory again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

import slopewise
from slopewise.config.training_policy import TrainingPolicy, as_json
from slopewise.decision_record.files import BoundedFile
from slopewise.decision_record.lines import (
    SCHEMA,
    Answer,
    Decided,
    Inputs,
    Pass,
    Result,
    Settings,
    change_of,
    digest,
    encode,
    without_nan,
)
from slopewise.errors import ActuationError
from slopewise.model import (
    ClusterSnapshot,
    CpuAllocation,
    Decision,
    MemoryAllocation,
    MemoryState,
    Migrate,
    Observation,
    Outcome,
    PassReport,
    Place,
    Resize,
    ResizeMemory,
    Restored,
    Stop,
)
from slopewise.ports import Actuator, Memory, Observer, Ports

MEBIBYTE = 2**20

ACTIONS: dict[type[Decision], str] = {
    Resize: "resize", ResizeMemory: "memory", Place: "place", Migrate: "migrate", Stop: "stop",
}  # fmt: skip
"""How a record names each kind of decision."""

ANSWERS: dict[type[Decision], str] = ACTIONS | {ResizeMemory: "resize_memory", Place: "move", Migrate: "move"}
"""How it names the answers to each kind."""


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Where records are written: a file for each policy, `FOLDER/POLICY.jsonl`, and what one may take on disk."""

    folder: Path
    max_mebibytes: int

    def recorder(self, document: TrainingPolicy, first_changes_a_pass: int | None = None) -> Recorder:
        """Of a document with its interval."""
        name = re.sub(r"[^\w.-]", "_", document.metadata.name)  # a policy file may be called ../x
        file = BoundedFile(self.folder / f"{name}.jsonl", self.max_mebibytes * MEBIBYTE)
        return Recorder(file, as_json(document), first_changes_a_pass)


class Recorder:
    """The record of one policy's passes. `ports` goes into `reconcile`, the recorder itself is a sink of reports."""

    def __init__(self, file: BoundedFile, document: dict[str, Any], first_changes_a_pass: int | None = None) -> None:
        """`document`: the policy with its interval, as JSON."""
        self._file = file
        self._settings = Settings(SCHEMA, slopewise.__version__, document, first_changes_a_pass)
        self._seen = _Seen()
        self._saved: MemoryState | None = None
        """What the reader of the file has after the last line."""
        self._failure = ""
        self._log = structlog.get_logger("slopewise")

    def ports(self, ports: Ports) -> Ports:
        """The same ports, whose answers are noted."""
        seen = self._seen
        return replace(
            ports,
            observer=_RecordedObserver(ports.observer, seen),
            memory=_RecordedMemory(ports.memory, seen),
            actuator=_RecordedActuator(ports.actuator, seen),
        )

    def __call__(self, report: PassReport) -> None:
        """Write the line of a pass that has just ended."""
        try:
            fresh = self._file.begin()
            before = None if fresh else self._saved
            lines = encode(line_of(report, self._seen, before))
            self._file.append(encode(self._settings) + lines if before is None else lines)
        except (OSError, ValueError) as error:  # msgspec's own errors are ValueErrors
            self._saved = None
            self._complain(str(error))
        else:
            self._failure = ""
            if self._seen.loaded is not None and self._seen.snapshot is not None:
                self._saved = self._seen.saved or self._seen.loaded

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _complain(self, failure: str) -> None:
        if failure != self._failure:
            self._failure = failure
            self._log.warning("decision not recorded", file=str(self._file.path), reason=failure)


@dataclass(slots=True)
class _Seen:
    """What passed between one pass and its ports."""

    loaded: MemoryState | None = None
    snapshot: ClusterSnapshot | None = None
    saved: MemoryState | None = None
    answers: list[Answer] = field(default_factory=list)

    def begin(self, loaded: MemoryState) -> None:
        """A pass begins by loading its memory."""
        self.loaded, self.snapshot, self.saved, self.answers = loaded, None, None, []


class _RecordedObserver:
    """Shape: `ports.Observer`."""

    def __init__(self, observer: Observer, seen: _Seen) -> None:
        self._observer = observer
        self._seen = seen

    def observe(self) -> Observation:
        """As the observer says; the snapshot is kept for the line."""
        observation = self._observer.observe()
        self._seen.snapshot = observation.snapshot
        return observation


class _RecordedMemory:
    """Shape: `ports.Memory`."""

    def __init__(self, memory: Memory, seen: _Seen) -> None:
        self._memory = memory
        self._seen = seen

    def load(self) -> MemoryState:
        """What a pass begins with."""
        loaded = self._memory.load()
        self._seen.begin(loaded)
        return loaded

    def save(self, state: MemoryState) -> None:
        """What it leaves to the next one."""
        self._memory.save(state)
        self._seen.saved = state


class _RecordedActuator:
    """Shape: `ports.Actuator`."""

    def __init__(self, actuator: Actuator, seen: _Seen) -> None:
        self._actuator = actuator
        self._seen = seen

    def carry_out(self, decision: Decision) -> Outcome[Decision]:
        """Carry it out, and keep the answer."""
        action, uid, note = ANSWERS[type(decision)], decision.job_uid, self._seen.answers.append
        try:
            outcome = self._actuator.carry_out(decision)
        except ActuationError as error:
            note(Answer(action, uid, "failed", str(error), raised=True))
            raise
        note(Answer(action, uid, outcome.result, outcome.detail, outcome.maybe_begun, outcome.begun_at_seconds))
        return outcome

    def restore(self, job_uid: str, original: CpuAllocation, memory: MemoryAllocation | None = None) -> Restored:
        """Between passes; it is no decision of one."""
        return self._actuator.restore(job_uid, original, memory)


def line_of(report: PassReport, seen: _Seen, before: MemoryState | None) -> Pass:
    """The line of a pass; `before`: what the reader of the line has, None for nothing."""
    inputs = None
    if seen.loaded is not None and seen.snapshot is not None:
        snapshot, not_finite = without_nan(seen.snapshot)
        inputs = Inputs(snapshot, change_of(before, seen.loaded), not_finite)
    return Pass(report.taken_at_seconds, report.policy, report.held, inputs, tuple(seen.answers), result_of(report))


def result_of(report: PassReport) -> Result:
    """All that a pass decided, in a form in which two passes can be compared."""
    if report.decisions is None:
        return Result()
    return Result(
        tuple(_decided(report)),
        dict(report.decisions.reasons),
        report.requeue_at_seconds,
        digest(report.decisions.memory),
    )


def _decided(report: PassReport) -> Iterator[Decided]:
    for outcome in report.results.outcomes:
        yield _one(report, outcome.decision, result=outcome.result, detail=outcome.detail)
    for each in report.results.withheld:
        yield _one(report, each.decision, guard=each.guard, withheld=each.reason)


def _one(report: PassReport, decision: Decision, **became: str) -> Decided:
    before, after = _amounts(decision)
    uid = decision.job_uid
    name = report.by_job[uid].name
    return Decided(ACTIONS[type(decision)], uid, name, decision.node, decision.reason, before, after, **became)


def _amounts(decision: Decision) -> tuple[int | None, int | None]:
    match decision:
        case Resize():
            return decision.from_millicores, decision.to_millicores
        case ResizeMemory():
            return decision.from_bytes, decision.to_bytes
        case _:
            return None, None
