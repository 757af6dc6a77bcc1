"""A session on this machine as a service: takes jobs at any time, stores them, and answers the commands.

The session's main thread polls it ten times a second, so that nothing here needs a lock. A job is stored before it
counts as taken. What ends while no service runs is known from the crash journal, and after a restart of the machine
from the stored queue alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec
import psutil
import structlog
from msgspec.structs import replace as altered

from slopewise.adapters.local.attached import ENDED, attachable
from slopewise.adapters.local.cleanup import current_boot_id
from slopewise.adapters.local.job_record import CUT_OFF, JobRecord
from slopewise.adapters.local.queue_file import QueueFile, StoredEnd, StoredJob, StoredLosses, StoredProcess
from slopewise.adapters.local.service_socket import ServiceSocket
from slopewise.adapters.local.session_requests import Answer, Attach, Cancel, JobAnswer, Request, SetMode, Submit
from slopewise.adapters.pauses import QUEUE_SECONDS
from slopewise.config.job_entry import OWN_VARIABLES
from slopewise.config.jobs_file import JobSpec, Queueing, expanded, read_jobs
from slopewise.config.training_policy import Mode, TrainingPolicy
from slopewise.errors import SlopewiseError, UsageError
from slopewise.local.answers import best_trials, job_answer, session_answer
from slopewise.local.live import live_rows
from slopewise.local.passes import FollowedPasses, PolicyFile
from slopewise.local.session import Session
from slopewise.local.tally import JobTally
from slopewise.text import mebibytes, nearest, unknown_name

MAX_ENDED = 200
"""Jobs that are remembered after their end; besides them the best trial of each of their studies."""

_DECODER = msgspec.json.Decoder(Request)
_log = structlog.get_logger("slopewise")


class Service:
    """The jobs of a session, as its commands see them."""

    def __init__(self, session: Session, passes: FollowedPasses, holder: str) -> None:
        """`holder`: the command that runs it."""
        self._session = session
        self._passes = passes
        self._holder = holder
        self.socket: ServiceSocket | None = None
        """Where it is asked."""
        self.policy_file: PolicyFile | None = None
        """It decides by this file, also when the file changes."""
        self._file: QueueFile | None = None
        self._stored: dict[str, StoredJob] = {}
        self._save_at = 0.0

    def take_over(self, file: QueueFile) -> None:
        """Take in the jobs and the mode of a stored queue, and store from now on what becomes of all."""
        self._file, self._stored = file, file.load()
        ended: dict[str, JobRecord] = {}
        for name in list(self._stored):
            try:
                spec = self._taken_over(name)
            except UsageError as error:
                spec, job = JobSpec(name, [], 0.0), self._stored[name]
                end = job.end or StoredEnd(self._session.clock.now(), last_output_lines=str(error))
                self._stored[name] = altered(job, end=end)
            if self._stored[name].end is not None:
                ended[name] = self._stored[name].record(spec)
            if (had := self._stored[name].losses) is not None:
                kept = JobTally(had.objective, had.first, had.last, had.finite, rungs=had.rungs, metric=had.metric)
                self._session.tally.jobs[name] = kept
        self._session.supervisor.recall(ended)
        file.save(self._stored.values())
        if (written := file.mode_after(None if self.policy_file is None else self.policy_file.path)) is not None:
            self._set_mode(written)

    def _taken_over(self, name: str) -> JobSpec:
        """Take in a stored job that has not ended; UsageError when it cannot be used any more."""
        job = self._stored[name]
        spec = self._spec(job)
        if job.end is None and job.process is not None:
            identity, now = job.process.identity(), self._session.clock.now()
            if identity is not None:
                self._session.attach(spec, identity, fresh=False)
            else:
                end = StoredEnd(now, last_output_lines=ENDED, status_unknown=True, ended_unseen=True)
                self._stored[name] = altered(job, end=end)
            return spec
        if job.end is None and job.started and not self._session.plan.earlier.has(spec):
            job = self._stored[name] = _cut_off(job, spec, self._session.clock.now())
            spec = self._spec(job)
        if job.end is None:
            self._session.add([spec], fresh=False)
        return spec

    def tick(self) -> None:
        """Called about ten times a second."""
        if self.socket is not None:
            self.socket.poll(self.answer)
        self._store()
        document = self.policy_file.changed() if self.policy_file is not None else None
        if document is not None and self.policy_file is not None:
            try:
                self._use(document)
            except SlopewiseError as error:
                self.policy_file.refuse(error)

    def answer(self, line: bytes) -> bytes:
        """The answer to a request; never raises."""
        try:
            answer = self._answer(_DECODER.decode(line))
        except SlopewiseError as error:
            answer = Answer(str(error), error.exit_code)
        except (msgspec.MsgspecError, UnicodeError) as error:
            answer = Answer(f"The request cannot be read ({error}); use the command of the session's version.", 2)
        except Exception as error:
            _log.exception("request failed")
            answer = Answer(f"The request failed ({type(error).__name__}); the session's log has more.", 1)
        return msgspec.json.encode(answer)

    def _answer(self, request: Request) -> Answer:
        match request:
            case Submit():
                return Answer(names=self._submit(request))
            case Attach():
                return Answer(names=self._attach(request))
            case Cancel():
                return Answer(names=self._cancel(request))
            case SetMode():
                self._set_mode(request.mode)
        return Answer(session=session_answer(self._session, self._holder), jobs=self._jobs())

    # --- taking and ending jobs --------------------------------------------------------------------------------

    def _submit(self, request: Submit) -> list[str]:
        document, records = request.document, self._session.supervisor.records
        if request.renames:
            document = [_renamed(document[0], records)]
        entries = [entry for _, entry in expanded(document, request.where)]
        number = 1 + max((job.number for job in self._stored.values()), default=0)
        environment = {name: value for name, value in request.environment.items() if name not in OWN_VARIABLES}
        now = self._session.clock.now()
        others = {  # what each is waited for by and, where it waits, for what
            name: each.spec.queueing if each.state == "waiting" else Queueing(study=each.spec.queueing.study)
            for name, each in records.items()
        }
        read_jobs(document, request.where, Path(request.folder), others)
        made = [
            StoredJob(number + place, str(entry["name"]), entry, request.folder, environment, now)
            for place, entry in enumerate(entries)
        ]
        specs = [self._spec(job) for job in made]
        for spec in specs:
            self._check(spec, request.where)
        self._take(made, lambda: self._session.add(specs))
        return [job.name for job in made]

    def _attach(self, request: Attach) -> list[str]:
        for name, record in self._session.supervisor.records.items():
            process = record.process if record.finished_at_seconds is None else None
            if process is not None and request.pid in (process.pid, *process.members()):
                raise UsageError(f"process {request.pid} is one of the job {name} already.")
        identity = attachable(request.pid)
        entry = _renamed(request.entry, self._session.supervisor.records) if request.renames else request.entry
        number = 1 + max((job.number for job in self._stored.values()), default=0)
        stored = StoredProcess(*identity, current_boot_id())
        made = StoredJob(
            number, str(entry["name"]), entry, "/", {}, self._session.clock.now(), started=True, process=stored
        )  # fmt: skip
        spec = self._spec(made)
        self._check(spec, "attach")
        self._take([made], lambda: self._session.attach(spec, identity))
        return [made.name]

    def _take(self, made: Sequence[StoredJob], take: Callable[[], None]) -> None:
        """Store the jobs, then take them in."""
        if self._file is None:
            raise UsageError(f"`{self._holder}` has jobs of its own and takes no others; end it, and `slopewise up`.")
        before = self._stored
        new = {job.name: job for job in made}
        self._stored = {name: job for name, job in before.items() if name not in new} | new
        try:
            self._file.save(self._stored.values())
            take()
        except Exception:  # whatever failed, the answer is that nothing was taken
            self._stored = before
            self._save()
            raise
        self._passes.forget(list(new))

    def _check(self, spec: JobSpec, where: str) -> None:
        """UsageError when the job cannot be taken beside those that there are."""
        records = self._session.supervisor.records
        there = records.get(spec.name)
        if there is not None and there.finished_at_seconds is None:
            raise UsageError(f"{where}: {spec.name} is {there.state} already; cancel it, or give another name.")
        ports = {record.port for record in records.values() if record.finished_at_seconds is None}
        if spec.port in ports:
            raise UsageError(f"{where}: {spec.name}: port {spec.port} is that of another job; choose another one.")
        total = psutil.virtual_memory().total
        if (spec.queueing.memory_bytes or 0) > total:
            needed = mebibytes(spec.queueing.memory_bytes or 0)
            raise UsageError(f"{where}: {spec.name}: memory: {needed} is more than the {mebibytes(total)} here.")

    def _cancel(self, request: Cancel) -> list[str]:
        records = self._session.supervisor.records
        left = {name: record for name, record in records.items() if record.finished_at_seconds is None}
        names = list(request.names)
        for name in names:
            if name not in records:
                meant = nearest(name, list(records))
                hint = f"did you mean {meant!r}?" if meant else "`slopewise jobs` lists them."
                raise UsageError(f"there is no job {name!r}; {hint}")
        studies = sorted({each.spec.queueing.study for each in records.values()} - {""})
        if request.study and request.study not in studies:
            raise UsageError(unknown_name("study", request.study, studies))
        if request.study or request.everything:
            names += [n for n, each in left.items() if request.study in ("", each.spec.queueing.study)]
        cancelled = [name for name in dict.fromkeys(names) if name in left]
        for name in cancelled:
            self._session.supervisor.cancel(name)
        return cancelled

    def _spec(self, job: StoredJob) -> JobSpec:
        """What is started; UsageError when its entry cannot be used any more."""
        (spec,) = read_jobs([job.document], job.name, Path(job.folder), None)
        queueing = replace(spec.queueing, submission=job.number, attempt=job.attempt)
        since = job.submitted_at_seconds - (self._session.plan.earlier.started_at_seconds or 0.0)
        spec = replace(spec, environment={**job.environment, **spec.environment}, whole_environment=True)
        return replace(spec, queueing=queueing, arrive_seconds=spec.arrive_seconds + since)

    # --- what is stored ----------------------------------------------------------------------------------------

    def _store(self) -> None:
        """Store what has become of the jobs since."""
        changed = False
        for name, before in self._stored.items():
            record = self._session.supervisor.records.get(name)
            if record is None:
                continue
            now = _followed(before, record, self._session.tally.of(name))
            if now != before:
                self._stored[name] = now
                changed = True
        if changed:
            self._save_at = min(self._save_at, time.monotonic())
        if self._file is not None and (changed or self._save_at) and time.monotonic() >= self._save_at:
            self._save()

    def _save(self) -> None:
        """Write the queue; tried again after a while where that fails, for instance on a full disk."""
        self._save_at = 0.0
        ends = {name: job.end.finished_at_seconds for name, job in self._stored.items() if job.end is not None}
        if old := set(sorted(ends, key=ends.__getitem__)[:-MAX_ENDED]):
            forgotten = old - best_trials(self._session, self._stored.keys() - old)
            self._stored = {name: job for name, job in self._stored.items() if name not in forgotten}
            self._session.forget(forgotten)
            self._passes.forget(forgotten)
        try:
            if self._file is not None:
                self._file.save(self._stored.values())
        except SlopewiseError as error:
            self._save_at = time.monotonic() + QUEUE_SECONDS
            _log.warning("queue not stored", reason=str(error))

    # --- what passes decide by ---------------------------------------------------------------------------------

    def _set_mode(self, written: str) -> None:
        modes = {str(mode).lower(): mode for mode in get_args(Mode)}
        if written.lower() not in modes:
            raise UsageError(f"there is no mode {written!r}; use one of {', '.join(modes.values())}.")
        policy = self._session.document
        spec = policy.spec.model_copy(update={"mode": modes[written.lower()]})
        store = (lambda: None) if self._file is None else partial(self._file.save_mode, spec.mode)
        self._use(policy.model_copy(update={"spec": spec}), store)

    def _use(self, policy: TrainingPolicy, store: Callable[[], None] = lambda: None) -> None:
        policy = self._session.workshop.controlled(policy)
        self._session.use(policy, store)
        _log.info("policy changed", policy=policy.spec.policy_name, mode=policy.spec.mode)

    # --- what the commands show --------------------------------------------------------------------------------

    def _jobs(self) -> list[JobAnswer]:
        rows = {row.name: row for row in live_rows(self._session)}
        return [
            job_answer(self._session, rows[name], self._stored.get(name), self._passes.statuses.get(name))
            for name in self._session.supervisor.records
        ]


def _followed(job: StoredJob, record: JobRecord, tally: JobTally) -> StoredJob:
    """What is stored of a job, as its record is now; the pass after its end brings its last loss."""
    if job.end is None:
        end = None if record.finished_at_seconds is None else StoredEnd.of(record)
        job = altered(
            job,
            started=record.started_at_seconds is not None,
            attempt=record.spec.queueing.attempt,
            end=end,
            log=job.log if record.process is None or record.is_attached else str(record.process.log_path),
            environment=job.environment if end is None else {},
        )
    if study := record.spec.queueing.study:  # the job may name it itself
        job = altered(job, document={**job.document, "study": study})
    first, last = tally.first_level, tally.last_level
    if job.end is None or first is None or last is None:
        return job
    return altered(job, losses=StoredLosses(first, last, tally.objective, tally.finite, tally.rungs, tally.metric))


def _cut_off(job: StoredJob, spec: JobSpec, now_seconds: float) -> StoredJob:
    """A job that ran when the machine was restarted: its next attempt, where it has one."""
    if job.attempt < spec.queueing.restarts:
        return altered(job, attempt=job.attempt + 1, started=False)
    return altered(job, end=StoredEnd(now_seconds, last_output_lines=CUT_OFF, status_unknown=True))


def _renamed(entry: Mapping[str, Any], taken: Mapping[str, object]) -> dict[str, Any]:
    """The entry, its name with the first free number where it is taken."""
    name = str(entry["name"])
    names = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 3)))
    return {**entry, "name": next(each for each in names if each not in taken)}
