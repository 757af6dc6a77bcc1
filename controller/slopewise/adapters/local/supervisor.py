"""Starts the jobs of one local run as they arrive, and records their ends.

`session.py` polls it from the main thread; passes read the running jobs from another. Every job gets its metrics
port beforehand, so that all targets are in Prometheus from the start: it applies changed targets only every 5 s, a
third of a short job's run time.

On one node a job starts when it arrives. On several it waits for one pass, in which the policy may `place` it or hold
it back; after that pass, or after `PLACEMENT_WAIT_SECONDS`, it starts on the node with the fewest jobs. A running job
with `migratable: true` can move to another node (`migrate`). `job_processes.py` starts and ends the processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from slopewise.adapters.local.crashed_runs import NOTHING_EARLIER, EarlierJob, EarlierRun
from slopewise.adapters.local.job_processes import LOOPBACK, JobProcesses, free_ports
from slopewise.adapters.local.job_queue import JobQueue, again
from slopewise.adapters.local.job_record import CANCELLED, NO_PORT, JobRecord
from slopewise.adapters.local.launcher import AdoptedProcess
from slopewise.adapters.local.limiters.identity import ProcessIdentity
from slopewise.adapters.local.move import Ending, LocalMove
from slopewise.adapters.local.prometheus_server import TargetGroup
from slopewise.adapters.prometheus.missing_evaluations import OutputRead
from slopewise.adapters.prometheus.reader import JobSeries
from slopewise.config.jobs_file import JobSpec
from slopewise.errors import ActuationError
from slopewise.model import (
    Arrival,
    Job,
    JobState,
    Migrate,
    Move,
    MoveUnderWay,
    Outcome,
    OutcomeResult,
    PassReport,
    Stop,
)
from slopewise.text import bounded, printable

_log = structlog.get_logger("slopewise")

PLACEMENT_WAIT_SECONDS = 3.0
"""How long an arrived job waits for a pass that places it. A pass takes 0.03 s; one that hangs must not delay the
job."""

_MAX_LAST_LINE = 80
"""Characters; a line of the log has 300."""

REPORTED_SECONDS = 300.0
"""How long after its end a job's series may be read: Prometheus returns a last sample for so long."""


@dataclass(slots=True)
class Supervisor:
    """The jobs of one run."""

    specs: Sequence[JobSpec]
    namespace: str
    processes: JobProcesses
    on_event: Callable[[], None]
    earlier: EarlierRun = NOTHING_EARLIER
    """The jobs that killed controllers left running: they are taken over and never started a second time."""
    max_running: int | None = None
    """Jobs that run at the same time; None: all that have arrived."""
    reported: Callable[[str], JobState | None] = lambda _: None
    """The last state that a job has reported itself."""
    queue: JobQueue = field(init=False)
    records: Mapping[str, JobRecord] = field(init=False, default_factory=dict)
    started_at_seconds: float = field(init=False, default=0.0)
    _former: dict[str, float] = field(init=False, default_factory=dict)
    """When the job ended that had the name of another one before."""

    def __post_init__(self) -> None:
        """UsageError when one of the commands cannot be started, before any of them is."""
        self.queue = JobQueue(self.processes.limiter.usage, self.max_running, self.reported)
        self.add(self.specs)

    def add(self, specs: Sequence[JobSpec]) -> None:
        """Take in further jobs; UsageError when one of the commands cannot be started, and then none is taken in."""
        known = {name: job.started.command.port for name, job in self.earlier.jobs.items() if job.started.command}
        taken = {spec.port for spec in specs} | set(known.values()) | {each.port for each in self.records.values()}
        ports = (port for port in free_ports() if port not in taken)
        had = {spec.name for spec in specs if self.earlier.has(spec)}
        made = {s.name: JobRecord(s, s.port or (known[s.name] if s.name in had else next(ports))) for s in specs}
        for name, record in made.items():
            if name not in had:
                self.processes.check(record)
        with self.processes.lock:
            before = {name: each.finished_at_seconds or 0.0 for name, each in self.records.items() if name in made}
            self._former = {**self._former, **before}
            self.records = {name: each for name, each in self.records.items() if name not in made} | made

    def attach(self, spec: JobSpec, identity: ProcessIdentity) -> None:
        """Take in a process that runs already; UsageError when it cannot be managed here."""
        record = self.processes.attach(spec, identity)
        with self.processes.lock:
            self._former = {name: end for name, end in self._former.items() if name != spec.name}  # it ran before
            self.records = {**self.records, spec.name: record}

    def former_ends(self) -> Mapping[str, float]:
        """When the jobs ended, not long ago, whose names others have now; thread-safe."""
        now = self.processes.clock.now()
        with self.processes.lock:
            self._former = {name: end for name, end in self._former.items() if now - end < REPORTED_SECONDS}
            return self._former

    def recall(self, records: Mapping[str, JobRecord]) -> None:
        """Take in jobs that have ended in an earlier session, before all others."""
        with self.processes.lock:
            self.records = {**records, **self.records}

    def forget(self, names: Collection[str]) -> None:
        """Drop jobs that have ended."""
        with self.processes.lock:
            self.records = {name: record for name, record in self.records.items() if name not in names}

    def join(self, reported: Mapping[str, JobSeries]) -> None:
        """Make jobs trials of the studies that they name themselves; the jobs file's word comes first."""
        with self.processes.lock:
            for name, record in self.records.items():
                spec, series = record.spec, reported.get(name)
                if series is not None and series.study and not spec.queueing.study:
                    queueing = replace(spec.queueing, study=series.study)
                    record.spec = replace(spec, queueing=queueing, objectives=spec.objectives.in_study(series.study))

    def targets(self) -> list[TargetGroup]:
        """The scrape targets: every job that has not ended, also those that have not arrived.

        The node is a label where there is only one; among several it is unknown before a job arrives.
        """
        node = {"node": self.processes.nodes[0].name} if len(self.processes.nodes) == 1 else {}
        return [
            {"targets": [f"{LOOPBACK}:{record.port}"], "labels": {"namespace": self.namespace, "pod": name, **node}}
            for name, record in self.records.items()
            if record.finished_at_seconds is None and record.port != NO_PORT
        ]

    def start(self) -> None:
        """Begin or continue the run; the first jobs arrive with the next `poll`."""
        begun = self.earlier.started_at_seconds
        self.started_at_seconds = self.processes.clock.now() if begun is None else begun
        for name, job in self.earlier.jobs.items():
            if name in self.records:
                self._go_on(self.records[name], job)

    def poll(self) -> None:
        """Start arrivals, advance moves, record ends; one `on_event` call for all of it."""
        happened = [self._admit(), *[self._attend(record) for record in self.records.values()]]
        since_start = self.processes.clock.now() - self.started_at_seconds
        if failed := {name: retry for name, each in self.records.items() if (retry := again(each, since_start))}:
            with self.processes.lock:
                self.records = {name: failed.get(name, each) for name, each in self.records.items()}
        if any(happened):
            self.on_event()

    def _admit(self) -> bool:
        """Let the jobs arrive whose turn it is; True when one does, or can never."""
        now = self.processes.clock.now()
        turn = self.queue.turn(self.records, now, self.started_at_seconds)
        with self.processes.lock:
            for name in turn.start:
                self.records[name].arrived_at_seconds = now
            for name, reason in turn.never.items():
                record = self.records[name]
                record.last_output_lines = reason
                record.noticed_end_seconds = record.finished_at_seconds = now
        for name, reason in turn.never.items():
            _log.warning("job never starts", name=name, reason=reason)
        return bool(turn.start or turn.never)

    def running(self) -> list[Job]:
        """The jobs that run now and are not about to leave their node; thread-safe."""
        with self.processes.lock:
            found = [record.running(self.namespace, self.processes.grace_seconds) for record in self.records.values()]
        return [job for job in found if job is not None]

    def observed(self) -> list[Job]:
        """The jobs that passes observe: those that run, and those that just ended during a move; thread-safe."""
        grace, now = self.processes.grace_seconds, self.processes.clock.now()
        with self.processes.lock:
            ended = [record.just_ended(self.namespace, grace, now) for record in self.records.values()]
        return [*self.running(), *(job for job in ended if job is not None)]

    def output_of(self, name: str) -> OutputRead:
        """What was read of a job's output in search of a loss."""
        record = self.records[name]
        if self.processes.ours or record.process is None or not record.spec.is_read:
            return OutputRead()
        if not (lines := record.process.lines_written()):
            remedy = "`stdbuf -oL` before it if it buffers, or the two lines of slopewise_exporter"
            return OutputRead(f"it wrote no line yet: {remedy}", is_empty=True)
        last = bounded(printable(record.process.tail(1)), _MAX_LAST_LINE)
        read = f'read {lines} line{"" if lines == 1 else "s"}, none has a loss; the last: "{last}"'
        return OutputRead(f"{read}; try `lossPattern`, or the two lines of slopewise_exporter")

    def waiting(self) -> list[Arrival]:
        """The jobs that have arrived and have no node yet, in the order of their arrival; thread-safe."""
        with self.processes.lock:
            found = [record.waiting(self.namespace) for record in self.records.values()]
        return sorted((each for each in found if each is not None), key=lambda arrival: arrival.arrived_at_seconds)

    def moving(self) -> list[MoveUnderWay]:
        """The moves under way; thread-safe."""
        with self.processes.lock:
            return [record.move.under_way(uid) for uid, record in self.records.items() if record.move is not None]

    def place(self, job_uid: str, node: str) -> None:
        """Let a waiting job start on a node, with the next `poll`; ActuationError when it does not wait any more."""
        if not self._is_node(node):
            raise ActuationError(f"{job_uid}: there is no node {node!r} on this machine.")
        with self.processes.lock:
            record = self.records.get(job_uid)
            if record is None or not record.waits_for_node:
                raise ActuationError(f"{job_uid}: no such job waits for a node; it has one by now.")
            record.node = node
        _log.info("job placed", name=job_uid, node=node, by="the policy")

    def migrate(self, move: Migrate) -> Outcome[Move]:
        """Move a running job to another node; the move begins with the next `poll`. Thread-safe."""
        with self.processes.lock:
            refused = self._refusal(move)
            if refused is not None:
                return Outcome(move, *refused)
            record = self.records[move.job_uid]
            now = self.processes.clock.now()
            record.move = LocalMove(now, move.reason, from_node=record.node, node=move.node)
        _log.info("job moves", name=move.job_uid, node=move.node, reason=move.reason)
        how = f"saves and ends within {self.processes.grace_seconds:g} s, then starts on {move.node}"
        return Outcome(move, "applied", how, begun_at_seconds=now)

    def end_at_target(self, stop: Stop) -> Outcome[Stop]:
        """Have a running job save and end; that begins with the next `poll`. Thread-safe."""
        with self.processes.lock:
            record = self.records.get(stop.job_uid)
            if record is None or record.started_at_seconds is None or record.noticed_end_seconds is not None:
                return Outcome(
                    stop, "infeasible", "no such job runs on this machine; it has ended or was never started"
                )
            if record.move is not None:
                return Outcome(stop, "deferred", f"it is on its way from {record.move.from_node} to {record.move.node}")
            if record.stopping is None:
                record.stopping = Ending(self.processes.clock.now(), stop.reason)
        _log.info("job stops at its target", name=stop.job_uid, reason=stop.reason)
        return Outcome(stop, "applied", f"{stop.reason}; it saves and ends within {self.processes.grace_seconds:g} s")

    def cancel(self, name: str) -> None:
        """Have a job save and end, with the next `poll`, take one that waits out, or let an attached one go."""
        record, now = self.records[name], self.processes.clock.now()
        if record.is_attached and record.finished_at_seconds is None:
            record.stopped_at_target = CANCELLED
            self.processes.end(record)
        with self.processes.lock:
            record.cancel(now)
        _log.info("job cancelled", name=name)

    def after_pass(self, report: PassReport) -> None:
        """Place by default the jobs that this pass observed as waiting, and did not place."""
        seen = {arrival.uid for arrival in report.snapshot.waiting} if report.snapshot else set(self.records)
        self._place_by_default(uid for uid in self.records if uid in seen)

    def all_ended(self) -> bool:
        """True when no job is waiting, running or moving."""
        return all(record.finished_at_seconds is not None for record in self.records.values())

    def stop(self) -> None:
        """End every job that still runs, all at once, and abandon those that wait or move."""
        alive = ("running", "moving", "stopping")
        self.processes.end_all([record for record in self.records.values() if record.state in alive])

    def _go_on(self, record: JobRecord, job: EarlierJob) -> None:
        """Take over a job that runs; record the end of one that does not."""
        command, queueing = job.started.command, record.spec.queueing
        if command is None or not self.earlier.has(record.spec):
            return
        with self.processes.lock:
            record.spec = replace(record.spec, queueing=replace(queueing, attempt=command.attempt))
            record.arrived_at_seconds = command.arrived_at_seconds
            record.started_at_seconds = command.started_at_seconds
            record.node = self.processes.nodes[0].name
        if job.runs:
            members = partial(self.processes.limiter.members, record.spec.name)
            self.processes.take_over(record, AdoptedProcess(job.started, job.mark, command.log_path, members))
            return
        with self.processes.lock:
            record.end_earlier(job.ended, self.processes.clock.now())

    def _is_node(self, name: str) -> bool:
        return any(name == node.name for node in self.processes.nodes)

    def _refusal(self, move: Migrate) -> tuple[OutcomeResult, str] | None:
        """Why a job cannot go to a node, now or at all; None: it can."""
        record = self.records.get(move.job_uid)
        if record is None or record.started_at_seconds is None or record.noticed_end_seconds is not None:
            return "infeasible", "no such job runs on this machine; it has ended or was never started"
        if record.stopping is not None:
            return "infeasible", "it is being stopped at its target"
        if record.move is not None:
            return "deferred", f"it is on its way from {record.move.from_node} to {record.move.node}"
        if not self._is_node(move.node):
            return "infeasible", f"there is no node {move.node!r} on this machine"
        if record.node == move.node:
            return "infeasible", f"it is on {move.node} already"
        reason = record.not_moved_reason()
        return None if reason is None else ("infeasible", reason)

    def _attend(self, record: JobRecord) -> bool:
        """Advance one job; True when a pass should react to the change."""
        if record.process is not None and record.move is not None:
            return self.processes.move_on(record, record.move, record.process)
        if record.process is not None and record.stopping is not None and record.finished_at_seconds is None:
            return self.processes.stop_on(record, record.stopping, record.process)
        if record.process is not None and record.state == "running":
            if ended := record.process.has_ended():
                self.processes.end_or_resume(record, record.process)
            return ended
        return record.state == "waiting" and self._attend_waiting(record)

    def _attend_waiting(self, record: JobRecord) -> bool:
        since, is_only_node = record.arrived_at_seconds, len(self.processes.nodes) == 1
        if since is not None and (is_only_node or self.processes.clock.now() - since >= PLACEMENT_WAIT_SECONDS):
            self._place_by_default([record.spec.name])
        if record.node:
            self.processes.begin(record)
            return True
        return False

    def _place_by_default(self, uids: Iterable[str]) -> None:
        """Give each of these that still waits the node with the fewest jobs, one after the other."""
        with self.processes.lock:
            placed = [(uid, self._assign(self.records[uid])) for uid in uids if self.records[uid].waits_for_node]
        for uid, node in placed if len(self.processes.nodes) > 1 else []:
            _log.info("job placed", name=uid, node=node, by="the default scheduler")

    def _assign(self, record: JobRecord) -> str:
        """As the default scheduler does: the node with the fewest jobs, and of those the first by name."""
        jobs = Counter(each.bound_for for each in self.records.values() if each.finished_at_seconds is None)
        record.node = min((jobs[each.name], each.name) for each in self.processes.nodes)[1]
        return record.node
