"""A policy for tests: every job is to go to one node, or with no node named to another one at every look.

It asks for what a test wants to see carried out, or refused, and needs no growth for it. What a move gains is not what
such a test is about: the moves say that they relieve the node's memory, which sets that comparison aside.
"""

from __future__ import annotations

from slopewise.model import ClusterSnapshot, Decisions, Job, JobState, MemoryState, Migrate, Move, Place
from slopewise.policies import PolicyParameters, Setting, parameter

_SOURCE = "tests"


class Parameters(PolicyParameters):
    """Where running jobs and arriving ones are to go."""

    to: str = parameter("", unit="name of a node", source=_SOURCE, description="empty: away from where they are")
    place: str = parameter("", unit="name of a node", source=_SOURCE, description="of arriving jobs; empty: nowhere")


class Policy:
    """Wishes the same at every look, whatever became of the wish before."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._wish = parameters

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """One migration of each training job that is not where it is to be, one place for each arrival."""
        places: list[Move] = [Place(each.uid, self._wish.place, "as set by the test") for each in snapshot.waiting]
        migrations = [
            Migrate(job.uid, job.node, target, "as set by the test", relieves="memory")
            for job in snapshot.jobs
            if job.state is JobState.TRAINING
            if (target := self._target(job, snapshot)) not in ("", job.node)
        ]
        reasons = {job.uid: "as set by the test" for job in snapshot.jobs if not job.state.ended}
        return Decisions("shift", (), reasons, memory, (*(places if self._wish.place else ()), *migrations))

    def _target(self, job: Job, snapshot: ClusterSnapshot) -> str:
        others = sorted(node.name for node in snapshot.nodes if node.name != job.node)
        return self._wish.to or (others[0] if others else "")
