"""The lives of a job on this machine: each is one process of its command, on one node's cores and in one cgroup.

Before it: `supervisor.py`, which knows when a job is to start and looks after all of them ten times a second. After it:
`processes.py` and a limiter, which do it. Most jobs have one life. One that is moved saves, ends (`local_moves.py`) and
begins another, with the same port and without limits, as the first time. A life that fails within a minute of such a
beginning is begun once more where it is, and the job is not moved again: whoever cannot read a checkpoint now may in a
second, when a port or memory is free, and if not, will not on any node. One that ends with status 0 when it is told to
end has finished, as anywhere else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from controller.adapters.job_record import JobRecord
from controller.adapters.leftovers import StartedCommand
from controller.adapters.limiters.base import UNLIMITED, Limiter
from controller.adapters.limiters.process_group import ProcessMeter
from controller.adapters.local_moves import MOST_STARTS, LocalMove
from controller.adapters.nodes import LocalNode
from controller.adapters.processes import (
    AdoptedProcess,
    Command,
    Launcher,
    ManagedProcess,
    single_thread_environment,
    terminate_all,
)
from controller.errors import ActuationError, SlopewiseError
from controller.ports import Clock

_log = structlog.get_logger("slopewise")

LOOPBACK = "127.0.0.1"

LINGER_SECONDS = 3.0
"""How long a job's endpoint waits for the scrape after its end: three scrapes of one second."""

LINGER_SCRAPES = 1.5
"""The same of a Prometheus that scrapes less often, in scrapes: the next one comes within one."""

GRACE_SECONDS = 5.0
"""How long a built-in training may take to end after SIGTERM."""

USERS_GRACE_SECONDS = 30.0
"""The same for a user's command, which may want to write a checkpoint; what Kubernetes gives a pod."""

BUILT_IN_ENVIRONMENT = {**single_thread_environment(), "RANK": "0", "SLOPEWISE_EXPORTER_DISABLED": "0"}
"""Only for our own trainings, which are one thread each and report whatever our own surroundings say."""


@dataclass(frozen=True, slots=True)
class Lives:
    """Begins and ends them. `ours`: they are the built-in trainings, and end with a killed controller.

    `lock` guards what passes read of a record from their own thread.
    """

    launcher: Launcher
    limiter: Limiter
    folder: Path
    clock: Clock
    nodes: tuple[LocalNode, ...]
    ours: bool
    lock: threading.Lock
    linger_seconds: float = LINGER_SECONDS
    on_end: Callable[[JobRecord], None] = lambda _: None
    """Told of every job that has ended, once all is known of it."""

    @property
    def grace_seconds(self) -> float:
        """From being told to end to being killed."""
        return GRACE_SECONDS if self.ours else USERS_GRACE_SECONDS

    def check(self, record: JobRecord) -> None:
        """UsageError when its command cannot be started."""
        self.launcher.check(self._command(record))

    def begin(self, record: JobRecord) -> None:
        """Start a job on its node; one that cannot be started has failed, and the others go on."""
        name = record.spec.name
        try:
            process = self.launcher.start(
                self._command(record), partial(self._admit, record), partial(self.limiter.members, name)
            )
        except SlopewiseError as error:
            with self.lock:
                record.last_words = str(error)
                record.move = None
                if record.started_at_seconds is not None:  # only what is moved has had a life before
                    record.ended_by_move = "could not be started again after a move"
                record.noticed_end_seconds = record.finished_at_seconds = self.clock.now()
            _log.warning("job cannot be started", name=name, reason=record.last_words)
            return
        with self.lock:
            record.begin_life(process, self.clock.now())
        _log.info("job started", name=name, node=record.node)

    def take_over(self, record: JobRecord, process: AdoptedProcess) -> None:
        """Go on with a job that a controller which was killed had started; it has no limits, as if it were new."""
        name = record.spec.name
        pids = sorted({process.pid, *process.running_members({}), *process.members()})
        used = ProcessMeter().read(pids).cpu_seconds
        with self.lock:
            record.process = process
        try:
            self.limiter.admit(name, process.pid)
            self.limiter.include(name, pids)
        except ActuationError as error:  # it has ended just now, which the next look will see
            _log.warning("job cannot be limited", name=name, reason=str(error))
        counted = self.limiter.usage(name).cpu_seconds_total or 0.0
        record.earlier_cpu_seconds = max(0.0, used - counted)
        _log.info("job taken over", name=name)

    def move_on(self, record: JobRecord, move: LocalMove, process: ManagedProcess) -> bool:
        """Look after a move; True once the job is on its new node, or has ended."""
        name = record.spec.name
        if not move.is_told and process.has_ended():
            with self.lock:
                record.move = None
            self.end_or_resume(record, process)
            record.ended_before_move = record.noticed_end_seconds is not None
            return True
        if not move.is_told:
            with suppress(ActuationError):  # a squeezed job could not save in time
                self.limiter.restore(name, UNLIMITED)
        was_killed = move.was_killed
        has_left = move.has_left(process, self.grace_seconds, self.clock.now())
        if move.was_killed and not was_killed:
            _log.warning("job did not end when it was told to, and was killed", name=name, seconds=self.grace_seconds)
        if not has_left:
            return False
        if process.poll() == 0:
            _log.warning("job ended with status 0 instead of moving, and counts as finished", name=name)
            record.ended_by_move = "ended with status 0 when it was told to end for a move, and so counts as finished"
            self.end(record)
        else:
            record.starts_left = MOST_STARTS
            self._begin_another(record, process, move.node)
        return True

    def end_or_resume(self, record: JobRecord, process: ManagedProcess) -> None:
        """A process has ended by itself; one that failed at resuming after a move gets another chance."""
        status, words = process.poll(), process.tail(1)
        if status == 0 or not record.is_resuming(self.clock.now()):
            self.end(record)
            return
        if not record.starts_left:
            record.ended_by_move = f"failed with status {status} each time that it was resumed after a move"
            self.end(record)
            return
        _log.warning("job failed when it was resumed, and is started again", name=record.spec.name, last_words=words)
        record.stays_because = f"it failed with status {status} when it was resumed after its last move"
        self._begin_another(record, process, record.node)

    def end(self, record: JobRecord) -> None:
        """A job ended by itself: note it, end what it left in its cgroup, and let go of it."""
        self._let_go(record)
        self._collect(record)

    def end_all(self, records: list[JobRecord]) -> None:
        """End these, which run, within one grace."""
        for record in records:
            self._let_go(record)
        terminate_all([record.process for record in records if record.process], self.grace_seconds)
        for record in records:
            self._collect(record)

    def _begin_another(self, record: JobRecord, process: ManagedProcess, node: str) -> None:
        """Start the same command once more, in place of a process that has ended."""
        name = record.spec.name
        with suppress(ActuationError):
            record.earlier_cpu_seconds += self.limiter.usage(name).cpu_seconds_total or 0.0
        process.terminate(self.grace_seconds)
        self.limiter.release(name)
        record.starts_left -= 1
        with self.lock:
            record.process, record.node = None, node
        self.begin(record)

    def _let_go(self, record: JobRecord) -> None:
        """Note a job's end and what it used, and give it its CPU back: a squeezed job could not end politely."""
        name = record.spec.name
        with self.lock:
            record.move = None
            record.noticed_end_seconds = self.clock.now()
        with suppress(ActuationError):
            used = self.limiter.usage(name).cpu_seconds_total
            record.cpu_seconds = None if used is None else record.earlier_cpu_seconds + used
            self.limiter.restore(name, UNLIMITED)

    def _collect(self, record: JobRecord) -> None:
        """End whatever is left of a job, learn its exit status, and remove its cgroup."""
        if record.process is not None:
            record.status_unknown = not record.process.status_is_known
            record.exit_status = record.process.terminate(self.grace_seconds)
            if record.exit_status != 0:
                record.last_words = record.process.tail(5)
        self.limiter.release(record.spec.name)
        record.finished_at_seconds = record.noticed_end_seconds
        self.on_end(record)
        _log.info("job ended", name=record.spec.name, status=record.exit_status, last_words=record.last_words)

    def _admit(self, record: JobRecord, pid: int) -> None:
        """Behind its gate: put it on its node's cores, where there are several nodes, and into the limiter's care."""
        if len(self.nodes) > 1:
            next(node for node in self.nodes if node.name == record.node).hold(pid)
        self.limiter.admit(record.spec.name, pid)

    def _command(self, record: JobRecord) -> Command:
        name = record.spec.name
        return Command(
            name,
            record.spec.command,
            self.folder / f"{name}.log",
            environment={
                **(self._built_in_environment(record) if self.ours else {}),
                "SLOPEWISE_EXPORTER_LINGER_SECONDS": str(self.linger_seconds),
                **record.spec.environment,
                "SLOPEWISE_EXPORTER_PORT": str(record.port),
                "SLOPEWISE_EXPORTER_ADDRESS": LOOPBACK,
            },
            working_directory=record.spec.working_directory,
            ours=self.ours,
            remembered=None if self.ours else self._remembered(record),
        )

    def _remembered(self, record: JobRecord) -> StartedCommand:
        now = self.clock.now()
        return StartedCommand(
            arguments=tuple(record.spec.command),
            working_directory=record.spec.working_directory,
            log_path=(self.folder / f"{record.spec.name}.log").absolute(),
            port=record.port,
            arrived_at_seconds=now if record.arrived_at_seconds is None else record.arrived_at_seconds,
            started_at_seconds=now,
        )

    def _built_in_environment(self, record: JobRecord) -> dict[str, str]:
        """Checkpoints only where there is somewhere to go: at its end a job saves once more, which takes its time."""
        moves = record.spec.migratable and len(self.nodes) > 1
        folder = str(self.folder / "checkpoints" / record.spec.name) if moves else ""
        return {**BUILT_IN_ENVIRONMENT, "SLOPEWISE_CHECKPOINT_FOLDER": folder}
