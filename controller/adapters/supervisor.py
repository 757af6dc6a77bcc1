"""Starts the jobs of one run on this machine when their time has come, and notices when they end.

`session.py` polls it from the main thread; passes ask it, from theirs, which jobs run. Every job gets a metrics port of
its own beforehand, so that Prometheus knows all targets from the start: it looks at changed targets only every
5 s, which is a third of a short job's life.

On one node a job starts when it arrives. On several it waits for one pass: the policy may `place` it, and where it
does not, or cannot within `PATIENCE_SECONDS`, it starts on the node with the fewest jobs.
"""

from __future__ import annotations

import random
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog

from controller.adapters.job_record import JobRecord
from controller.adapters.limiters.base import UNLIMITED, Limiter
from controller.adapters.local import LocalJob
from controller.adapters.nodes import LocalNode, fewest_jobs
from controller.adapters.processes import Command, Launcher, single_thread_environment, terminate_all
from controller.adapters.prometheus_server import TargetGroup
from controller.errors import ActuationError, SlopewiseError
from controller.jobs import JobSpec
from controller.model import Arrival, PassReport
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

PATIENCE_SECONDS = 3.0
"""How long an arrived job waits for a pass that places it: a pass takes 0.03 s, and one that hangs must not matter."""

BUILT_IN_ENVIRONMENT = {**single_thread_environment(), "RANK": "0", "SLOPEWISE_EXPORTER_DISABLED": "0"}
"""Only for our own trainings, which are one thread each and report whatever our own surroundings say."""


@dataclass(slots=True)
class Supervisor:
    """The jobs of one run. `ours`: they are the built-in trainings, and end with a killed controller."""

    specs: Sequence[JobSpec]
    namespace: str
    launcher: Launcher
    limiter: Limiter
    folder: Path
    clock: Clock
    nodes: Sequence[LocalNode]
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
        """What Prometheus is to scrape: every job, also those that have not arrived.

        Their node is a label where there is but one; among several it is not known before they have arrived.
        """
        node = {"node": self.nodes[0].name} if len(self.nodes) == 1 else {}
        return [
            {
                "targets": [f"{LOOPBACK}:{record.port}"],
                "labels": {"namespace": self.namespace, "pod": name, **node},
            }
            for name, record in self.records.items()
        ]

    def start(self) -> None:
        """The run begins now; the first jobs arrive with the next `poll`."""
        self.started_at_seconds = self.clock.now()

    def poll(self) -> None:
        """Start whose time has come, notice who has ended; one event for all that happened."""
        happened = [self._attend(record) for record in self.records.values()]
        if any(happened):
            self.on_event()

    def running(self) -> list[LocalJob]:
        """The jobs that run now; safe to ask from any thread."""
        with self._lock:
            found = [record.running(self.namespace) for record in self.records.values()]
        return [job for job in found if job is not None]

    def waiting(self) -> list[Arrival]:
        """The jobs that have arrived and have no node yet, in the order of their arrival; safe from any thread."""
        with self._lock:
            found = [record.waiting(self.namespace) for record in self.records.values()]
        arrived = [arrival for arrival in found if arrival is not None]
        return sorted(arrived, key=lambda arrival: arrival.arrived_at_seconds)

    def place(self, job_uid: str, node: str) -> None:
        """Let a waiting job start on a node, with the next `poll`; ActuationError when it does not wait any more."""
        if all(node != known.name for known in self.nodes):
            raise ActuationError(f"{job_uid}: there is no node {node!r} on this machine.")
        with self._lock:
            record = self.records.get(job_uid)
            if record is None or not record.waits_for_node:
                raise ActuationError(f"{job_uid}: no such job waits for a node; it has one by now.")
            record.node = node
        _log.info("job placed", name=job_uid, node=node, by="the policy")

    def after_pass(self, report: PassReport) -> None:
        """Whom this pass saw waiting and did not place, the default scheduler does; a held pass places nobody."""
        seen = {arrival.uid for arrival in report.snapshot.waiting} if report.snapshot else set(self.records)
        self._place_by_default(uid for uid in self.records if uid in seen)

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

    def _attend(self, record: JobRecord) -> bool:
        """Look after one job; True when passes must know of what happened."""
        if record.state == "running" and record.process is not None and record.process.poll() is not None:
            self._end(record)
            return True
        if record.state != "waiting":
            return False
        arrives = record.arrived_at_seconds is None and self._is_due(record)
        if arrives:
            with self._lock:
                record.arrived_at_seconds = self.clock.now()
        if self._need_not_wait(record):
            self._place_by_default([record.spec.name])
        if record.node:
            self._start(record)
            return True
        return arrives

    def _is_due(self, record: JobRecord) -> bool:
        return self.clock.now() - self.started_at_seconds >= record.spec.arrive_seconds

    def _need_not_wait(self, record: JobRecord) -> bool:
        """There is nothing to choose, or no pass came in time."""
        if record.arrived_at_seconds is None:
            return False
        return len(self.nodes) == 1 or self.clock.now() - record.arrived_at_seconds >= PATIENCE_SECONDS

    def _place_by_default(self, uids: Iterable[str]) -> None:
        """Give each of these that still waits the node with the fewest jobs, one after the other."""
        with self._lock:
            placed = [(uid, self._assign(self.records[uid])) for uid in uids if self.records[uid].waits_for_node]
        for uid, node in placed if len(self.nodes) > 1 else []:
            _log.info("job placed", name=uid, node=node, by="the default scheduler")

    def _assign(self, record: JobRecord) -> str:
        jobs = Counter(each.node for each in self.records.values() if each.finished_at_seconds is None)
        record.node = fewest_jobs({node.name: jobs[node.name] for node in self.nodes})
        return record.node

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
                self._command(record), partial(self._admit, record), partial(self.limiter.members, name)
            )
        except SlopewiseError as error:
            with self._lock:
                record.last_words = str(error)
                record.noticed_end_seconds = record.finished_at_seconds = self.clock.now()
            _log.warning("job cannot be started", name=name, reason=record.last_words)
            return
        with self._lock:
            record.process = process
            record.started_at_seconds = self.clock.now()
        _log.info("job started", name=name, node=record.node)

    def _admit(self, record: JobRecord, pid: int) -> None:
        """Behind its gate: put it on its node's cores, where there are several nodes, and into the limiter's care."""
        if len(self.nodes) > 1:
            next(node for node in self.nodes if node.name == record.node).hold(pid)
        self.limiter.admit(record.spec.name, pid)

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
