"""Starts, restarts and ends the processes of a job on this machine.

They run one at a time, on one node's cores, in one cgroup. Most jobs have one process. The process of a moved job saves
and ends (`move.py`); the next one has the same port and no limits. If the next one fails within a minute, it is started
once more on the same node, where a port or memory may be free a second later, and the job is not moved again. A process
that ends with status 0 on the SIGTERM of a move has finished.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog

from slopewise.adapters.local.attached import AttachedProcess
from slopewise.adapters.local.cleanup import StartedCommand
from slopewise.adapters.local.job_record import CANCELLED, NO_PORT, JobRecord
from slopewise.adapters.local.launcher import (
    AdoptedProcess,
    Command,
    Launcher,
    ManagedProcess,
    single_thread_environment,
    terminate_all,
)
from slopewise.adapters.local.limiters.base import UNLIMITED
from slopewise.adapters.local.limiters.choose import Limiter
from slopewise.adapters.local.limiters.identity import ProcessIdentity
from slopewise.adapters.local.limiters.process_group import ProcessMeter
from slopewise.adapters.local.move import MAX_STARTS, Ending, LocalMove
from slopewise.adapters.local.nodes import LocalNode
from slopewise.config.jobs_file import JobSpec
from slopewise.errors import ActuationError, SlopewiseError
from slopewise.ports import Clock
from slopewise_exporter.threads.at_start import VARIABLE, waiting

_log = structlog.get_logger("slopewise")

LOOPBACK = "127.0.0.1"

PORTS = range(20_000, 32_000)
"""Below Linux's ephemeral range (32768 and up), so that no outgoing connection takes one in between."""

LINGER_SECONDS = 3.0
"""How long a job's endpoint waits for the scrape after its end: three scrapes of one second."""

LINGER_SCRAPES = 1.5
"""The same of a Prometheus that scrapes less often, in scrapes: the next one comes within one."""

GRACE_SECONDS = 5.0
"""How long a built-in training may take to end after SIGTERM."""

USERS_GRACE_SECONDS = 30.0
"""The same for a user's command, which may want to write a checkpoint; what Kubernetes gives a pod."""

KILL_SECONDS = 5.0
"""How long what a job has left behind may outlive SIGKILL, in a read of a network disk or as another user."""

LAST_LOSSES = ".end"
"""Of the file beside a job's log that gets its last losses: a scrape may miss them."""

_REPORTING = {"RANK": "0", "SLOPEWISE_EXPORTER_DISABLED": "0"}

BUILT_IN_ENVIRONMENT = {**single_thread_environment(), **_REPORTING}
"""The environment of the built-in trainings, which have one thread each and always report."""

_RUN = (sys.executable, "-I", "-m", "slopewise_exporter", "run")
"""Isolated: PYTHONPATH and PYTHONHOME are those of the job's own Python."""


@dataclass(slots=True)
class JobProcesses:
    """Starts and ends the processes. `ours`: they are the built-in trainings, and end with a killed controller."""

    launcher: Launcher
    limiter: Limiter
    folder: Path
    clock: Clock
    nodes: Sequence[LocalNode]
    ours: bool
    linger_seconds: float = LINGER_SECONDS
    on_end: Callable[[JobRecord], None] = lambda _: None
    """Called with the record of every job that has ended, once its exit status and CPU time are recorded."""
    lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    """Guards what passes read of a record from their own thread."""

    @property
    def grace_seconds(self) -> float:
        """Seconds between SIGTERM and SIGKILL."""
        return GRACE_SECONDS if self.ours else USERS_GRACE_SECONDS

    def check(self, record: JobRecord) -> None:
        """UsageError when its command cannot be started."""
        self.launcher.check(self._command(record))

    def begin(self, record: JobRecord) -> None:
        """Start a job on its node; one that cannot be started has failed, and the others go on."""
        name = record.spec.name

        def admit(pid: int) -> None:
            """Pin the gated process to its node's cores, where there are several nodes, and admit it."""
            if len(self.nodes) > 1:
                next(node for node in self.nodes if node.name == record.node).hold(pid)
            self.limiter.admit(name, pid)

        try:
            (command := self._command(record)).log_path.with_suffix(LAST_LOSSES).unlink(missing_ok=True)
            process = self.launcher.start(command, admit, partial(self.limiter.members, name))
        except (SlopewiseError, OSError, ValueError) as error:  # too long, a zero byte, a closed folder, no memory
            with self.lock:
                record.last_output_lines = str(error)
                record.move = None
                if record.started_at_seconds is not None:  # only a moved job has had a process before
                    record.ended_by_move = "could not be started again after a move"
                record.noticed_end_seconds = record.finished_at_seconds = self.clock.now()
            _log.warning("job cannot be started", name=name, reason=record.last_output_lines)
            return
        with self.lock:
            record.begin_process(process, self.clock.now())
        _log.info("job started", name=name, node=record.node)

    def take_over(self, record: JobRecord, process: AdoptedProcess) -> None:
        """Take over a job that a killed controller had started; it has no limits, like a new job."""
        name = record.spec.name
        pids = sorted({process.pid, *process.running_members({}), *process.members()})
        used = ProcessMeter().read(pids).cpu_seconds
        with self.lock:
            record.process = process
        try:
            self.limiter.admit(name, process.pid)
            self.limiter.include(name, pids)
        except ActuationError as error:  # it has just ended, which the next poll detects
            _log.warning("job cannot be limited", name=name, reason=str(error))
        counted = self.limiter.usage(name).cpu_seconds_total or 0.0
        record.earlier_cpu_seconds = max(0.0, used - counted)
        _log.info("job taken over", name=name)

    def attach(self, spec: JobSpec, identity: ProcessIdentity) -> JobRecord:
        """Take in a process that others have started; UsageError when it cannot be managed here."""
        self.limiter.attach(spec.name, identity.pid)
        process = AttachedProcess(spec.name, identity, partial(self.limiter.members, spec.name))
        since, node, port = process.created_at_seconds, self.nodes[0].name, spec.port or NO_PORT
        _log.info("job attached", name=spec.name)
        return JobRecord(spec, port, process, arrived_at_seconds=since, node=node, started_at_seconds=since)

    def move_on(self, record: JobRecord, move: LocalMove, process: ManagedProcess) -> bool:
        """Advance a move; True once the job is on its new node, or has ended."""
        name = record.spec.name
        if not move.is_signalled and process.has_ended():
            with self.lock:
                record.move = None
            self.end_or_resume(record, process)
            record.ended_before_move = record.noticed_end_seconds is not None
            return True
        if not self._has_left(name, move, process):
            return False
        if process.poll() == 0:
            _log.warning("job ended with status 0 instead of moving, and counts as finished", name=name)
            record.ended_by_move = "ended with status 0 on the SIGTERM of a move, and so counts as finished"
            self.end(record)
        else:
            record.starts_left = MAX_STARTS
            self._begin_another(record, process, move.node)
        return True

    def stop_on(self, record: JobRecord, stopping: Ending, process: ManagedProcess) -> bool:
        """Advance the end of a job that is stopped, or of what one has left behind; True once all have ended."""
        if not stopping.is_signalled and process.has_ended():  # by itself, before the signal
            with self.lock:
                record.stopping = None
                if stopping.reason == CANCELLED and process.poll() != 0:
                    record.stopped_at_target = CANCELLED
            self.end(record)
            return True
        if not self._has_left(record.spec.name, stopping, process):
            if record.noticed_end_seconds is None or self.clock.now() < stopping.kill_at_seconds + KILL_SECONDS:
                return False
            _log.warning("job ended, and what it left behind does not", name=record.spec.name)
            process.collect()
            self._collect(record)
            return True
        with self.lock:
            record.stopped_at_target = stopping.reason or record.stopped_at_target
        self.end(record)
        return True

    def _has_left(self, name: str, ending: Ending, process: ManagedProcess) -> bool:
        """Advance the end of a process that is to save; True once it and all that it started have ended."""
        if not ending.is_signalled:
            with suppress(ActuationError):  # a limited job might not save in time
                self.limiter.restore(name, UNLIMITED)
        was_killed = ending.was_killed
        has_left = ending.has_left(process, self.grace_seconds, self.clock.now())
        if ending.was_killed and not was_killed:
            _log.warning("job killed after its grace", name=name, seconds=self.grace_seconds)
        return has_left

    def end_or_resume(self, record: JobRecord, process: ManagedProcess) -> None:
        """Handle a process that ended by itself; one that failed to resume after a move is started again."""
        status, last_lines = process.poll(), process.tail(1)
        if status == 0 or not record.is_resuming(self.clock.now()):
            self.end(record)
            return
        if not record.starts_left:
            record.ended_by_move = f"failed with status {status} each time that it was resumed after a move"
            self.end(record)
            return
        _log.warning(
            "job failed when it was resumed, and is started again", name=record.spec.name, last_output_lines=last_lines
        )
        record.blocked_reason = f"it failed with status {status} when it was resumed after its last move"
        self._begin_another(record, process, record.node)

    def end(self, record: JobRecord) -> None:
        """Record the end of a job that ended by itself, and release it once what it has left behind has ended too.

        What ignores SIGTERM is killed after the grace, for which no other job waits.
        """
        self._let_go(record)
        if record.process is None or record.process.is_over():
            self._collect(record)
            return
        with self.lock:
            record.stopping = Ending.of_the_rest(record.process, self.grace_seconds, self.clock.now())

    def end_all(self, records: list[JobRecord]) -> None:
        """End these running jobs within one grace."""
        for record in records:
            self._let_go(record)
        terminate_all([record.process for record in records if record.process], self.grace_seconds)
        for record in records:
            self._collect(record)

    def _begin_another(self, record: JobRecord, process: ManagedProcess, node: str) -> None:
        """Start the same command again, in place of a process that has ended."""
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
        """Record a job's end and its CPU time, and lift its limit, without which it might not end within the grace."""
        name = record.spec.name
        with self.lock:
            record.move = None
            record.noticed_end_seconds = record.noticed_end_seconds or self.clock.now()
        with suppress(ActuationError):
            used = self.limiter.usage(name).cpu_seconds_total
            record.cpu_seconds = None if used is None else record.earlier_cpu_seconds + used
            self.limiter.restore(name, UNLIMITED)

    def _collect(self, record: JobRecord) -> None:
        """End whatever is left of a job, read its exit status, and remove its cgroup."""
        if record.process is not None:
            record.status_unknown = not record.process.status_is_known
            record.exit_status = record.process.terminate(self.grace_seconds)
            if record.exit_status != 0:
                record.last_output_lines = record.process.tail(5)
        self.limiter.release(record.spec.name)
        record.finished_at_seconds = record.noticed_end_seconds
        self.on_end(record)
        _log.info(
            "job ended", name=record.spec.name, status=record.exit_status, last_output_lines=record.last_output_lines
        )

    def _command(self, record: JobRecord) -> Command:
        spec, now = record.spec, self.clock.now()
        log = self.folder / spec.log_name
        remembered = StartedCommand(
            arguments=tuple(spec.command),
            working_directory=spec.working_directory,
            log_path=log.absolute(),
            port=record.port,
            arrived_at_seconds=now if record.arrived_at_seconds is None else record.arrived_at_seconds,
            started_at_seconds=now,
            submission=spec.queueing.submission,
            attempt=spec.queueing.attempt,
        )
        return Command(
            spec.name,
            spec.command,
            log,
            environment={
                **waiting(spec.environment if spec.whole_environment else {**os.environ, **spec.environment}),
                **(self._built_in_environment(record) if self.ours else {}),
                "SLOPEWISE_EXPORTER_LINGER_SECONDS": str(self.linger_seconds),
                **spec.environment,
                "SLOPEWISE_EXPORTER_PORT": str(record.port),
                "SLOPEWISE_EXPORTER_ADDRESS": LOOPBACK,
                "SLOPEWISE_EXPORTER_END_FILE": str(log.absolute().with_suffix(LAST_LOSSES)),
            },
            whole_environment=spec.whole_environment,
            working_directory=spec.working_directory,
            ours=self.ours,
            started_by=() if self.ours else _reporting(spec),
            remembered=None if self.ours else remembered,
        )

    def _built_in_environment(self, record: JobRecord) -> dict[str, str]:
        """Checkpoints only where jobs can move, because a job saves once more at its end, which takes time."""
        moves = record.spec.migratable and len(self.nodes) > 1
        folder = str(self.folder / "checkpoints" / record.spec.name) if moves else ""
        # A job that says what its threads do is one whose threads the demo is about.
        environment = _REPORTING if VARIABLE in record.spec.environment else BUILT_IN_ENVIRONMENT
        return {**environment, "SLOPEWISE_CHECKPOINT_FOLDER": folder}


def last_losses(log_path: Path | None) -> dict[str, float]:
    """By stage, those that a training has handed over beside its log at its end; empty: none. Read once."""
    if log_path is None:
        return {}
    file = log_path.with_suffix(LAST_LOSSES)
    with suppress(OSError, ValueError):
        text = file.read_text(encoding="ascii")
        file.unlink()
        return {stage: float(loss) for stage, loss in map(str.split, text.splitlines())}
    return {}


def free_ports() -> Iterator[int]:
    """Ports without a listener on the loopback address, each at most once."""
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        yield port


def _reporting(spec: JobSpec) -> tuple[str, ...]:
    """What starts a command so that it is reported without a change of its code; empty where it has its own metrics."""
    if spec.loss_pattern is not None:
        return (*_RUN, f"--pattern={spec.loss_pattern}", "--")
    return (*_RUN, "--") if spec.port is None else ()
