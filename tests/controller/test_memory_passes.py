"""Passes in a row over one job whose memory is changed: peaks, and nodes that refuse."""

from __future__ import annotations

from dataclasses import dataclass, field

from support.passes import pass_over
from support.worlds import START, FakeActuator, FakeMemory, a_job, a_node, a_snapshot

from slopewise.model import (
    Bounds,
    ClusterSnapshot,
    CpuAllocation,
    Decisions,
    JobMemory,
    MemoryAllocation,
    MemoryState,
    MemoryUse,
    PassReport,
    PendingResize,
    PolicyMemory,
    ResizeMemory,
    Usage,
)

MIB = 2**20
BOUNDS = Bounds("Auto", 1, 64_000, cooldown_seconds=600, max_step_ratio=1000, min_change_ratio=0.1, memory="Requests")
ORIGINAL = MemoryAllocation(512 * MIB, 1024 * MIB)


class Keeps:
    """A policy that leaves CPU alone."""

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        return Decisions("keeps", (), {job.uid: "because" for job in snapshot.jobs}, memory)


@dataclass
class Story:
    """A converged job of 100 MiB, and the memory that it has; a pass every 20 s."""

    has: MemoryAllocation = ORIGINAL
    at_seconds: float = START
    actuator: FakeActuator = field(default_factory=FakeActuator)
    memory: FakeMemory = field(init=False)

    def __post_init__(self) -> None:
        use = MemoryUse(START - 20.0, 100.0 * MIB, 100.0 * MIB, samples=10)
        self.memory = FakeMemory(MemoryState({"j": JobMemory(decided=PolicyMemory(job_class="CL"), memory_use=use)}))

    def a_pass(self, used_mib: float, *, pending: PendingResize | None = None) -> PassReport:
        """One that finds this working set; what it changes is in effect in the next one."""
        job = a_job("j", at=self.at_seconds).altered(
            usage=Usage(self.at_seconds, 0.0, used_mib * MIB),
            memory=self.has,
            memory_request_bytes=float(self.has.request_bytes or 0),
            pending=pending,
        )
        snapshot = a_snapshot([job], [a_node()], at=self.at_seconds)
        report = pass_over(snapshot, Keeps(), self.actuator, self.memory, BOUNDS)
        for outcome in report.results.of(ResizeMemory):
            self.has = self.has.altered(outcome.decision.bound, outcome.decision.to_bytes)
        self.at_seconds += 20.0
        return report

    @property
    def request_mib(self) -> float:
        """What it requests now."""
        return (self.has.request_bytes or 0) / MIB

    def changes_mib(self) -> list[tuple[str, float]]:
        """All that was written so far."""
        return [(each.bound, each.to_bytes / MIB) for each in self.actuator.sized]


def withheld(report: PassReport) -> list[str]:
    """The guards that withheld a change of memory."""
    return [each.guard for each in report.results.withheld_of(ResizeMemory)]


def test_a_peak_right_after_a_request_was_lowered_raises_it_within_one_pass_and_never_above_the_original() -> None:
    story = Story()
    story.a_pass(100)
    assert story.request_mib == 120
    story.a_pass(300)
    assert story.request_mib == 360, "20 s after the last change, of a cooldown of 600 s"
    story.a_pass(700)
    assert story.request_mib == 512, "its original, though it uses more"
    assert withheld(story.a_pass(100)) == []
    assert story.changes_mib() == [("request", 120), ("request", 360), ("request", 512)]


def test_what_a_static_memory_manager_refuses_is_taken_back_and_tried_again_after_a_minute() -> None:
    story = Story()
    story.a_pass(100)
    reason = "Resize is infeasible for Guaranteed Pods alongside Memory Manager static policy"
    refuses = PendingResize("infeasible", START, reason, CpuAllocation(None, 1000), actual_memory=ORIGINAL)
    back = story.a_pass(100, pending=refuses)
    assert [reason in each.decision.reason for each in back.results.of(ResizeMemory)] == [True]
    assert story.has == ORIGINAL
    assert [withheld(story.a_pass(100)) for _ in range(3)] == [
        ["memory_refused"],
        ["memory_refused"],
        ["memory_cooldown"],
    ]
