"""Stores the jobs of a service: before they are started, and how they have ended.

The crash journal has what runs since the machine was started; this file outlives that, and is what nothing is forgotten
by. It is replaced as a whole, and is on the disk before a job counts as taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import msgspec

from slopewise.adapters.local.cleanup import current_boot_id
from slopewise.adapters.local.job_record import JobRecord
from slopewise.adapters.local.limiters.identity import ProcessIdentity
from slopewise.adapters.local.stored_files import replace_file
from slopewise.config.jobs_file import JobSpec
from slopewise.config.training_policy import Mode
from slopewise.errors import SlopewiseError
from slopewise.model import Objective
from slopewise.reports.trials import Rungs


class StoredEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a job has ended, as its record has it."""

    finished_at_seconds: float
    arrived_at_seconds: float | None = None
    started_at_seconds: float | None = None
    exit_status: int | None = None
    cpu_seconds: float | None = None
    last_output_lines: str = ""
    stopped_at_target: str = ""
    status_unknown: bool = False
    ended_unseen: bool = False

    @classmethod
    def of(cls, record: JobRecord) -> StoredEnd:
        """Of a record that has ended."""
        return cls(**{name: getattr(record, name) for name in cls.__struct_fields__})


class StoredProcess(msgspec.Struct, frozen=True):
    """The process of an attached job."""

    pid: int
    started_ticks: int
    boot_id: str

    def identity(self) -> ProcessIdentity | None:
        """The same process; None: it has ended, and its pid may be that of another one."""
        found = ProcessIdentity(self.pid, self.started_ticks)
        return found if self.boot_id == current_boot_id() and found.exists else None


class StoredLosses(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job has reported by its end: each session has a Prometheus of its own."""

    first: float
    last: float
    objective: Objective = "min"
    finite: bool = True
    rungs: Rungs = {}
    metric: str = ""


class StoredJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """One job that was given to the service."""

    number: int
    """Its submission: names are used again."""
    name: str
    document: dict[str, Any]
    """Its entry, as a jobs file has it."""
    folder: str
    environment: dict[str, str]
    """Of the terminal that it came from; empty once it has ended."""
    submitted_at_seconds: float
    attempt: int = 0
    started: bool = False
    """Its present attempt."""
    end: StoredEnd | None = None
    log: str = ""
    process: StoredProcess | None = None
    """Of a job that was attached."""
    losses: StoredLosses | None = None

    def record(self, spec: JobSpec) -> JobRecord:
        """The record of a job that has ended."""
        record = JobRecord(spec, 0)
        for name in StoredEnd.__struct_fields__:
            setattr(record, name, getattr(self.end, name))
        record.noticed_end_seconds = record.finished_at_seconds
        return record


class QueueFile:
    """The file of one user and machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mode = path.with_name("mode")

    def save_mode(self, mode: str) -> None:
        """Remember a mode that was set by hand; SlopewiseError where it cannot be written."""
        replace_file(self._mode, mode.encode(), durable=True)

    def mode_after(self, policy_file: Path | None) -> str | None:
        """The mode that was set since this file was written; None: there is none."""
        try:
            if policy_file is not None and policy_file.stat().st_mtime > self._mode.stat().st_mtime:
                return None
            written = self._mode.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None
        return written if written in get_args(Mode) else None

    def load(self) -> dict[str, StoredJob]:
        """By name, in the order of their submission; SlopewiseError when the file cannot be read."""
        try:
            jobs = msgspec.json.decode(self._path.read_bytes(), type=list[StoredJob])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError, UnicodeError) as error:
            raise SlopewiseError(
                f"{self._path}: the queue cannot be read ({error}); restore it from a copy, or remove it to begin "
                "with an empty one."
            ) from error
        return {job.name: job for job in jobs}

    def save(self, jobs: Iterable[StoredJob]) -> None:
        """Replace the file; on the disk when it returns. SlopewiseError where it cannot be written."""
        replace_file(self._path, msgspec.json.encode(list(jobs)), durable=True)
