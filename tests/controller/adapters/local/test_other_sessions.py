"""The jobs of other sessions, from their journals."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from support.waiting import eventually

from slopewise.adapters.local.cleanup import MovedProcess, MovedProcesses, StartedCommand
from slopewise.adapters.local.crash_journal import Journal
from slopewise.adapters.local.limiters.identity import identify
from slopewise.adapters.local.other_sessions import OtherSessions
from slopewise.errors import UsageError

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
    sessions.refuse(start().pid)
    with pytest.raises(UsageError, match=f"process {first.pid} is managed already, by another session; "):
        sessions.refuse(first.pid)
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


def test_what_has_started_a_session_with_jobs_is_refused_too(
    tmp_path: Path, theirs: Journal, start: Callable[[], subprocess.Popen[bytes]]
) -> None:
    """A shell: attached, its session's jobs would come with it and be managed twice."""
    started = f"import subprocess, sys; subprocess.run({STARTS_CHILD!r}, start_new_session=True)"
    shell = subprocess.Popen([sys.executable, "-S", "-c", started], start_new_session=True)
    try:
        assert eventually(lambda: len(psutil.Process(shell.pid).children(recursive=True)) == 2)
        job = psutil.Process(shell.pid).children()[0]
        theirs.record_process("job", job.pid, ours=False, command=command(tmp_path))
        with pytest.raises(UsageError, match=r"process \d+ is managed already, by another session; "):
            OtherSessions(tmp_path, "ours").refuse(shell.pid)
    finally:
        family = psutil.Process(shell.pid)
        for each in [*family.children(recursive=True), family]:
            each.kill()
        shell.wait()
