"""Continues a user's jobs whose controller was killed, when the same jobs are run again.

`crash_journal.py` has cleaned up after the killed run and let its jobs run on without limits. `supervisor.py` takes
over those that run and starts none a second time, because two writers spoil one checkpoint. A run that cannot be
continued is refused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slopewise.adapters.local.cleanup import EndedJob, JournalEntry, RunOf, StartedProcess, current_boot_id
from slopewise.adapters.local.crash_journal import (
    CRASHED_SUFFIX,
    JOURNAL_SUFFIX,
    MEMORY_SUFFIX,
    Journal,
    journals,
    lock_of_dead,
    read_journal,
    run_id_of,
)
from slopewise.adapters.local.job_processes import LAST_LOSSES
from slopewise.config.jobs_file import JobSpec
from slopewise.errors import SlopewiseError

RETENTION_SECONDS = 7 * 86_400.0
"""How long a killed run whose jobs have all ended is remembered when they are not run again."""

MAX_LOGS = 200
"""Logs of jobs that have ended, the newest: as many as `up` remembers jobs."""


@dataclass(frozen=True, slots=True)
class EarlierJob:
    """One job of a killed run. Without `process` it has ended; `ended` says how, where that was observed."""

    started: StartedProcess
    mark: str
    """The run whose mark its processes carry."""
    ended: EndedJob | None = None

    @property
    def runs(self) -> bool:
        """True while any process of it does."""
        return self.ended is None and bool(self.started.members(self.mark))


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """The state of the same jobs after controllers that were killed. Empty: there were none."""

    jobs: Mapping[str, EarlierJob]
    """By name; a job that is missing was never started."""
    started_at_seconds: float | None = None
    """Start of the first such run, from which arrivals count."""
    memory: Path | None = None
    """The file of its Memory."""
    files: tuple[Path, ...] = ()

    def has(self, spec: JobSpec) -> bool:
        """True when this job was started, and not another one of its name."""
        job, queueing = self.jobs.get(spec.name), spec.queueing
        command = None if job is None else job.started.command
        return command is not None and command.submission == queueing.submission and command.attempt >= queueing.attempt

    def settle(self, journal: Journal) -> None:
        """Hand the record of these jobs over to the present run's journal, once it continues them."""
        for job in self.jobs.values():
            journal.record(job.started.model_copy(update={"mark": job.mark}))
            if job.ended is not None:
                journal.record(job.ended)
        self.forget()

    def forget(self) -> None:
        """Delete the record of these runs."""
        for path in self.files:
            path.unlink(missing_ok=True)
            path.with_suffix(MEMORY_SUFFIX).unlink(missing_ok=True)


NOTHING_EARLIER = EarlierRun({})


def earlier_run(state_dir: Path, jobs_identity: str) -> EarlierRun:
    """The killed runs of these jobs; expired ones are removed."""
    _prune(state_dir)
    jobs: dict[str, EarlierJob] = {}
    files: list[Path] = []
    started: list[float] = []
    for path in reversed(journals(state_dir, CRASHED_SUFFIX)):  # newest first: its entries take precedence
        entries = read_journal(path)
        run_of = _run_of(entries)
        if run_of is None or run_of.jobs != jobs_identity:
            continue
        files.append(path)
        started.append(run_of.started_at_seconds)
        jobs = _jobs(entries, run_id_of(path)) | jobs
    memory = next((kept for path in files if (kept := path.with_suffix(MEMORY_SUFFIX)).is_file()), None)
    return EarlierRun(jobs, started[0] if started else None, memory, tuple(files))


def prune_logs(state_dir: Path, run_id: str, used: Collection[Path]) -> None:
    """Remove the oldest logs of the user's jobs that have ended.

    Never one of `used`, nor one that a run other than `run_id` with a journal has, or names there: its jobs may still
    write, on a machine that shares this folder too.
    """
    kept = (path for suffix in (JOURNAL_SUFFIX, CRASHED_SUFFIX) for path in state_dir.glob(f"*{suffix}"))
    others = [path for path in kept if run_id_of(path) != run_id]
    runs = {run_id_of(path) for path in others}
    ages: list[tuple[float, Path]] = []
    with suppress(OSError):  # another session removes a folder meanwhile
        found = (path for path in (state_dir / "logs").glob("*/*/*.log") if path.parts[-3] not in runs)
        ages.extend((path.stat().st_mtime, path) for path in found if path not in used)
    for _, path in sorted(ages)[:-MAX_LOGS]:
        with suppress(OSError):
            if any(os.fsencode(path) in other.read_bytes() for other in others):
                continue  # another session has taken its job over
            path.unlink()
            path.with_suffix(LAST_LOSSES).unlink(missing_ok=True)
            if path.parts[-3] != run_id:
                path.parent.rmdir()  # of a run that has no log left
                path.parent.parent.rmdir()


def check_not_running(state_dir: Path, jobs_identity: str, *, where: str, otherwise: str = "") -> None:
    """SlopewiseError when a running controller has these jobs; `otherwise` is appended to the remedy."""
    for path in journals(state_dir):
        descriptor = lock_of_dead(path)
        if descriptor is not None:
            os.close(descriptor)
            continue
        run_id = run_id_of(path)
        run_of = _run_of(read_journal(path))
        if run_of is not None and run_of.jobs == jobs_identity:
            pid = run_id.rpartition("-")[2]
            raise SlopewiseError(f"{where}: run {run_id} has these jobs now; stop it first (kill {pid}){otherwise}.")


def check_goes_on(earlier: EarlierRun, specs: Sequence[JobSpec], *, where: str) -> None:
    """SlopewiseError when a running job has changed in the file, or when every job has ended."""
    by_name = {spec.name: spec for spec in specs}
    for name, job in earlier.jobs.items():
        spec = by_name.get(name)
        if spec is not None and job.runs and _is_another(job, spec):
            raise SlopewiseError(
                f"{where}: {name} still runs from before its controller was killed (process {job.started.pid}), with "
                f"another command, folder or port; end it (kill {job.started.pid}), or start it a second time with "
                "--again."
            )
    over = {name for name, job in earlier.jobs.items() if not job.runs}
    if specs and by_name.keys() <= over:
        ends = "; ".join(f"{spec.name} {_how(earlier.jobs[spec.name])}" for spec in specs)
        raise SlopewiseError(
            f"{where}: its controller was killed, and all of its jobs are over ({ends}); start them again with --again."
        )


def refuse_running(state_dir: Path, jobs_identity: str, specs: Iterable[JobSpec], *, where: str) -> None:
    """SlopewiseError when one of these jobs runs, for a command that cannot continue it.

    When none runs, the record is deleted.
    """
    check_not_running(state_dir, jobs_identity, where=where)
    earlier = earlier_run(state_dir, jobs_identity)
    running = [job for spec in specs if (job := earlier.jobs.get(spec.name)) is not None and job.runs]
    if not running:
        earlier.forget()
        return
    names = ", ".join(job.started.name for job in running)
    pids = " ".join(str(job.started.pid) for job in running)
    raise SlopewiseError(
        f"{where}: still running from before their controller was killed: {names}; end them first (kill {pids}), since "
        "two writers of one checkpoint spoil it."
    )


def descriptions(earlier: EarlierRun, specs: Sequence[JobSpec]) -> list[str]:
    """One line for each job of the killed run: what happens to it now."""
    lines = []
    names = {spec.name for spec in specs}
    for name, job in earlier.jobs.items():
        command = job.started.command
        if job.runs and name in names:
            log = f", output {command.log_path}" if command else ""
            lines.append(f"{name} (process {job.started.pid}{log}) is taken over")
        elif job.runs:
            lines.append(f"{name} (process {job.started.pid}) is not in the file any more and runs on by itself")
        elif name in names:
            lines.append(f"{name} {_how(job)} and is not started again")
    return lines


def _how(job: EarlierJob) -> str:
    if job.ended is None:
        return "ended while no controller ran"
    if job.ended.stopped_at_target:
        return f"was {job.ended.stopped_at_target}"
    return "had finished" if job.ended.status == 0 else f"had ended with status {job.ended.status}"


def _is_another(job: EarlierJob, spec: JobSpec) -> bool:
    """Whether the file's entry of a running job differs from what was started."""
    had = job.started.command
    same = had is not None and (list(had.arguments), had.working_directory) == (spec.command, spec.working_directory)
    return not same or (had is not None and spec.port not in (None, had.port))


def _jobs(entries: Iterable[JournalEntry], run_id: str) -> dict[str, EarlierJob]:
    """The last entries of each job; a comparison of policies runs each job several times."""
    jobs: dict[str, EarlierJob] = {}
    for entry in entries:
        if isinstance(entry, StartedProcess) and entry.command is not None and entry.boot_id == current_boot_id():
            jobs[entry.name] = EarlierJob(entry, entry.mark or run_id)
        elif isinstance(entry, EndedJob) and entry.name in jobs:
            jobs[entry.name] = EarlierJob(jobs[entry.name].started, jobs[entry.name].mark, entry)
    return jobs


def _run_of(entries: Iterable[JournalEntry]) -> RunOf | None:
    return next((each for each in entries if isinstance(each, RunOf)), None)


def _prune(state_dir: Path) -> None:
    """Delete killed runs of an earlier boot, and expired ones of which nothing runs."""
    for path in journals(state_dir, CRASHED_SUFFIX):
        jobs = _jobs(read_journal(path), run_id_of(path))
        with suppress(OSError):
            is_old = time.time() - path.stat().st_mtime > RETENTION_SECONDS
            if not jobs or (is_old and not any(job.runs for job in jobs.values())):
                EarlierRun({}, files=(path,)).forget()
