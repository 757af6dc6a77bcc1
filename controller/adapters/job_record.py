"""What is known of one job of a run on this machine, from its planned arrival to its end.

Before it: a `JobSpec`. `supervisor.py` keeps the records up to date; the pass, the live table and the result read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from controller.adapters.local import LocalJob
from controller.adapters.local_moves import RESTART_SECONDS, RESUME_SECONDS, LocalMove, MoveMade
from controller.adapters.processes import ManagedProcess
from controller.jobs import JobSpec
from controller.model import Arrival, JobState, Mobility

SHOWN_SECONDS = 90.0
"""How long a job that ended by a move is shown to passes: `move_review` waits for 60 s whether a failed one is started
again, and only then is the move over, so that others may begin."""


@dataclass(slots=True)
class JobRecord:
    """One job of the run. Times are Unix seconds; those that are None have not come yet."""

    spec: JobSpec
    port: int
    process: ManagedProcess | None = None
    arrived_at_seconds: float | None = None
    """When its time had come; on several nodes it starts a moment later."""
    node: str = ""
    """Where it runs, or is about to start; empty until that is known."""
    started_at_seconds: float | None = None
    """The process that runs now; a job that was moved has had others before."""
    noticed_end_seconds: float | None = None
    """When its end was noticed, or brought about; it counts as ended once it is collected."""
    finished_at_seconds: float | None = None
    exit_status: int | None = None
    cpu_seconds: float | None = None
    """Of all its processes, once it has ended."""
    last_words: str = ""
    """The end of its log, when it failed."""
    move: LocalMove | None = None
    """The move that is under way."""
    moves: list[MoveMade] = field(default_factory=list)
    starts_left: int = 0
    """How often it may still be started again should it fail at resuming."""
    earlier_cpu_seconds: float = 0.0
    """Of the processes before the one that runs now."""
    stays_because: str | None = None
    """Why it is not moved again."""
    ended_by_move: str = ""
    """What its last move did to it, when it ended of that: a sentence without its name."""
    ended_before_move: bool = False
    """It had ended by itself when it was to be told to, so a move that was decided on is over."""
    status_unknown: bool = False
    """It was taken over from a controller that was killed, so that nobody has learnt how it ended."""
    ended_unseen: bool = False
    """It had ended before it could be taken over."""

    @property
    def state(self) -> str:
        """waiting, running, moving, finished, failed, or ended (nobody knows how)."""
        if self.finished_at_seconds is not None:
            if self.status_unknown:
                return "ended"
            return "finished" if self.exit_status == 0 else "failed"
        if self.move is not None:
            return "moving"
        return "waiting" if self.started_at_seconds is None else "running"

    @property
    def bound_for(self) -> str:
        """The node that it counts on: where it is, or is going."""
        return self.node if self.move is None else self.move.node

    @property
    def waits_for_node(self) -> bool:
        """True when it has arrived and nobody has said where it is to start."""
        return self.arrived_at_seconds is not None and not self.node

    def why_not_moved(self) -> str | None:
        """Why a running process of it cannot be moved at all; None: it can."""
        if not self.spec.migratable:
            return "it does not say `migratable: true`: that it saves when it is told to end, and resumes"
        return self.stays_because

    def is_resuming(self, now_seconds: float) -> bool:
        """True for a while after it was started again because of a move: if it fails now, it has failed at that."""
        if self.started_at_seconds is None or not self.moves:
            return False
        return now_seconds - self.started_at_seconds < RESUME_SECONDS

    def begin_life(self, process: ManagedProcess, at_seconds: float) -> None:
        """Its process was started: for the first time, or again."""
        self.process, self.started_at_seconds = process, at_seconds
        if self.move is not None:
            ended_at = at_seconds if self.move.ended_at_seconds is None else self.move.ended_at_seconds
            self.moves.append(MoveMade(self.move.from_node, self.node, self.move.since_seconds, ended_at, at_seconds))
            self.move = None

    def running(self, namespace: str, grace_seconds: float) -> LocalJob | None:
        """The job as the observer takes it; None while it waits or is on its way, and once it has ended."""
        if self.noticed_end_seconds is not None or self.move is not None:
            return None
        return self._as_local(namespace, grace_seconds)

    def just_ended(self, namespace: str, grace_seconds: float, now_seconds: float) -> LocalJob | None:
        """The same, for a while, of a job that ended by a move or just before it: passes wait for it."""
        if not (self.ended_by_move or self.ended_before_move):
            return None
        if self.noticed_end_seconds is None or self.finished_at_seconds is None:
            return None
        if now_seconds - self.noticed_end_seconds > SHOWN_SECONDS:
            return None
        job = self._as_local(namespace, grace_seconds)
        return job and replace(job, ended=JobState.FINISHED if self.exit_status == 0 else JobState.FAILED)

    def _as_local(self, namespace: str, grace_seconds: float) -> LocalJob | None:
        if self.arrived_at_seconds is None or self.started_at_seconds is None:
            return None
        stays_because = self.why_not_moved()
        return LocalJob(
            self.spec.name,
            namespace,
            self.started_at_seconds,
            _useful_cores(self.spec),
            self.node,
            self.spec.promises_at(self.arrived_at_seconds),
            self.spec.migratable,
            Mobility(
                None if stays_because else "restart",
                stays_because,
                grace_seconds=grace_seconds,
                restart_seconds=RESTART_SECONDS,
                members=(self.spec.name,),
            ),
        )

    def waiting(self, namespace: str) -> Arrival | None:
        """The job as a policy may place it; None before it arrives and once it has a node."""
        if self.arrived_at_seconds is None or self.node:
            return None
        return Arrival(
            self.spec.name,
            self.spec.name,
            namespace,
            self.arrived_at_seconds,
            useful_parallelism_cores=_useful_cores(self.spec),
            promises=self.spec.promises_at(self.arrived_at_seconds),
        )


def _useful_cores(spec: JobSpec) -> float | None:
    millicores = spec.max_useful_cpu_millicores
    return None if millicores is None else millicores / 1000
