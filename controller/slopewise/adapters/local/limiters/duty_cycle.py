"""Limits CPU without cgroups: stops and continues a job's process group ten times a second.

`duty_cycle_helper.py`, a process of its own, sends the signals and continues every job if the controller dies.

What a limit means here. A group that runs a fraction f of the time uses f × p cores, p being how many cores it
uses while it runs. So f = limit / p. p is 1 until two readings of `usage` have shown more: a job of four
threads that used 3.9 cores while it ran gets f = 0.26 for a limit of 1000 millicores. p is never taken for
less than 1: a job that waits half of its time keeps the fraction of one that does not. A limit of p cores or
more stops nothing. There are no weights: the time of a stopped job goes to the others, each up to its own limit.

What escapes the limit: processes that leave their group (`setsid`), though they end with it, being marked; and
short periods: a training step that takes 5 ms is stopped in its middle, as with a quota.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from slopewise.adapters.local.cleanup import RUN_VARIABLE, started_in_group
from slopewise.adapters.local.limiters.base import UNLIMITED, unknown_job
from slopewise.adapters.local.limiters.identity import ProcessIdentity, identify, leads_own_group
from slopewise.adapters.local.limiters.process_group import GroupScan, ProcessMeter
from slopewise.errors import ActuationError, UsageError
from slopewise.model import CpuAllocation, CpuControl, Usage

_MIN_FRACTION = 0.01
_MIN_LEARNING_SECONDS = 1.0
_HELPER = "slopewise.adapters.local.limiters.duty_cycle_helper"
_HELPER_END_SECONDS = 5.0
_PACKAGE_ROOT = Path(__file__).parents[4]


@dataclass(slots=True)
class _Job:
    group: ProcessIdentity
    meter: ProcessMeter = field(default_factory=ProcessMeter)
    limit_millicores: int | None = None
    parallelism_cores: float = 1.0
    since: tuple[float, float] | None = None
    """Monotonic time and CPU seconds, when the present fraction began or was last read."""

    @property
    def fraction(self) -> float:
        """Of the time, in which the group may run; 1 when nothing is stopped."""
        if self.limit_millicores is None:
            return 1.0
        return min(1.0, max(_MIN_FRACTION, self.limit_millicores / 1000 / self.parallelism_cores))


class DutyCycleLimiter:
    """Stops and continues process groups. Needs no rights beyond those over the jobs' own processes."""

    controls: frozenset[CpuControl] = frozenset({"limits"})

    def __init__(self, reason: str, run_id: str = "") -> None:
        """`reason`: why it is this and not cgroups, in plain words for the description.

        `run_id`: the mark that all processes of the run carry.
        """
        self.description = f"stop and continue of process groups, limits only ({reason})"
        self._run_id = run_id
        self._groups = GroupScan()
        self._jobs: dict[str, _Job] = {}
        self._helper: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def admit(self, job_uid: str, pid: int) -> None:
        """Remember the group; nothing is stopped yet."""
        if not leads_own_group(pid):
            raise ActuationError(f"{job_uid}: process {pid} leads no group of its own, so it cannot be stopped.")
        self._jobs[job_uid] = _Job(identify(pid))
        self._groups.forget()

    def include(self, job_uid: str, pids: Sequence[int]) -> None:
        """Nothing: those of the group are stopped with it, and those that left it escape."""

    def attach(self, job_uid: str, pid: int) -> None:
        """UsageError: a terminal sees that its process is stopped, and one in another's group would stop that too."""
        raise UsageError(
            f"a running process is attached through cgroups, and here is only {self.description}; "
            "run `slopewise up` as root or in a delegated cgroup, or submit the command."
        )

    def read(self, job_uid: str) -> CpuAllocation:
        """The limit as it was set; the request is the default."""
        return CpuAllocation(self._job(job_uid).limit_millicores, UNLIMITED.request_millicores)

    def set_limit(self, job_uid: str, millicores: int) -> None:
        """Stop the group for a part of each period; see above for which part."""
        self._change(job_uid, self._job(job_uid), millicores)

    def set_request(self, job_uid: str, millicores: int) -> None:
        """ActuationError: there are no weights here."""
        raise ActuationError(
            f"{job_uid}: a request of {millicores}m needs cgroups, and here is only {self.description}; "
            "use control: limits."
        )

    def restore(self, job_uid: str, original: CpuAllocation) -> None:
        """Give the limit back; there was nothing else."""
        job = self._jobs.get(job_uid)
        if job is not None and job.group.exists:
            self._change(job_uid, job, original.limit_millicores)

    def usage(self, job_uid: str) -> Usage:
        """Summed over the group's processes.

        Also measures how many cores the job uses, and detects a helper that was killed.
        """
        now = time.time()
        job = self._jobs.get(job_uid)
        if job is None:
            return Usage(sampled_at_seconds=now)
        use = job.meter.read(self._groups.members(job.group.pid) if job.group.exists else [])
        if self._learned(job, use.cpu_seconds) or self._helper_died():
            self._send(job)
        return Usage(
            sampled_at_seconds=now,
            cpu_seconds_total=use.cpu_seconds,
            memory_bytes=use.memory_bytes,
            block_io_bytes_total=use.block_io_bytes,
        )

    def members(self, job_uid: str) -> list[int]:
        """The processes with the marks of the run and of the job's group."""
        job = self._jobs.get(job_uid)
        return started_in_group(self._run_id, job.group.pid) if job else []

    def release(self, job_uid: str) -> None:
        """Let the group run, and forget it."""
        job = self._jobs.get(job_uid)
        if job is not None:
            job.limit_millicores = None
            self._send(job)
            self._jobs.pop(job_uid, None)

    def close(self) -> None:
        """End the helper, which continues every group first; then continue them all once more."""
        with self._lock:
            helper, self._helper = self._helper, None
            if helper is not None:
                _end(helper)
            self._continue_all()
            self._jobs.clear()

    def _job(self, job_uid: str) -> _Job:
        if job_uid not in self._jobs:
            raise unknown_job(job_uid)
        return self._jobs[job_uid]

    def _change(self, job_uid: str, job: _Job, limit_millicores: int | None) -> None:
        if not job.group.exists:
            raise unknown_job(job_uid)
        job.limit_millicores, job.since = limit_millicores, None
        self._send(job)

    def _learned(self, job: _Job, cpu_seconds: float) -> bool:
        """Measure how many cores the job uses while it runs, from two readings under one fraction.

        True when that changes the fraction.
        """
        now, former, fraction = time.monotonic(), job.since, job.fraction
        if former is not None and now - former[0] < _MIN_LEARNING_SECONDS:
            return False
        job.since = (now, cpu_seconds)
        if former is None:
            return False
        job.parallelism_cores = parallelism_cores(cpu_seconds - former[1], now - former[0], fraction)
        return job.fraction != fraction

    def _send(self, job: _Job) -> None:
        """Send the helper one job's fraction; a helper that died is replaced and gets all fractions."""
        with self._lock:
            if self._helper is None and job.fraction >= 1.0:
                return
            if self._helper is None or self._helper_died() or not _send_fractions(self._helper, [job]):
                self._replace_helper()

    def _helper_died(self) -> bool:
        return self._helper is not None and self._helper.poll() is not None

    def _replace_helper(self) -> None:
        """The former one may have died with groups stopped: let all run, and start over."""
        self._continue_all()
        if self._helper is not None:
            _end(self._helper)
        try:
            self._helper = _start_helper(self._run_id)
        except OSError as error:
            raise ActuationError(f"The process that limits CPU here cannot start ({error}).") from error
        if not _send_fractions(self._helper, list(self._jobs.values())):
            raise ActuationError("The process that limits CPU here ends at once; see its message on stderr.")

    def _continue_all(self) -> None:
        for job in list(self._jobs.values()):
            job.group.signal_group(signal.SIGCONT)


def parallelism_cores(cpu_seconds: float, seconds: float, fraction: float) -> float:
    """How many cores a group uses while it runs, which is a `fraction` of `seconds`; at least 1.

    Worked example: 3.9 CPU-seconds in 2 s, of which it ran the half: 3.9 cores.
    """
    cores = float(len(os.sched_getaffinity(0)))
    return min(max(1.0, cpu_seconds / (seconds * fraction)), cores)


def _start_helper(run_id: str) -> subprocess.Popen[bytes]:
    """`-P -S`: neither the current folder, which may hold a `controller` of its own, nor site-packages."""
    return subprocess.Popen(
        [sys.executable, "-P", "-S", "-m", _HELPER],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(_PACKAGE_ROOT), RUN_VARIABLE: run_id},
        start_new_session=True,
    )


def _send_fractions(helper: subprocess.Popen[bytes], jobs: list[_Job]) -> bool:
    """False when the helper is no longer there to read."""
    lines = [{**job.group._asdict(), "fraction": job.fraction} for job in jobs]
    try:
        assert helper.stdin is not None  # noqa: S101  it was opened as a pipe
        helper.stdin.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        helper.stdin.flush()
    except OSError:
        return False
    return True


def _end(helper: subprocess.Popen[bytes]) -> None:
    """Close its input, which ends it; it is small, and its end takes milliseconds."""
    with suppress(OSError):
        if helper.stdin is not None:
            helper.stdin.close()
    try:
        helper.wait(timeout=_HELPER_END_SECONDS)
    except subprocess.TimeoutExpired:
        helper.kill()
        helper.wait()
