"""The jobs of other sessions on this machine: their processes. Sessions share as jobs of one do.

Each session of this user has its journal, which lists what it has started and attached. A session of another user is
not seen, and its jobs count as other programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from slopewise.adapters.local.cleanup import JournalEntry, MovedProcesses, StartedProcess
from slopewise.adapters.local.crash_journal import journals, read_journal, run_id_of
from slopewise.adapters.local.limiters.identity import ProcessIdentity
from slopewise.adapters.local.limiters.process_group import process_groups, process_tree
from slopewise.adapters.local.prometheus_server import PROCESS_NAME


@dataclass(slots=True)
class OtherSessions:
    """Reads the journals of the other sessions, each again only once it has grown. `run_id`: of this session."""

    state_dir: Path
    run_id: str
    jobs: list[list[int]] = field(init=False, default_factory=list)
    """The processes of each of their jobs, as they were last read."""
    _read: dict[Path, tuple[int, list[JournalEntry]]] = field(init=False, default_factory=dict)

    def processes(self) -> list[int]:
        """Read which of their jobs run now; the processes of all."""
        found = [*self._running()]
        groups = process_groups() if found else {}
        self.jobs = [
            groups.get(each.pid, []) if isinstance(each, StartedProcess) else process_tree(each.processes[0].pid)
            for each in found
        ]
        return [pid for job in self.jobs for pid in job]

    def _running(self) -> Iterator[StartedProcess | MovedProcesses]:
        listed = [path for path in journals(self.state_dir) if run_id_of(path) != self.run_id]
        read = {path: self._entries(path) for path in listed}
        self._read = {path: entries for path, entries in read.items() if entries is not None}
        for _, entries in self._read.values():
            yield from _running(entries)

    def _entries(self, path: Path) -> tuple[int, list[JournalEntry]] | None:
        """Of one journal, with its size; None: that session has just ended."""
        with suppress(OSError):
            size, known = path.stat().st_size, self._read.get(path)
            return known if known is not None and known[0] == size else (size, read_journal(path))
        return None


def _running(entries: Iterable[JournalEntry]) -> Iterator[StartedProcess | MovedProcesses]:
    """The jobs among the entries of one journal; one that was let go and attached again is one."""
    moved = {}
    for entry in entries:
        is_job = isinstance(entry, StartedProcess) and (entry.command is not None or entry.name != PROCESS_NAME)
        if isinstance(entry, StartedProcess) and is_job and entry.leader_runs:
            yield entry
        if isinstance(entry, MovedProcesses) and any(directory.is_dir() for directory in entry.directories):
            moved[entry.processes[0].pid] = entry
    for entry in moved.values():
        if ProcessIdentity(entry.processes[0].pid, entry.processes[0].started_ticks).exists:
            yield entry
