"""Records the passes of one policy: stands between a pass and its ports, and writes a line when the pass is reported.

A record never holds a pass: where the file cannot be written, that is logged once, and the next line that can be
written begins with all of the memory again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
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
from slopewise.ports import Ports

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
    """The record of one policy's passes: the ports of a pass, which notes what passes them, and a sink of reports."""

    def __init__(self, file: BoundedFile, document: dict[str, Any], first_changes_a_pass: int | None = None) -> None:
        """`document`: the policy with its interval, as JSON."""
        self._file = file
        self._settings = Settings(SCHEMA, slopewise.__version__, document, first_changes_a_pass)
        self._ports: Ports
        self._loaded: MemoryState | None = None
        self._snapshot: ClusterSnapshot | None = None
        self._left: MemoryState | None = None
        """What the pass has saved last."""
        self._answers: list[Answer] = []
        self._saved: MemoryState | None = None
        """What the reader of the file has after the last line."""
        self._failure = ""
        self._log = structlog.get_logger("slopewise")

    def ports(self, ports: Ports) -> Ports:
        """The same ports, whose answers are noted."""
        self._ports = ports
        return replace(ports, observer=self, memory=self, actuator=self)

    def follow(self, document: TrainingPolicy) -> None:
        """Another document, with its interval, holds from the next pass on; its line comes before it."""
        self._settings = msgspec.structs.replace(self._settings, document=as_json(document))
        self._saved = None

    def observe(self) -> Observation:
        """As the observer says; the snapshot is kept for the line."""
        observation = self._ports.observer.observe()
        self._snapshot = observation.snapshot
        return observation

    def load(self) -> MemoryState:
        """What a pass begins with."""
        loaded = self._ports.memory.load()
        self._loaded, self._snapshot, self._left, self._answers = loaded, None, None, []
        return loaded

    def save(self, state: MemoryState) -> None:
        """What it leaves to the next one."""
        self._ports.memory.save(state)
        self._left = state

    def carry_out(self, decision: Decision) -> Outcome[Decision]:
        """Carry it out, and keep the answer."""
        action, uid, note = ANSWERS[type(decision)], decision.job_uid, self._answers.append
        try:
            outcome = self._ports.actuator.carry_out(decision)
        except ActuationError as error:
            note(Answer(action, uid, "failed", str(error), raised=True))
            raise
        note(Answer(action, uid, outcome.result, outcome.detail, outcome.maybe_begun, outcome.begun_at_seconds))
        return outcome

    def restore(self, job_uid: str, original: CpuAllocation, memory: MemoryAllocation | None = None) -> Restored:
        """Between passes; it is no decision of one."""
        return self._ports.actuator.restore(job_uid, original, memory)

    def __call__(self, report: PassReport) -> None:
        """Write the line of a pass that has just ended."""
        try:
            fresh = self._file.begin()
            before = None if fresh else self._saved
            lines = encode(self._line_of(report, before))
            self._file.append(encode(self._settings) + lines if before is None else lines)
        except (OSError, ValueError) as error:  # msgspec's own errors are ValueErrors
            self._saved = None
            self._complain(str(error))
        else:
            self._failure = ""
            if self._loaded is not None and self._snapshot is not None:
                self._saved = self._left or self._loaded

    def _line_of(self, report: PassReport, before: MemoryState | None) -> Pass:
        """`before`: what the reader of the line has, None for nothing."""
        inputs = None
        if self._loaded is not None and self._snapshot is not None:
            snapshot, not_finite = without_nan(self._snapshot)
            inputs = Inputs(snapshot, change_of(before, self._loaded), not_finite)
        answers = tuple(self._answers)
        return Pass(report.taken_at_seconds, report.policy, report.held, inputs, answers, result_of(report))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _complain(self, failure: str) -> None:
        if failure != self._failure:
            self._failure = failure
            self._log.warning("decision not recorded", file=str(self._file.path), reason=failure)


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
