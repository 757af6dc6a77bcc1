"""The reporter of one policy over a real (small) API server: passes that a test makes up, their events and statuses."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

from support.api_server import ApiServer
from support.growths import GROWTHS, Pods, Replica
from support.worlds import START, a_snapshot, known

from slopewise.adapters.kube.events import Event, EventRecorder
from slopewise.adapters.kube.reporting.pass_reporter import StatusReporter
from slopewise.adapters.kube.state.job_memory import KubeMemory
from slopewise.adapters.kube.state.training_policies import PolicyDocument, parse_policy, policy_path
from slopewise.config.training_policy import ResourceSettings, TrainingPolicySpec
from slopewise.model import (
    Absence,
    Decision,
    Decisions,
    Job,
    JobMemory,
    MemoryState,
    MoveEvent,
    MoveUnderWay,
    Outcome,
    PassReport,
    Results,
    Withheld,
)


@dataclass
class FakeEventRecorder:
    """Keeps the events instead of sending them."""

    events: list[Event] = field(default_factory=list)

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: str) -> list[tuple[str, str]]:
        """Reasons and notes of the events about objects of this kind, the oldest first."""
        return [(event.reason, event.note) for event in self.events if event.about.kind == kind]


def as_recorder(fake: FakeEventRecorder) -> EventRecorder:
    """The same shape, for the type checker."""
    return cast("EventRecorder", fake)


class ReportedPasses:
    """The policy `training` over some workloads; `a_pass` makes up one of its passes and reports it."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.pods = Pods()
        self.replica = Replica(server.client(), self.pods)
        self.memory: KubeMemory = self.replica.memory()
        self.recorder = FakeEventRecorder()
        record = parse_policy(server.put(policy_path(), {"metadata": {"name": "training"}, "spec": {}}))
        self.document = PolicyDocument(record)
        self.reporter = StatusReporter(
            "training",
            TrainingPolicySpec(mode="Auto", resources=ResourceSettings(control="limits")),
            self.replica.job_growths,
            self.pods,
            as_recorder(self.recorder),
            document=self.document,
            policy_uid=record.uid,
            clock=lambda: START,
        )

    def a_pass(
        self,
        *jobs: Job,
        at: float = START,
        memory: dict[str, JobMemory] | None = None,
        moving: tuple[MoveUnderWay, ...] = (),
        absent: tuple[Absence, ...] = (),
        outcomes: tuple[Outcome[Decision], ...] = (),
        withheld: tuple[Withheld[Decision], ...] = (),
        events: tuple[MoveEvent, ...] = (),
        **more: Any,
    ) -> None:
        """Report a pass over these jobs, of class NL where `memory` says nothing; `more` of its `PassReport`."""
        state = MemoryState({job.uid: known(job_class="NL") for job in jobs} | (memory or {}))
        self.memory.load()
        self.memory.save(state)
        snapshot = replace(a_snapshot(jobs, at=at), moving=moving, absent=absent)
        decisions = Decisions("flowcon", (), {}, state)
        results = Results(outcomes, withheld, events)
        report = PassReport(at, "flowcon", {}, at + 60, snapshot=snapshot, decisions=decisions, results=results, **more)
        self.reporter(report)

    def status(self, name: str) -> Any:
        """The status of a workload's JobGrowth, once everything that waits is written."""
        self.replica.writer.write()
        return self.server.get(f"{GROWTHS}/{name}")["status"]

    def history(self, name: str) -> list[tuple[str, str, str]]:
        """Actions, changes and results of a workload's history, the oldest first."""
        return [(each["action"], each["change"], each["result"]) for each in self.status(name).get("history", ())]
