"""Starts the jobs of one run on this machine when their time has come, and notices when they end.

`session.py` polls it from the main thread; passes ask it, from theirs, which jobs run. Every job gets a metrics port of
its own beforehand, so that Prometheus knows all targets from the start: it looks at changed targets only every
5 s, which is a third of a short job's life.
"""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog

from controller.adapters.limiters.base import UNLIMITED, Limiter
from controller.adapters.local import NODE_NAME, LocalJob
from controller.adapters.processes import Command, Launcher, ManagedProcess, single_thread_environment, terminate_all
from controller.adapters.prometheus_server import TargetGroup
from controller.errors import ActuationError, SlopewiseError
from controller.jobs import JobSpec
from controller.ports import Clock

_log = structlog.get_logger("slopewise")

LOOPBACK = "127.0.0.1"

PORTS = range(20_000, 32_000)
"""Below Linux's ephemeral range (32768 and up), so that no outgoing connection takes one in between."""

LINGER_SECONDS = 3.0
"""How long a job's endpoint waits for the scrape after its end: three scrapes of one second."""

GRACE_SECONDS = 5.0
"""How long a built-in training may take to end after SIGTERM."""

USERS_GRACE_SECONDS = 30.0
"""The same for a user's command, which may want to write a checkpoint; what Kubernetes gives a pod."""

BUILT_IN_ENVIRONMENT = {**single_thread_environment(), "RANK": "0", "SLOPEWISE_EXPORTER_DISABLED": "0"}
"""Only for our own trainings, which are one thread each and report whatever our own surroundings say."""


@dataclass(slots=True)
class JobRecord:
    """One job of the run, from its planned arrival to its end. Times are Unix seconds."""

    spec: JobSpec
    port: int
    process: ManagedProcess | None = None
    arrived_at_seconds: float | None = None
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
        if self.arrived_at_seconds is None:
            return "waiting"
        if self.finished_at_seconds is None:
            return "running"
        return "finished" if self.exit_status == 0 else "failed"


@dataclass(slots=True)
class Supervisor:
    """The jobs of one run. `ours`: they are the built-in trainings, and end with a killed controller."""

    specs: Sequence[JobSpec]
    namespace: str
    launcher: Launcher
    limiter: Limiter
    folder: Path
    clock: Clock
    ours: bool
    on_event: Callable[[], None]
    records: dict[str, JobRecord] = field(init=False)
    started_at_seconds: float = field(init=False, default=0.0)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """UsageError when one of the commands cannot be started, before any of them is."""
        taken = {spec.port for spec in self.specs}
        ports = (port for port in free_ports() if port not in taken)
        self.records = {
            spec.name: JobRecord(spec, spec.port if spec.port is not None else next(ports)) for spec in self.specs
        }
        for record in self.records.values():
            self.launcher.check(self._command(record))

    def targets(self) -> list[TargetGroup]:
        """What Prometheus is to scrape: every job, also those that have not arrived."""
        return [
            {
                "targets": [f"{LOOPBACK}:{record.port}"],
                "labels": {"namespace": self.namespace, "pod": name, "node": NODE_NAME},
            }
            for name, record in self.records.items()
        ]

    def start(self) -> None:
        """The run begins now; the first jobs arrive with the next `poll`."""
        self.started_at_seconds = self.clock.now()

    def poll(self) -> None:
        """Start whose time has come, notice who has ended; one event for all that happened."""
        happened = False
        for record in self.records.values():
            if record.state == "waiting" and self._is_due(record):
                self._start(record)
                happened = True
            elif record.state == "running" and record.process is not None:
                status = record.process.poll()
                if status is not None:
                    self._end(record)
                    happened = True
        if happened:
            self.on_event()

    def running(self) -> list[LocalJob]:
        """The jobs that run now; safe to ask from any thread."""
        with self._lock:
            return [
                LocalJob(name, self.namespace, record.arrived_at_seconds, _useful_cores(record.spec))
                for name, record in self.records.items()
                if record.arrived_at_seconds is not None and record.noticed_end_seconds is None
            ]

    def all_ended(self) -> bool:
        """True when no job is waiting or running."""
        return all(record.finished_at_seconds is not None for record in self.records.values())

    def stop(self) -> None:
        """End every job that still runs, all at once, and give up those that wait."""
        running = [record for record in self.records.values() if record.state == "running"]
        for record in running:
            self._let_go(record)
        terminate_all([record.process for record in running if record.process], self._grace_seconds)
        for record in running:
            self._collect(record)

    @property
    def _grace_seconds(self) -> float:
        return GRACE_SECONDS if self.ours else USERS_GRACE_SECONDS

    def _is_due(self, record: JobRecord) -> bool:
        return self.clock.now() - self.started_at_seconds >= record.spec.arrive_seconds

    def _command(self, record: JobRecord) -> Command:
        name = record.spec.name
        return Command(
            name,
            record.spec.command,
            self.folder / f"{name}.log",
            environment={
                **(BUILT_IN_ENVIRONMENT if self.ours else {}),
                "SLOPEWISE_EXPORTER_PORT": str(record.port),
                "SLOPEWISE_EXPORTER_ADDRESS": LOOPBACK,
                "SLOPEWISE_EXPORTER_LINGER_SECONDS": str(LINGER_SECONDS),
            },
            ours=self.ours,
        )

    def _start(self, record: JobRecord) -> None:
        """Start a job; one that cannot be started has failed, and the others go on."""
        name = record.spec.name
        try:
            process = self.launcher.start(
                self._command(record), partial(self.limiter.admit, name), partial(self.limiter.members, name)
            )
        except SlopewiseError as error:
            with self._lock:
                record.last_words = str(error)
                record.arrived_at_seconds = record.noticed_end_seconds = self.clock.now()
                record.finished_at_seconds = record.noticed_end_seconds
            _log.warning("job cannot be started", name=name, reason=record.last_words)
            return
        with self._lock:
            record.process = process
            record.arrived_at_seconds = self.clock.now()
        _log.info("job started", name=name)

    def _end(self, record: JobRecord) -> None:
        """A job ended by itself: note it, end what it left in its cgroup, and let go of it."""
        self._let_go(record)
        self._collect(record)

    def _let_go(self, record: JobRecord) -> None:
        """Note a job's end and what it used, and give it its CPU back: a squeezed job could not end politely."""
        name = record.spec.name
        with self._lock:
            record.noticed_end_seconds = self.clock.now()
        with suppress(ActuationError):
            record.cpu_seconds = self.limiter.usage(name).cpu_seconds_total
            self.limiter.restore(name, UNLIMITED)

    def _collect(self, record: JobRecord) -> None:
        """End whatever is left of a job, learn its exit status, and remove its cgroup."""
        if record.process is not None:
            record.exit_status = record.process.terminate(self._grace_seconds)
            if record.exit_status != 0:
                record.last_words = record.process.tail(5)
        self.limiter.release(record.spec.name)
        record.finished_at_seconds = record.noticed_end_seconds
        _log.info("job ended", name=record.spec.name, status=record.exit_status, last_words=record.last_words)


def free_ports() -> Iterator[int]:
    """Ports on which nobody listens on the loopback address, each at most once."""
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        yield port


def _useful_cores(spec: JobSpec) -> float | None:
    millicores = spec.max_useful_cpu_millicores
    return None if millicores is None else millicores / 1000
