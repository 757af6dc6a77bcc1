"""Limits CPU with a cgroup per job below one cgroup per run: the part that cgroup v1 and v2 share.

`cgroup_v1.py` and `cgroup_v2.py` define the files.

    <our own cgroup>/slopewise-RUN/1-mnist      one for each job, and in v1 one in each hierarchy
"""

from __future__ import annotations

import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from slopewise.adapters.local.cleanup import MadeCgroup, MovedProcess, MovedProcesses
from slopewise.adapters.local.crash_journal import Journal
from slopewise.adapters.local.limiters.base import NEUTRAL_REQUEST_MILLICORES, unknown_job
from slopewise.adapters.local.limiters.cgroup_files import RUN_PREFIX, CgroupFiles, is_run, manages, remove_run
from slopewise.adapters.local.limiters.identity import ProcessIdentity, identify
from slopewise.adapters.local.limiters.process_group import ProcessMeter, process_tree, running
from slopewise.errors import ActuationError, MissingToolError, UsageError
from slopewise.model import CpuAllocation, CpuControl, Usage


@dataclass(slots=True)
class _Job:
    directories: tuple[Path, ...]
    request_millicores: int = NEUTRAL_REQUEST_MILLICORES
    meter: ProcessMeter = field(default_factory=ProcessMeter)
    moved: MovedProcesses | None = None
    """Of an attached job: what goes back to where it came from."""


class CgroupLimiter(ABC):
    """Gives CPU through cgroups. `own`: our own cgroup's directories by controller, that of the CPU first."""

    controls: frozenset[CpuControl] = frozenset({"limits", "requests"})
    description: str

    def __init__(self, own: Mapping[str, Path], journal: Journal, files: CgroupFiles | None = None) -> None:
        self._files = files or CgroupFiles()
        self._journal = journal
        self._controllers = tuple(own)
        self._runs = tuple(directory / f"{RUN_PREFIX}{journal.run_id}" for directory in own.values())
        self._enabled: tuple[str, ...] = ()
        self._jobs: dict[str, _Job] = {}
        self._numbers = count(1)

    def prepare(self) -> None:
        """Make the run's cgroup and prove that limit and weight can be written in it.

        MissingToolError, with the reason, when they cannot; then nothing is left behind.
        """
        try:
            self._make_run()
            self._prove()
        except OSError as error:
            self.close()
            raise MissingToolError(self._refusal(error)) from error
        except MissingToolError:
            self.close()
            raise

    def admit(self, job_uid: str, pid: int) -> None:
        """Put a process into a fresh cgroup of its own, before it starts others; they follow."""
        job = self._jobs[job_uid] = _Job(self._directories(job_uid))
        try:
            for directory in job.directories:
                self._files.make(directory)
                self._files.move(pid, directory)
            self._weigh_run()
        except OSError as error:
            self.release(job_uid)
            raise ActuationError(
                f"{job_uid}: its process {pid} cannot be put into a cgroup of its own ({error})."
            ) from error

    def attach(self, job_uid: str, pid: int) -> None:
        """Move them into a cgroup of their own, with what they start meanwhile; recorded before the first is moved."""
        found: dict[ProcessIdentity, tuple[Path, ...]] = {}
        for each in running(process_tree(pid)):  # the kernel shows one that waits to be collected in the root
            with suppress(ProcessLookupError, FileNotFoundError):  # a child that has just ended
                found[identify(each)] = self._origins(each)
        processes = tuple(MovedProcess(**who._asdict(), cgroups=origins) for who, origins in found.items())
        if not processes or processes[0].pid != pid:
            raise UsageError(f"process {pid} has just ended.")
        moved = MovedProcesses(name=job_uid, directories=self._directories(job_uid), processes=processes)
        self._journal.record(moved)
        job = self._jobs[job_uid] = _Job(moved.directories, moved=moved)
        try:
            for directory in job.directories:
                self._files.make(directory)
            self._gather(pid, job.directories)
            self._weigh_run()
        except OSError as error:
            self.release(job_uid)
            raise UsageError(
                f"process {pid} cannot leave its cgroup {processes[0].cgroups[0]} ({error.strerror}); "
                "run `slopewise up` as root, or submit the command."
            ) from error

    def _gather(self, pid: int, directories: Sequence[Path]) -> None:
        """Move a process and its children: parents first, and again until none was started outside meanwhile."""
        done: set[int] = set()
        while True:
            inside = {*done, *self._files.pids(directories[-1])}
            left = [each for each in process_tree(pid) if each not in inside]
            if not left:
                return
            for each in left:
                for directory in directories:
                    self._files.move(each, directory)
            done.update(left)

    def include(self, job_uid: str, pids: Sequence[int]) -> None:
        """Put them into the job's cgroup."""
        with self._touching(job_uid) as job:
            for directory in job.directories:
                for pid in pids:
                    self._files.move(pid, directory)

    def read(self, job_uid: str) -> CpuAllocation:
        """What the control files hold."""
        with self._touching(job_uid) as job:
            return self._read_allocation(job.directories[0])

    def set_limit(self, job_uid: str, millicores: int) -> None:
        """Write the quota."""
        with self._touching(job_uid) as job:
            self._write_limit(job.directories[0], millicores)

    def set_request(self, job_uid: str, millicores: int) -> None:
        """Write the weight."""
        with self._touching(job_uid) as job:
            self._write_request(job.directories[0], millicores)
            job.request_millicores = millicores
            self._weigh_run()

    def restore(self, job_uid: str, original: CpuAllocation) -> None:
        """Write both back."""
        if job_uid not in self._jobs:
            return
        with self._touching(job_uid) as job:
            self._write_limit(job.directories[0], original.limit_millicores)
        self.set_request(job_uid, original.request_millicores)

    def usage(self, job_uid: str) -> Usage:
        """CPU from the cgroup's own counter, which holds what ended processes used; the rest summed over processes."""
        now = time.time()
        job = self._jobs.get(job_uid)
        if job is not None:
            with suppress(OSError):  # released by another thread meanwhile
                use = job.meter.read(self._files.pids(job.directories[0]))
                cpu_seconds = self._cpu_seconds(job.directories)
                return Usage(now, cpu_seconds, use.memory_bytes, block_io_bytes_total=use.block_io_bytes)
        return Usage(sampled_at_seconds=now)

    def members(self, job_uid: str) -> list[int]:
        """Who is in the cgroup, which no process leaves by itself."""
        job = self._jobs.get(job_uid)
        with suppress(OSError):  # released by another thread meanwhile
            return self._files.pids(job.directories[0]) if job else []
        return []

    def release(self, job_uid: str) -> None:
        """Move what still runs to where no limit holds, and remove the job's cgroup.

        What cannot be removed is tried again by `close`, and then by the journal, which reports it.
        """
        job = self._jobs.pop(job_uid, None)
        if job is None:
            return
        with suppress(OSError):
            if job.moved is not None:
                job.moved.put_back(self._files)
            for run, directory in zip(self._runs, job.directories, strict=True):
                if directory.is_dir():
                    self._files.empty_and_remove(directory, self._refuge(run))
            self._weigh_run()

    def close(self) -> None:
        """Release all jobs and remove the run's cgroup; the journal reports what cannot be removed."""
        for job_uid in [job_uid for job_uid, job in self._jobs.items() if job.moved is not None]:
            self.release(job_uid)
        self._jobs.clear()
        for run in filter(is_run, self._runs):
            with suppress(OSError):
                remove_run(self._files, run, self._enabled)

    @abstractmethod
    def _read_allocation(self, directory: Path) -> CpuAllocation: ...

    @abstractmethod
    def _write_limit(self, directory: Path, millicores: int | None) -> None: ...

    @abstractmethod
    def _write_request(self, directory: Path, millicores: int) -> None: ...

    @abstractmethod
    def _cpu_seconds(self, directories: Sequence[Path]) -> float: ...

    def _directories(self, job_uid: str) -> tuple[Path, ...]:
        """Of a new job."""
        name = f"{next(self._numbers)}-{re.sub(r'[^A-Za-z0-9_.-]', '_', job_uid)}"
        return tuple(run / name for run in self._runs)

    def _origins(self, pid: int) -> tuple[Path, ...]:
        """The cgroups of a process that is to be moved; UsageError when it could not be put back into them."""
        cgroups = self._files.of_process(pid)
        origins = tuple(cgroups[name] for name in self._controllers if name in cgroups)
        if len(origins) < len(self._runs):
            raise UsageError(
                f"process {pid} is in a cgroup that is not seen from here; attach it where it was started."
            )
        for origin in origins:
            if manages(origin):
                raise UsageError(f"process {pid} is managed already, by the session that has the cgroup {origin}.")
            if not os.access(origin / "cgroup.procs", os.W_OK):
                raise UsageError(
                    f"process {pid} could not be put back into its cgroup {origin}, which this user may not write; "
                    "run `slopewise up` as root, or submit the command."
                )
        return origins

    def _refuge(self, run: Path) -> Path:
        """The cgroup that released processes move to."""
        return run.parent

    def _refusal(self, error: OSError) -> str:
        """Why this way of giving CPU cannot be used, without a full stop."""
        return f"{error.filename or self._runs[0]}: {error.strerror}"

    def _make_run(self) -> None:
        for run in self._runs:
            self._journal.record(MadeCgroup(path=run))
            self._files.make(run)

    def _prove(self) -> None:
        """Half a core is within the quota of nearly every cgroup that may be over us."""
        probe = self._runs[0] / "probe"
        self._files.make(probe)
        self._write_limit(probe, 500)
        self._write_request(probe, 500)
        self._files.remove(probe)

    @contextmanager
    def _touching(self, job_uid: str) -> Iterator[_Job]:
        job = self._jobs.get(job_uid)
        if job is None:
            raise unknown_job(job_uid)
        try:
            yield job
        except OSError as error:
            raise ActuationError(f"{job_uid}: {job.directories[0]} cannot be used ({error.strerror}).") from error

    def _weigh_run(self) -> None:
        """Let the run weigh as much as its jobs together, but no more than the machine has cores.

        Weighing one process, three jobs and a stranger on two cores would get 1 core for the three, and 1.5 without
        any cgroups. Weighing ten, ten jobs would push the controller and Prometheus aside: a pass then took 60 ms on
        two busy cores, and takes 25 ms like this.
        """
        jobs = sum(job.request_millicores for job in list(self._jobs.values()))
        cores = NEUTRAL_REQUEST_MILLICORES * len(os.sched_getaffinity(0))
        requests = min(jobs, cores)
        self._write_request(self._runs[0], requests or NEUTRAL_REQUEST_MILLICORES)
