"""Runs the passes of a record again: the recorded inputs through the same `reconcile`, with the recorded answers.

Each pass must give the recorded result, bit for bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from slopewise.config.pass_settings import pass_settings, policy_of
from slopewise.config.training_policy import TrainingPolicy
from slopewise.config.validation import validate
from slopewise.decision_record.lines import Answer, Decided, Pass, Result, Settings, changed
from slopewise.decision_record.reader import RecordedPass, snapshot_of
from slopewise.decision_record.recorder import ANSWERS, result_of
from slopewise.errors import ActuationError
from slopewise.feedback.pass_settings import PassSettings
from slopewise.memory_in_process import DictionaryMemory
from slopewise.model import (
    Bounds,
    ClusterSnapshot,
    CpuAllocation,
    Decision,
    MemoryAllocation,
    MemoryState,
    Observation,
    Outcome,
    PassReport,
    Restored,
)
from slopewise.policies import PolicyProtocol
from slopewise.ports import Ports
from slopewise.reconcile import reconcile

NOT_CARRIED_OUT = "replayed: nothing was carried out"


@dataclass(frozen=True, slots=True)
class ReplayedPass:
    """One pass of the record, and what it gave this time."""

    where: str
    recorded: Pass
    snapshot: ClusterSnapshot
    report: PassReport
    result: Result
    document: TrainingPolicy
    """What it ran with."""
    bounds: Bounds
    guarded: MemoryState | None
    """The memory that its guards saw, with the originals of what was to be changed; None: it was held."""

    @property
    def differences(self) -> list[str]:
        """What is not as recorded, one sentence each; empty: bit for bit the same."""
        return [*_differences(self.recorded.result, self.result)]


def replay(passes: Iterable[RecordedPass]) -> Iterator[ReplayedPass]:
    """Every pass that observed, run again; UsageError for invalid settings."""
    settings: Settings | None = None
    decider: _Decider | None = None
    memory: MemoryState | None = None
    """What the pass before saved when it was recorded, which the next one's differences are to."""
    for each in passes:
        if each.settings is not settings or decider is None:
            settings = each.settings
            decider = _Decider.of(settings, each.where)
        inputs = each.recorded.inputs
        if inputs is None:
            continue
        loaded = changed(memory, inputs.memory)
        snapshot = snapshot_of(each.recorded)
        report, given = decider.decide(snapshot, loaded, each.recorded.answers)
        memory = loaded if given.saved is None else given.saved
        yield ReplayedPass(
            each.where, each.recorded, snapshot, report, result_of(report),
            decider.document, decider.settings.bounds, given.first_saved,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Decider:
    """Runs passes with one document's settings."""

    document: TrainingPolicy
    policy: PolicyProtocol
    settings: PassSettings

    @classmethod
    def of(cls, settings: Settings, where: str) -> _Decider:
        """From the document in the record."""
        document = validate(TrainingPolicy, settings.document, where=f"{where}: its settings")
        recorded = replace(pass_settings(document), first_changes_a_pass=settings.first_changes_a_pass)
        return cls(document, policy_of(document), recorded)

    def decide(
        self, snapshot: ClusterSnapshot, loaded: MemoryState, answers: tuple[Answer, ...]
    ) -> tuple[PassReport, _GivenMemory]:
        """The report of a pass, and the memory with what it saved."""
        memory, given = _GivenMemory(loaded), Given(snapshot, answers)
        return reconcile(Ports(given, given, memory, given), self.policy, self.settings), memory


class _GivenMemory(DictionaryMemory):
    """The recorded memory, and what was saved last."""

    def __init__(self, loaded: MemoryState) -> None:
        super().__init__()
        super().save(loaded)
        self.first_saved: MemoryState | None = None
        """Before anything was carried out."""
        self.saved: MemoryState | None = None

    def save(self, state: MemoryState) -> None:
        """Keep what the pass leaves."""
        super().save(state)
        self.first_saved = self.first_saved or state
        self.saved = state


class Given:
    """Observer, clock and actuator as recorded; a decision that was not carried out then is deferred."""

    def __init__(self, snapshot: ClusterSnapshot, answers: tuple[Answer, ...]) -> None:
        self._snapshot = snapshot
        self._answers: dict[tuple[str, str], deque[Answer]] = {}
        for answer in answers:
            self._answers.setdefault((answer.action, answer.job), deque()).append(answer)

    def observe(self) -> Observation:
        """The recorded snapshot."""
        return Observation(self._snapshot)

    def now(self) -> float:
        """The time of the snapshot."""
        return self._snapshot.taken_at_seconds

    def monotonic(self) -> float:
        """Stands still: how long a pass takes is no decision."""
        return self._snapshot.taken_at_seconds

    def carry_out(self, decision: Decision) -> Outcome[Decision]:
        """As then."""
        recorded = self._answers.get((ANSWERS[type(decision)], decision.job_uid))
        if not recorded:
            return Outcome(decision, "deferred", NOT_CARRIED_OUT)
        answer = recorded.popleft()
        if answer.raised:
            raise ActuationError(answer.detail)
        return Outcome(decision, answer.result, answer.detail, answer.maybe_begun, answer.begun_at_seconds)

    def restore(self, job_uid: str, original: CpuAllocation, memory: MemoryAllocation | None = None) -> Restored:
        """No pass restores."""
        return Restored("deferred", NOT_CARRIED_OUT)


def _differences(recorded: Result, now: Result) -> Iterator[str]:
    if recorded.decided != now.decided:
        then, again = set(recorded.decided), set(now.decided)
        yield from (f"no longer decided: {sentence(each)}" for each in recorded.decided if each not in again)
        yield from (f"decided now: {sentence(each)}" for each in now.decided if each not in then)
        if then == again:
            yield "the same decisions in another order"
    if recorded.reasons != now.reasons:
        changed_reasons = {**recorded.reasons, **now.reasons}
        for uid in changed_reasons:
            then_reason, now_reason = recorded.reasons.get(uid), now.reasons.get(uid)
            if then_reason != now_reason:
                yield f"the reason of {uid}: {then_reason!r} then, {now_reason!r} now"
    if recorded.requeue_at_seconds != now.requeue_at_seconds:
        yield f"the next pass at {recorded.requeue_at_seconds} then, at {now.requeue_at_seconds} now"
    if recorded.memory != now.memory:
        yield "the memory that it leaves to the next pass"


def sentence(decided: Decided) -> str:
    """One decision with what became of it, for a table or a log."""
    amounts = "" if decided.after is None else f" {decided.before} to {decided.after}"
    became = f"withheld by {decided.guard}: {decided.withheld}" if decided.guard else f"{decided.result}"
    details = decided.detail or decided.reason
    return f"{decided.action} {decided.name}{amounts}: {became} ({details})"
