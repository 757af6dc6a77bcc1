"""What is to become of a user's jobs whose controller was killed, when the same jobs are to be run again.

Before it: `journal.py`, which has cleaned up after the killed run, has let its jobs run on without limits, and has kept
what is known of them. After it: `supervisor.py` goes on with those that run, and starts none a second time: two writers
of one checkpoint are worse than a command that refuses to start. What cannot be gone on with is refused in a sentence.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from controller.adapters.journal import (
    CRASHED_SUFFIX,
    MEMORY_SUFFIX,
    Journal,
    journals,
    lock_of_dead,
    read_journal,
    run_id_of,
)
from controller.adapters.leftovers import EndedJob, Leftover, RunOf, StartedProcess, current_boot_id
from controller.errors import SlopewiseError
from controller.jobs import JobSpec

KEPT_SECONDS = 7 * 86_400.0
"""How long a killed run whose jobs have all ended is remembered, when nobody runs them again."""


@dataclass(frozen=True, slots=True)
class EarlierJob:
    """One job of a killed run. Without `process` it is over, and `ended` says how, where that was seen."""

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
    """What the same jobs have come to under controllers that were killed. Empty: there were none."""

    jobs: Mapping[str, EarlierJob]
    """By name; one that is not in here was never started."""
    started_at_seconds: float | None = None
    """When the first of them was begun: arrivals count from there."""
    memory: Path | None = None
    """What was remembered between passes."""
    files: tuple[Path, ...] = ()

    def settle(self, journal: Journal) -> None:
        """From here on it is the present run's to remember: to be called when its jobs are gone on with."""
        for job in self.jobs.values():
            journal.record(job.started.model_copy(update={"mark": job.mark}))
            if job.ended is not None:
                journal.record(job.ended)
        self.forget()

    def forget(self) -> None:
        """Nothing more is known of it."""
        for path in self.files:
            path.unlink(missing_ok=True)
            path.with_suffix(MEMORY_SUFFIX).unlink(missing_ok=True)


NOTHING_EARLIER = EarlierRun({})


def earlier_run(state_dir: Path, jobs_identity: str) -> EarlierRun:
    """What is known of killed runs of these jobs; what is too old to matter is removed on the way."""
    _prune(state_dir)
    jobs: dict[str, EarlierJob] = {}
    files: list[Path] = []
    started: list[float] = []
    for path in reversed(journals(state_dir, CRASHED_SUFFIX)):  # the newest first: what it knows is what counts
        entries = read_journal(path)[0]
        run_of = _run_of(entries)
        if run_of is None or run_of.jobs != jobs_identity:
            continue
        files.append(path)
        started.append(run_of.started_at_seconds)
        jobs = _jobs(entries, run_id_of(path)) | jobs
    memory = next((kept for path in files if (kept := path.with_suffix(MEMORY_SUFFIX)).is_file()), None)
    return EarlierRun(jobs, started[0] if started else None, memory, tuple(files))


def check_not_running(state_dir: Path, jobs_identity: str, *, where: str, otherwise: str = "") -> None:
    """SlopewiseError when a controller that lives has these jobs now; `otherwise` ends what the user can do."""
    for path in journals(state_dir):
        descriptor = lock_of_dead(path)
        if descriptor is not None:
            os.close(descriptor)
            continue
        run_id = run_id_of(path)
        run_of = _run_of(read_journal(path)[0])
        if run_of is not None and run_of.jobs == jobs_identity:
            pid = run_id.rpartition("-")[2]
            raise SlopewiseError(f"{where}: run {run_id} has these jobs now; stop it first (kill {pid}){otherwise}.")


def check_goes_on(earlier: EarlierRun, specs: Sequence[JobSpec], *, where: str) -> None:
    """SlopewiseError when a job that runs is another by now, or when there is nothing left to do."""
    by_name = {spec.name: spec for spec in specs}
    for name, job in earlier.jobs.items():
        spec = by_name.get(name)
        if spec is not None and job.runs and (changed := _changed(job, spec)) is not None:
            raise SlopewiseError(
                f"{where}: {name} still runs from before its controller was killed (process {job.started.pid}), and "
                f"{changed}; end it (kill {job.started.pid}), or start it a second time with --again."
            )
    over = {name for name, job in earlier.jobs.items() if not job.runs}
    if specs and by_name.keys() <= over:
        ends = "; ".join(f"{spec.name} {_how(earlier.jobs[spec.name])}" for spec in specs)
        raise SlopewiseError(
            f"{where}: its controller was killed, and all of its jobs are over ({ends}); start them again with --again."
        )


def refuse_running(state_dir: Path, jobs_identity: str, specs: Iterable[JobSpec], *, where: str) -> None:
    """SlopewiseError when any of these jobs runs, for a command that cannot go on with it; else all is forgotten."""
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


def in_words(earlier: EarlierRun, specs: Sequence[JobSpec]) -> list[str]:
    """For the user: what becomes of each job of the killed run."""
    told = []
    names = {spec.name for spec in specs}
    for name, job in earlier.jobs.items():
        command = job.started.command
        if job.runs and name in names:
            log = f", output {command.log_path}" if command else ""
            told.append(f"{name} (process {job.started.pid}{log}) is taken over")
        elif job.runs:
            told.append(f"{name} (process {job.started.pid}) is not in the file any more and runs on by itself")
        elif name in names:
            told.append(f"{name} {_how(job)} and is not started again")
    return told


def _how(job: EarlierJob) -> str:
    if job.ended is None:
        return "ended while no controller ran"
    return "had finished" if job.ended.status == 0 else f"had ended with status {job.ended.status}"


def _changed(job: EarlierJob, spec: JobSpec) -> str | None:
    """What of a running job is written otherwise in the file now."""
    command = job.started.command
    if command is None:
        return "with what is not known"
    if list(command.arguments) != spec.command:
        return f"with another command ({' '.join(command.arguments)})"
    if command.working_directory != spec.working_directory:
        return f"in another folder ({command.working_directory})"
    if spec.port not in (None, command.port):
        return f"on another port ({command.port})"
    return None


def _jobs(entries: Iterable[Leftover], run_id: str) -> dict[str, EarlierJob]:
    """The last that a journal knows of each job: a comparison of policies runs each several times."""
    jobs: dict[str, EarlierJob] = {}
    for entry in entries:
        if isinstance(entry, StartedProcess) and entry.command is not None and entry.boot_id == current_boot_id():
            jobs[entry.name] = EarlierJob(entry, entry.mark or run_id)
        elif isinstance(entry, EndedJob) and entry.name in jobs:
            jobs[entry.name] = EarlierJob(jobs[entry.name].started, jobs[entry.name].mark, entry)
    return jobs


def _run_of(entries: Iterable[Leftover]) -> RunOf | None:
    return next((each for each in entries if isinstance(each, RunOf)), None)


def _prune(state_dir: Path) -> None:
    """Forget killed runs of an earlier boot, and old ones that nothing is left of."""
    for path in journals(state_dir, CRASHED_SUFFIX):
        jobs = _jobs(read_journal(path)[0], run_id_of(path))
        with suppress(OSError):
            is_old = time.time() - path.stat().st_mtime > KEPT_SECONDS
            if not jobs or (is_old and not any(job.runs for job in jobs.values())):
                path.unlink(missing_ok=True)
                path.with_suffix(MEMORY_SUFFIX).unlink(missing_ok=True)
