"""The record of one job of a local run, from its planned arrival to its end.

`supervisor.py` updates the records; passes, the live table and the result read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from slopewise.adapters.local.attached import NO_METRICS, AttachedProcess
from slopewise.adapters.local.cleanup import EndedJob
from slopewise.adapters.local.launcher import ManagedProcess
from slopewise.adapters.local.limiters.base import UNLIMITED
from slopewise.adapters.local.move import RESTART_SECONDS, RESUME_SECONDS, Ending, LocalMove, MoveMade
from slopewise.config.jobs_file import JobSpec
from slopewise.model import Arrival, Job, JobState, MissingEvaluation, Movability

SHOWN_SECONDS = 90.0
"""How long a job that ended during a move stays in observations: `feedback/move_tracking.py` waits 60 s for a
restart before it ends the move, and other moves wait for that."""

STOPPED_AT_TARGET = "stopped at target"
"""State of a job that has reached its target and was stopped, as its owner asked (`atTarget: stop`)."""

SUCCEEDED = frozenset({"finished", STOPPED_AT_TARGET})

ENDED_STATES = SUCCEEDED | {"failed", "cancelled", "ended", "stopped"}

CUT_OFF = "was cut off when the machine was restarted"
"""Last output of a job that ran then."""

NO_PORT = 0
"""Of a job that serves no metrics."""

CANCELLED = "cancelled"
"""State of a job that its owner has ended, or has taken out of the queue."""


@dataclass(slots=True)
class JobRecord:
    """One job of the run. Times are Unix seconds; None: not reached yet."""

    spec: JobSpec
    port: int
    process: ManagedProcess | None = None
    arrived_at_seconds: float | None = None
    """Its arrival; on several nodes it starts a moment later."""
    node: str = ""
    """The node where it runs or is about to start; empty until that is known."""
    started_at_seconds: float | None = None
    """The start of its present process; a moved job had earlier ones."""
    noticed_end_seconds: float | None = None
    """When its end was observed or caused; the job counts as ended once it is collected."""
    finished_at_seconds: float | None = None
    exit_status: int | None = None
    cpu_seconds: float | None = None
    """Of all its processes, once it has ended."""
    last_output_lines: str = ""
    """The end of its log, when it failed."""
    move: LocalMove | None = None
    """The move that is under way."""
    moves: list[MoveMade] = field(default_factory=list)
    starts_left: int = 0
    """How many more starts it has if resuming fails."""
    earlier_cpu_seconds: float = 0.0
    """Of the processes before the one that runs now."""
    blocked_reason: str | None = None
    """Why it is not moved again."""
    ended_by_move: str = ""
    """A message without its name, if its last move ended the job."""
    ended_before_move: bool = False
    """The job had ended by itself before its move could begin."""
    stopping: Ending | None = None
    """It is being stopped at its target."""
    stopped_at_target: str = ""
    """Why it was stopped at its target, which is a success whatever its exit status; empty: it was not. `CANCELLED`:
    its owner ended it."""
    status_unknown: bool = False
    """It was taken over from a killed controller, or attached, so its exit status is unknown."""
    ended_unseen: bool = False
    """It had ended before it could be taken over."""

    @property
    def state(self) -> str:
        """waiting, running, moving, stopping; finished, stopped at target, cancelled, failed, ended (unknown how)."""
        if self.finished_at_seconds is not None:
            if self.stopped_at_target == CANCELLED:
                return CANCELLED
            if self.stopped_at_target:
                return STOPPED_AT_TARGET
            if self.status_unknown:
                return "ended"
            return "finished" if self.exit_status == 0 else "failed"
        if self.move is not None:
            return "moving"
        if self.stopping is not None:
            return "stopping"
        return "waiting" if self.started_at_seconds is None else "running"

    @property
    def is_attached(self) -> bool:
        """True for a process that others have started (`attached.py`)."""
        return isinstance(self.process, AttachedProcess)

    @property
    def bound_for(self) -> str:
        """The node on which it counts: its present one, or the target of its move."""
        return self.node if self.move is None else self.move.node

    @property
    def waits_for_node(self) -> bool:
        """True when it has arrived and has no node yet."""
        return self.arrived_at_seconds is not None and not self.node and self.finished_at_seconds is None

    def not_moved_reason(self) -> str | None:
        """Why its running process cannot be moved; None: it can."""
        if not self.spec.migratable:
            return "it has no `migratable: true`, which says that it saves on SIGTERM and resumes"
        return self.blocked_reason

    def is_resuming(self, now_seconds: float) -> bool:
        """True for `RESUME_SECONDS` after the restart of a move, during which a failure counts as failing to resume."""
        if self.started_at_seconds is None or not self.moves:
            return False
        return now_seconds - self.started_at_seconds < RESUME_SECONDS

    def begin_process(self, process: ManagedProcess, at_seconds: float) -> None:
        """Record the start of a process, the first one or a restart."""
        self.process, self.started_at_seconds = process, at_seconds
        if self.move is not None:
            ended_at = at_seconds if self.move.ended_at_seconds is None else self.move.ended_at_seconds
            self.moves.append(MoveMade(self.move.from_node, self.node, self.move.since_seconds, ended_at, at_seconds))
            self.move = None

    def end_earlier(self, ended: EndedJob | None, now_seconds: float) -> None:
        """Record an end that an earlier controller has seen; None: none has."""
        self.exit_status = None if ended is None else ended.status
        self.stopped_at_target = "" if ended is None else ended.stopped_at_target
        self.cpu_seconds = None if ended is None else ended.cpu_seconds
        self.status_unknown = self.exit_status is None
        self.ended_unseen = ended is None
        self.noticed_end_seconds = self.finished_at_seconds = now_seconds if ended is None else ended.at_seconds

    def cancel(self, now_seconds: float) -> None:
        """Have it save and end, or take it out where it waits. None that has failed is started again."""
        if self.started_at_seconds is None:
            self.stopped_at_target = CANCELLED
            self.noticed_end_seconds = self.finished_at_seconds = now_seconds
        elif self.noticed_end_seconds is None and self.stopping is None:
            self.stopping = Ending(now_seconds, CANCELLED)
        elif self.noticed_end_seconds is not None and self.process is not None and self.process.poll() != 0:
            self.stopped_at_target = self.stopped_at_target or CANCELLED

    def running(self, namespace: str, grace_seconds: float) -> Job | None:
        """The job for the observer; None while it waits, moves or is being stopped, and after its end."""
        if self.noticed_end_seconds is not None or self.move is not None or self.stopping is not None:
            return None
        return self._as_job(namespace, grace_seconds, JobState.STARTING)

    def just_ended(self, namespace: str, grace_seconds: float, now_seconds: float) -> Job | None:
        """The same for `SHOWN_SECONDS` after a job ended during its move or just before it.

        Passes wait for such a job.
        """
        if not (self.ended_by_move or self.ended_before_move):
            return None
        if self.noticed_end_seconds is None or self.finished_at_seconds is None:
            return None
        if now_seconds - self.noticed_end_seconds > SHOWN_SECONDS:
            return None
        state = JobState.FINISHED if self.exit_status == 0 else JobState.FAILED
        return self._as_job(namespace, grace_seconds, state)

    def _as_job(self, namespace: str, grace_seconds: float, state: JobState) -> Job | None:
        """Without what is measured in each pass."""
        if self.arrived_at_seconds is None or self.started_at_seconds is None:
            return None
        spec, blocked_reason = self.spec, self.not_moved_reason()
        return Job(
            spec.name,
            spec.name,
            namespace,
            self.node,
            state,
            self.started_at_seconds,
            UNLIMITED,
            steps_planned=spec.planned_steps,
            useful_parallelism_cores=_useful_cores(spec),
            objectives=spec.objectives_at(self.arrived_at_seconds),
            migratable=spec.migratable,
            movability=Movability(
                None if blocked_reason else "restart",
                blocked_reason,
                grace_seconds=grace_seconds,
                restart_seconds=RESTART_SECONDS,
                members=(spec.name,),
            ),
            workload_class=spec.workload_class,
            missing_evaluation=MissingEvaluation("NoTarget", NO_METRICS) if self.port == NO_PORT else None,
        )

    def waiting(self, namespace: str) -> Arrival | None:
        """The job as an arrival to place; None before it arrives and once it has a node."""
        if self.arrived_at_seconds is None or not self.waits_for_node:
            return None
        return Arrival(
            self.spec.name,
            self.spec.name,
            namespace,
            self.arrived_at_seconds,
            useful_parallelism_cores=_useful_cores(self.spec),
            objectives=self.spec.objectives_at(self.arrived_at_seconds),
        )


def _useful_cores(spec: JobSpec) -> float | None:
    millicores = spec.max_useful_cpu_millicores
    return None if millicores is None else millicores / 1000
