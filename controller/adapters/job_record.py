"""What is known of one job of a run on this machine, from its planned arrival to its end.

Before it: a `JobSpec`. `supervisor.py` keeps the records up to date; the pass, the live table and the result read them.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.adapters.local import LocalJob
from controller.adapters.processes import ManagedProcess
from controller.jobs import JobSpec
from controller.model import Arrival


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
    noticed_end_seconds: float | None = None
    """When its end was noticed, or brought about; it counts as ended once it is collected."""
    finished_at_seconds: float | None = None
    exit_status: int | None = None
    cpu_seconds: float | None = None
    last_words: str = ""
    """The end of its log, when it failed."""

    @property
    def state(self) -> str:
        """waiting, running, finished or failed."""
        if self.finished_at_seconds is not None:
            return "finished" if self.exit_status == 0 else "failed"
        return "waiting" if self.started_at_seconds is None else "running"

    @property
    def waits_for_node(self) -> bool:
        """True when it has arrived and nobody has said where it is to start."""
        return self.arrived_at_seconds is not None and not self.node

    def running(self, namespace: str) -> LocalJob | None:
        """The job as the observer takes it; None while it waits and once it has ended."""
        if self.arrived_at_seconds is None or self.started_at_seconds is None or self.noticed_end_seconds is not None:
            return None
        return LocalJob(
            self.spec.name,
            namespace,
            self.started_at_seconds,
            _useful_cores(self.spec),
            self.node,
            self.spec.promises_at(self.arrived_at_seconds),
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
