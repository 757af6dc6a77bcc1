"""The jobs of other sessions, from their journals."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.waiting import eventually

from slopewise.adapters.local.cleanup import MovedProcess, MovedProcesses, StartedCommand
from slopewise.adapters.local.crash_journal import Journal
from slopewise.adapters.local.limiters.identity import identify
from slopewise.adapters.local.other_sessions import OtherSessions

STARTS_CHILD = [sys.executable, "-S", "-c", "import subprocess; subprocess.run(['sleep', '600'])"]


@pytest.fixture
def start() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """A job: a group of two processes."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(STARTS_CHILD, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        subprocess.run(["pkill", "-9", "-g", str(process.pid)], check=False)
        process.wait()


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal.open(tmp_path, "theirs")
    yield journal
    journal.close()


def command(folder: Path) -> StartedCommand:
    return StartedCommand(
        arguments=("x",), working_directory=None, log_path=folder, port=1, arrived_at_seconds=0, started_at_seconds=0
    )


def test_the_processes_of_their_jobs_are_those_of_their_groups_and_their_prometheus_is_no_job(
    tmp_path: Path, theirs: Journal, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    sessions = OtherSessions(tmp_path, "ours")
    assert (sessions.processes(), sessions.jobs) == ([], [])
    ours, users, prometheus, named = (start() for _ in range(4))
    theirs.record_process("ours", ours.pid, ours=True)
    theirs.record_process("users", users.pid, ours=False, command=command(tmp_path))
    theirs.record_process("prometheus", prometheus.pid, ours=True)
    theirs.record_process("prometheus", named.pid, ours=False, command=command(tmp_path))
    assert eventually(lambda: len(sessions.processes()) == 6)
    assert [job[0] for job in sessions.jobs] == [ours.pid, users.pid, named.pid]
    assert OtherSessions(tmp_path, "theirs").processes() == []


def test_one_that_has_ended_counts_no_more_and_neither_does_a_session_that_has(
    tmp_path: Path, theirs: Journal, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    sessions, (first, second) = OtherSessions(tmp_path, "ours"), (start(), start())
    for process in (first, second):
        theirs.record_process("job", process.pid, ours=False, command=command(tmp_path))
    sessions.processes()
    assert len(sessions.jobs) == 2
    first.kill()
    first.wait()
    sessions.processes()
    assert [job[0] for job in sessions.jobs] == [second.pid]
    theirs.close()
    assert (sessions.processes(), sessions.jobs) == ([], [])


def test_an_attached_job_counts_with_its_children_while_it_has_its_cgroup(
    tmp_path: Path, theirs: Journal, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    sessions, process = OtherSessions(tmp_path, "ours"), start()
    directory = tmp_path / "slopewise-theirs" / "1-mine"
    directory.mkdir(parents=True)
    moved = MovedProcess(**identify(process.pid)._asdict(), cgroups=(tmp_path,))
    theirs.record(MovedProcesses(name="mine", directories=(directory,), processes=(moved,)))
    assert eventually(lambda: len(sessions.processes()) == 2)
    directory.rmdir()
    assert sessions.processes() == []
